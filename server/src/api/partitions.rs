//! Queues: how full they are, and pausing them.

use std::sync::Arc;

use anyqueue::{Page, PartitionId, Queue};
use axum::extract::State;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::problem::Answer;
use crate::wire::{Json, Path, Query, partition};

/// The most queues on one page.
const MAX_PAGE: usize = 100;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageOf {
    /// The last of the page before.
    #[serde(default)]
    after: Option<String>,
    /// How many, at most 100.
    #[serde(default)]
    limit: Option<usize>,
}

/// A queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueInfo {
    /// Its name.
    pub(crate) partition: String,
    /// Messages that can be pulled; nothing where the backend does not know.
    pub(crate) ready: Option<u64>,
    /// Messages that wait for their time.
    pub(crate) delayed: Option<u64>,
    /// Messages that somebody holds.
    pub(crate) leased: Option<u64>,
    /// Messages that are disabled.
    pub(crate) disabled: Option<u64>,
    /// Dead letters.
    pub(crate) dead: Option<u64>,
    /// Whether it delivers nothing until it is resumed; nothing where it cannot be paused.
    pub(crate) paused: Option<bool>,
}

/// A page of queues.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Partitions {
    /// The queues, in the order of their names.
    pub(crate) partitions: Vec<QueueInfo>,
    /// Where to go on; nothing on the last page.
    pub(crate) next: Option<String>,
}

/// Lists queues that have ever been used, with their counts.
#[utoipa::path(
    get, path = "/v1/partitions", operation_id = "list_partitions", tag = "partitions", params(PageOf),
    responses((status = 200, description = "A page of queues.", body = Partitions))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOf>,
) -> Answer<Json<Partitions>> {
    let after = page.after.as_deref().map(partition).transpose()?;
    page_of(&app.queue, after, page.limit.unwrap_or(MAX_PAGE)).await.map(Json)
}

/// The queues after this one, with their counts.
pub(crate) async fn page_of(queue: &Queue, after: Option<PartitionId>, limit: usize) -> Answer<Partitions> {
    let limit = limit.clamp(1, MAX_PAGE);
    let names = queue.partitions(Page::of(limit).after(after)).await?;
    let next = names.last().filter(|_| names.len() == limit).map(|name| name.name().to_owned());
    let all = join_all(names.iter().map(|name| of(queue, name))).await;
    Ok(Partitions { partitions: all.into_iter().collect::<Answer<_>>()?, next })
}

/// How full a queue is.
pub(crate) async fn of(queue: &Queue, name: &PartitionId) -> Answer<QueueInfo> {
    let counts = queue.counts(name).await?;
    let paused = if queue.capabilities().pause { Some(queue.is_paused(name).await?) } else { None };
    Ok(QueueInfo {
        partition: name.name().to_owned(),
        ready: counts.ready,
        delayed: counts.delayed,
        leased: counts.leased,
        disabled: counts.disabled,
        dead: counts.dead,
        paused,
    })
}

/// How full a queue is.
#[utoipa::path(
    get, path = "/v1/partitions/{partition}", operation_id = "show_partition", tag = "partitions",
    params(("partition" = String, Path, description = "The queue.")),
    responses((status = 200, description = "Its counts. One that was never used is empty.", body = QueueInfo))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<QueueInfo>> {
    of(&app.queue, &partition(&name)?).await.map(Json)
}

/// Whether a queue delivers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Paused {
    /// Its name.
    partition: String,
    /// Whether it delivers nothing until it is resumed.
    paused: bool,
}

/// Pauses a queue: it delivers nothing to anybody until it is resumed. Pushing and settling go on.
#[utoipa::path(
    post, path = "/v1/partitions/{partition}/pause", operation_id = "pause_partition", tag = "partitions",
    params(("partition" = String, Path, description = "The queue.")),
    responses((status = 200, description = "It is paused.", body = Paused))
)]
pub(crate) async fn pause(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Paused>> {
    app.writable()?;
    app.queue.pause(partition(&name)?).await?;
    Ok(Json(Paused { partition: name, paused: true }))
}

/// Resumes a queue that is paused.
#[utoipa::path(
    post, path = "/v1/partitions/{partition}/resume", operation_id = "resume_partition", tag = "partitions",
    params(("partition" = String, Path, description = "The queue.")),
    responses((status = 200, description = "It delivers.", body = Paused))
)]
pub(crate) async fn resume(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Paused>> {
    app.writable()?;
    app.queue.resume(partition(&name)?).await?;
    Ok(Json(Paused { partition: name, paused: false }))
}
