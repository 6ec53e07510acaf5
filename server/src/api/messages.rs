//! The messages of a queue: browse, purge.

use std::sync::Arc;

use anyqueue::Page;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access;
use crate::app::App;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{About, Content, Json, Path, Query, message_id, millis, partition};

/// The most messages on one page: payloads can be large.
const MAX_PAGE: usize = 100;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Browse {
    /// The id of the last message of the previous page.
    #[serde(default)]
    pub(crate) after: Option<String>,
    /// How many, at most 100.
    #[serde(default)]
    pub(crate) limit: Option<usize>,
    /// Whether to return payloads, which needs the right `payloads`. Default: no.
    #[serde(default)]
    pub(crate) payloads: bool,
}

impl Browse {
    pub(crate) fn page(&self) -> Answer<Page<anyqueue::MessageId>> {
        if self.payloads {
            access::check_payloads()?;
        }
        let after = self.after.as_deref().map(message_id).transpose()?;
        Ok(Page::of(self.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE)).after(after))
    }
}

/// A stored message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Message {
    /// What is known of it.
    #[serde(flatten)]
    about: About,
    /// Its payload, if requested.
    #[serde(flatten)]
    payload: Content,
    /// `ready`, `delayed`, `leased` or `disabled`.
    state: String,
    /// Deliveries so far, where they are counted.
    delivery_count: Option<u32>,
    /// How long ago it was pushed, in milliseconds.
    age_ms: u64,
    /// In how many milliseconds it can be pulled, if it is delayed.
    due_in_ms: Option<u64>,
}

/// A page of messages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Messages {
    /// The messages, in the order of their ids.
    messages: Vec<Message>,
    /// The `after` of the next page; null on the last page.
    next: Option<String>,
}

/// Lists the messages of a queue. Nobody is held up by this.
#[utoipa::path(
    get, path = "/v1/partitions/{partition}/messages", operation_id = "browse_messages", tag = "partitions",
    params(("partition" = String, Path, description = "The queue."), Browse),
    responses((status = 200, description = "A page of messages.", body = Messages))
)]
pub(crate) async fn browse(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(browse): Query<Browse>,
) -> Answer<Json<Messages>> {
    let page = browse.page()?;
    let limit = page.limit;
    let found = app.queue.browse(partition(&name)?, page).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.message.id().to_string());
    let state = |state: anyqueue::MessageState| match serde_json::to_value(state) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    };
    let messages = found
        .iter()
        .map(|found| Message {
            about: About::of(&found.message),
            payload: if browse.payloads { Content::of(found.message.payload()) } else { Content::default() },
            state: state(found.state),
            delivery_count: found.delivery_count,
            age_ms: millis(found.age),
            due_in_ms: found.due_in.map(millis),
        })
        .collect();
    Ok(Json(Messages { messages, next }))
}

/// What a deletion is to take.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Purge {
    /// The name of the queue again, so that nothing is deleted by mistake.
    #[serde(default)]
    pub(crate) confirm: Option<String>,
}

impl Purge {
    pub(crate) fn check(&self, name: &str) -> Answer<()> {
        if self.confirm.as_deref() == Some(name) {
            return Ok(());
        }
        Err(Problem::invalid(format!(
            "this deletes everything that nobody holds: confirm it with ?confirm={name}"
        )))
    }
}

/// How many were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    /// How many.
    pub(crate) deleted: u64,
}

/// Deletes all messages of a queue that nobody holds.
#[utoipa::path(
    delete, path = "/v1/partitions/{partition}/messages", operation_id = "purge_messages", tag = "partitions",
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
    let deleted = app.queue.purge(partition(&name)?).await?;
    noted::detail("deleted", deleted);
    Ok(Json(Deleted { deleted }))
}
