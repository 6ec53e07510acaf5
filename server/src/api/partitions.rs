//! Queues: their counts, and pausing them.

use std::sync::Arc;

use anyqueue::PartitionId;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::{covers, covers_all};
use crate::app::App;
use crate::problem::Answer;
use crate::queues::{MAX_PAGE, Partitions, QueueInfo, of, page_of, page_seen};
use crate::wire::{Json, Path, Query, partition};

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageOf {
    /// The last queue of the previous page.
    #[serde(default)]
    after: Option<String>,
    /// How many, at most 100.
    #[serde(default)]
    limit: Option<usize>,
}

/// Lists the queues that have ever been used and that the token is for, with their counts.
#[utoipa::path(
    get, path = "/v1/partitions", operation_id = "list_partitions", tag = "partitions", params(PageOf),
    responses((status = 200, description = "A page of queues.", body = Partitions))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOf>,
) -> Answer<Json<Partitions>> {
    let after = page.after.as_deref().map(PartitionId::new).transpose()?;
    let limit = page.limit.unwrap_or(MAX_PAGE);
    let page = if covers_all() {
        page_of(&app.queue, after, limit).await
    } else {
        page_seen(&app.queue, after, limit, covers).await
    };
    page.map(Json)
}

/// Shows the counts of a queue.
#[utoipa::path(
    get, path = "/v1/partitions/{partition}", operation_id = "show_partition", tag = "partitions",
    params(("partition" = String, Path, description = "The queue.")),
    responses((status = 200, description = "Its counts. A queue that was never used is empty.", body = QueueInfo))
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

/// Pauses a queue: it delivers nothing until it is resumed. Pushing and settling continue.
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
    responses((status = 200, description = "It is resumed.", body = Paused))
)]
pub(crate) async fn resume(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Paused>> {
    app.writable()?;
    app.queue.resume(partition(&name)?).await?;
    Ok(Json(Paused { partition: name, paused: false }))
}
