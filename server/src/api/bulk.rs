//! One action on many tasks.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;

use crate::app::App;
use crate::bulk::{Action, Bulk, BulkLine};
use crate::filter::Filter;
use crate::noted::{self, Notes};
use crate::problem::{Answer, Problem};
use crate::wire::{Json, partition};

/// The most tasks that one request handles.
const MAX_BULK: u64 = 100_000;

/// An action, and the tasks that it is for: those that meet all conditions.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkRequest {
    /// What to do with each task.
    action: Action,
    /// The most tasks to handle, up to 100,000.
    limit: u64,
    /// Whether to change nothing and only list the tasks.
    #[serde(default)]
    dry_run: bool,
    /// The queue.
    partition: String,
    /// Only tasks in these states, separated by commas; by default in all states that the action applies to.
    #[serde(default)]
    state: Option<String>,
    /// Only tasks that ended at this time or later: RFC 3339.
    #[serde(default)]
    since: Option<String>,
    /// Only tasks that ended before this time.
    #[serde(default)]
    before: Option<String>,
    /// Only tasks of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// Only tasks of this session.
    #[serde(default)]
    session: Option<String>,
    /// Only tasks whose task id begins with this.
    #[serde(default)]
    task_id_prefix: Option<String>,
    /// Only tasks with this text in their reason or errors.
    #[serde(default)]
    error: Option<String>,
    /// Only tasks with at least this many attempts.
    #[serde(default)]
    min_attempts: Option<u32>,
}

impl BulkRequest {
    fn into_bulk(self, app: &App) -> Answer<Bulk> {
        if self.limit == 0 || self.limit > MAX_BULK {
            return Err(Problem::invalid(format!("a limit of {}: give 1 to {MAX_BULK}", self.limit)));
        }
        let filter = Filter {
            partition: self.partition,
            state: self.state,
            since: self.since,
            before: self.before,
            kind: self.kind,
            session: self.session,
            task_id_prefix: self.task_id_prefix,
            error: self.error,
            min_attempts: self.min_attempts,
            limit: Some(self.limit),
            ..Filter::default()
        };
        filter.note();
        let partition = partition(&filter.partition)?;
        Bulk::new(app.queue.clone(), partition, filter.build()?, self.action, self.limit, self.dry_run)
    }
}

/// Cancels, retries or deletes the tasks that match, as fast as the answer is read. The answer has a line for
/// each, and ends with `{"end":true,"count":n}`. If that line is missing, not all tasks were reached: send
/// the request again. No task is handled twice, and a task that no longer matches when its turn comes is left
/// alone.
#[utoipa::path(
    post, path = "/v1/tasks/bulk", operation_id = "bulk_tasks", tag = "tasks",
    request_body = BulkRequest,
    responses(
        (status = 200, description = "A line for each task.", body = BulkLine, content_type = "application/x-ndjson"),
        (status = 400, description = "What is wrong with it.", body = Problem)
    )
)]
pub(crate) async fn bulk(State(app): State<Arc<App>>, Json(request): Json<BulkRequest>) -> Answer<Response> {
    if !request.dry_run {
        app.writable()?;
    }
    noted::detail("action", request.action.as_str());
    if request.dry_run {
        noted::detail("dry run", "nothing was changed");
    }
    let bulk = request.into_bulk(&app)?;
    let Ok(permit) = app.bulk.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many bulk actions are under way as this instance allows: try again"));
    };
    let body = Body::from_stream(lines(Acting { app, bulk, notes: noted::current(), _permit: permit }));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Writing to memory does not fail, and these have no maps with keys other than strings.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A bulk action that is under way.
struct Acting {
    app: Arc<App>,
    bulk: Bulk,
    notes: Notes,
    /// Held until the end.
    _permit: OwnedSemaphorePermit,
}

fn lines(acting: Acting) -> impl Stream<Item = Result<Vec<u8>, Infallible>> {
    let lines = stream::unfold(Some(acting), |acting| async move {
        let mut acting = acting?;
        if acting.app.ending.is_cancelled() {
            let problem = Problem::busy("the service is shutting down: try again");
            return Some((line(&json!({ "error": problem })), None));
        }
        let next = acting.bulk.next().await;
        // Even if the client goes away before the next one.
        acting.notes.detail("tasks", acting.bulk.count());
        Some(match next {
            Ok(Some(done)) => (line(&done), Some(acting)),
            Ok(None) => (line(&json!({ "end": true, "count": acting.bulk.count() })), None),
            Err(problem) => (line(&json!({ "error": problem })), None),
        })
    });
    lines.map(Ok)
}
