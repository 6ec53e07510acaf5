//! Dead letters: list, redrive, delete.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::messages::{Browse, Deleted, Purge};
use crate::app::App;
use crate::manage::note_dead;
use crate::noted;
use crate::problem::Answer;
use crate::wire::{About, Content, Json, Path, Query, message_id, partition, time_text};

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Dead {
    /// What is known of it.
    #[serde(flatten)]
    about: About,
    /// Its payload, if requested.
    #[serde(flatten)]
    payload: Content,
    /// Why it died.
    reason: Option<String>,
    /// When it died.
    died_at: Option<String>,
    /// Deliveries before it died, where they were counted.
    deliveries: Option<u32>,
    /// Attempts until it died, the last one included.
    attempts: Option<u32>,
}

/// A page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetters {
    /// The dead letters, in the order of their ids.
    dead: Vec<Dead>,
    /// The `after` of the next page; null on the last page.
    next: Option<String>,
}

/// Lists dead letters.
#[utoipa::path(
    get, path = "/v1/partitions/{partition}/dead", operation_id = "list_dead_letters", tag = "partitions",
    params(("partition" = String, Path, description = "The queue."), Browse),
    responses((status = 200, description = "A page of dead letters.", body = DeadLetters))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(browse): Query<Browse>,
) -> Answer<Json<DeadLetters>> {
    let page = browse.page()?;
    let limit = page.limit;
    let found = app.queue.dead_letters(partition(&name)?)?.list(page).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.message.id().to_string());
    let dead = found
        .into_iter()
        .map(|found| Dead {
            about: About::of(&found.message),
            payload: if browse.payloads { Content::of(found.message.payload()) } else { Content::default() },
            reason: found.reason,
            died_at: found.died_at.map(time_text),
            deliveries: found.deliveries,
            attempts: found.attempts,
        })
        .collect();
    Ok(Json(DeadLetters { dead, next }))
}

/// Which dead letters to put back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redrive {
    /// The most to put back, up to 10,000; by default 1000.
    #[serde(default)]
    limit: Option<usize>,
    /// Only those with this text in their reason.
    #[serde(default)]
    reason: Option<String>,
    /// Only those with these ids.
    #[serde(default)]
    ids: Option<Vec<String>>,
    /// Into this queue instead of the one they came from.
    #[serde(default)]
    to: Option<String>,
}

/// The most dead letters that one request puts back.
const MAX_REDRIVEN: usize = 10_000;
const REDRIVEN: usize = 1000;

/// What a redrive did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Redriven {
    /// How many were put back.
    moved: u64,
    /// How many were examined.
    scanned: u64,
    /// Whether there may be more.
    more: bool,
}

/// Puts dead letters back into their queue, each once.
#[utoipa::path(
    post, path = "/v1/partitions/{partition}/dead/redrive", operation_id = "redrive_dead_letters", tag = "partitions",
    params(("partition" = String, Path, description = "The queue.")),
    request_body = Redrive,
    responses((status = 200, description = "What was done.", body = Redriven))
)]
pub(crate) async fn redrive(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Json(request): Json<Redrive>,
) -> Answer<Json<Redriven>> {
    app.writable()?;
    let ids = request.ids.map(|ids| ids.iter().map(|id| message_id(id)).collect::<Answer<Vec<_>>>());
    let ids = ids.transpose()?;
    let reason = request.reason;
    let limit = request.limit.unwrap_or(REDRIVEN).clamp(1, MAX_REDRIVEN);
    note_dead(ids.as_deref(), reason.as_deref());
    noted::detail("limit", limit);
    let mut redrive = app.queue.dead_letters(partition(&name)?)?.redrive().limit(limit);
    if ids.is_some() || reason.is_some() {
        redrive = redrive.filter(move |message| {
            let why = message.headers().get(anyqueue::header::DEAD_REASON).map_or("", String::as_str);
            ids.as_ref().is_none_or(|ids| ids.contains(&message.id()))
                && reason.as_ref().is_none_or(|text| why.contains(text.as_str()))
        });
    }
    if let Some(to) = &request.to {
        redrive = redrive.to(partition(to)?);
    }
    let done = redrive.await?;
    noted::detail("put back", done.moved);
    Ok(Json(Redriven { moved: done.moved, scanned: done.scanned, more: done.more }))
}

/// Deletes all dead letters of a queue.
#[utoipa::path(
    delete, path = "/v1/partitions/{partition}/dead", operation_id = "purge_dead_letters", tag = "partitions",
    params(("partition" = String, Path, description = "The queue."), Purge),
    responses((status = 200, description = "How many were deleted.", body = Deleted))
)]
pub(crate) async fn purge(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(purge): Query<Purge>,
) -> Answer<Json<Deleted>> {
    app.writable()?;
    purge.check(&name)?;
    let deleted = app.queue.dead_letters(partition(&name)?)?.purge().await?;
    noted::detail("deleted", deleted);
    Ok(Json(Deleted { deleted }))
}
