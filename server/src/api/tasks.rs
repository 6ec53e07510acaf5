//! Tasks: their states, results and ends.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{MessageId, PartitionId, Task, TaskStream};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use crate::access;
use crate::app::App;
use crate::filter::{Filter, counted, first, further};
use crate::manage::{self, unknown};
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Content, Json, Path, Query, message_id, millis, partition, time_text};

/// The most tasks in a response that is not a stream.
const MAX_PAGE: usize = 1000;
const PAGE: usize = 100;
/// The most tasks that are counted.
const MAX_COUNT: u64 = 1_000_000;
/// The most tasks that one request deletes.
const MAX_DELETED: u64 = 10_000;
/// The longest wait for a result.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What is known of a task, whether it is alive, dead or has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskInfo {
    /// The id of its message.
    pub(crate) id: String,
    /// The queue.
    pub(crate) partition: String,
    /// Its state.
    pub(crate) state: &'static str,
    /// The kind of task.
    pub(crate) kind: Option<String>,
    /// The user's name for it.
    pub(crate) task_id: Option<String>,
    /// The session that it belongs to.
    pub(crate) session_id: Option<String>,
    /// W3C trace context of the pusher.
    pub(crate) trace: Option<String>,
    /// Who ran it last, where that is known.
    pub(crate) worker: Option<String>,
    /// Attempts so far.
    pub(crate) attempt: u32,
    /// Deliveries so far, where they are counted.
    pub(crate) delivery_count: Option<u32>,
    /// When it was pushed, as far as known.
    pub(crate) pushed_at: Option<String>,
    /// When it can be pulled, if it is delayed.
    pub(crate) due_at: Option<String>,
    /// When it ended or died.
    pub(crate) ended_at: Option<String>,
    /// Until when its end is kept.
    pub(crate) expires_at: Option<String>,
    /// How long it waited from the push to its last run, in milliseconds, once it has ended.
    pub(crate) waited_ms: Option<u64>,
    /// How long the last run took, in milliseconds, once it has ended.
    pub(crate) ran_ms: Option<u64>,
    /// Why it failed, or was ended.
    pub(crate) reason: Option<String>,
    /// Failed attempts.
    #[schema(value_type = Option<Object>)]
    pub(crate) errors: Option<Value>,
    /// How far its last run had come, in the words of its handler, once it has ended.
    pub(crate) progress: Option<String>,
    /// What its handler logged in the last run, once it has ended. Only for a single task, and with the right
    /// `payloads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
    /// What it returned: JSON if it is JSON, otherwise `payload` or `payload_base64`. Only for a single task,
    /// and with the right `payloads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) result: Option<Value>,
}

impl TaskInfo {
    pub(crate) fn of(task: &Task) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let errors = task.errors.as_deref();
        let result = task
            .result
            .as_ref()
            .filter(|_| access::sees_payloads())
            .map(|bytes| serde_json::from_slice(bytes).unwrap_or_else(|_| json!(Content::of(bytes))));
        Self {
            id: task.id.to_string(),
            partition: task.partition.name().to_owned(),
            state: task.state.as_str(),
            kind: text(&task.kind),
            task_id: text(&task.task_id),
            session_id: text(&task.session_id),
            trace: text(&task.trace),
            worker: text(&task.worker),
            attempt: task.attempt,
            delivery_count: task.delivery_count,
            pushed_at: task.pushed_at.map(time_text),
            due_at: task.due_at.map(time_text),
            ended_at: task.ended_at.map(time_text),
            expires_at: task.expires_at.map(time_text),
            waited_ms: task.waited.map(millis),
            ran_ms: task.ran.map(millis),
            reason: text(&task.reason),
            progress: text(&task.progress),
            log: text(&task.log).filter(|_| access::sees_payloads()),
            errors: errors.map(|text| serde_json::from_str(text).unwrap_or_else(|_| json!(text))),
            result,
        }
    }
}

/// Tasks that match.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskPage {
    /// Those that are alive, then the dead, then those that ended, the newest first.
    pub(crate) tasks: Vec<TaskInfo>,
    /// Whether there are more: raise the limit, narrow the filter, or ask for a stream.
    pub(crate) more: bool,
    /// Whether tasks that do not match had to be read, because no index covers the filter.
    pub(crate) scans: bool,
    /// Whether the time for one answer, 120 ms, was over before all tasks were examined: narrow the filter by
    /// state or time, continue with `look_before`, or ask for a stream, which has no time limit.
    pub(crate) unfinished: bool,
    /// The `before` with which the same filter continues where this answer stopped; null if all tasks were
    /// examined, or none yet of those that ended. Dead tasks that match come first again.
    pub(crate) look_before: Option<String>,
}

/// Lists tasks. With `Accept: application/x-ndjson`, lists all of them, one per line; the last line is
/// `{"end":true,"count":n}`. If that is missing, the list is incomplete.
#[utoipa::path(
    get, path = "/v1/tasks", operation_id = "list_tasks", tag = "tasks", params(Filter),
    responses((status = 200, description = "The tasks.", body = TaskPage))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(filter): Query<Filter>,
    headers: HeaderMap,
) -> Answer<Response> {
    let wanted = filter.build()?;
    let scans = wanted.scans();
    let found = app.queue.tasks(filter.partition.as_str(), wanted)?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("ndjson") {
        let body = Body::from_stream(lines(found, filter.limit.unwrap_or(u64::MAX)));
        return Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response());
    }
    let limit = usize::try_from(filter.limit.unwrap_or(PAGE as u64)).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
    let page = first(found, limit).await?;
    let tasks = page.tasks.iter().map(TaskInfo::of).collect();
    let (more, unfinished, look_before) = (page.more, page.unfinished, further(&page));
    Ok(Json(TaskPage { tasks, more, scans, unfinished, look_before }).into_response())
}

/// A line for each task, produced at the pace at which the client reads: memory holds one page.
fn lines(
    found: TaskStream,
    limit: u64,
) -> impl futures_util::Stream<Item = Result<Vec<u8>, anyqueue::Error>> {
    let line = |value: &Value| {
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        line
    };
    stream::unfold(Some((found, 0_u64)), move |state| async move {
        let (mut found, count) = state?;
        let next = if count < limit { found.next().await } else { None };
        Some(match next {
            Some(Ok(task)) => (Ok(line(&json!(TaskInfo::of(&task)))), Some((found, count + 1))),
            Some(Err(error)) => {
                let problem = json!({ "error": Problem::from(error) });
                (Ok(line(&problem)), None)
            }
            None => (Ok(line(&json!({ "end": true, "count": count }))), None),
        })
    })
}

/// How many tasks match.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Count {
    /// How many; a lower bound if not exact.
    value: u64,
    /// Whether all were counted; otherwise the count stopped at its cap or, if no index covers the filter,
    /// after five seconds.
    exact: bool,
}

/// Counts tasks, up to a cap; if no index covers the filter, for at most five seconds.
#[utoipa::path(
    get, path = "/v1/tasks/count", operation_id = "count_tasks", tag = "tasks", params(Filter),
    responses((status = 200, description = "How many.", body = Count))
)]
pub(crate) async fn count(State(app): State<Arc<App>>, Query(filter): Query<Filter>) -> Answer<Json<Count>> {
    let cap = filter.cap.unwrap_or(10_000).min(MAX_COUNT);
    let count = counted(&app.queue, &filter.partition, &filter.build()?, cap).await?;
    Ok(Json(Count { value: count.value, exact: count.exact }))
}

/// How many tasks were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedTasks {
    /// How many in all.
    deleted: u64,
    /// How many of them waited: their messages are gone, and they leave no end.
    live: u64,
    /// How many of them were dead letters.
    dead: u64,
    /// How many of them had ended.
    ended: u64,
    /// How many match and are left, for somebody holds them.
    held: u64,
    /// Whether it stopped at the limit, so that there may be more: ask again.
    more: bool,
}

/// Deletes the tasks that match, at most `limit` (1 to 10,000): those that wait, are dead, or have ended. What somebody holds is left, and counted.
#[utoipa::path(
    delete, path = "/v1/tasks", operation_id = "delete_tasks", tag = "tasks", params(Filter),
    responses((status = 200, description = "How many were deleted.", body = DeletedTasks))
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Query(filter): Query<Filter>,
) -> Answer<Json<DeletedTasks>> {
    app.writable()?;
    let Some(limit) = filter.limit else {
        return Err(Problem::invalid("give a limit: how many tasks to delete at most"));
    };
    if limit == 0 {
        return Err(Problem::invalid("give a limit of at least 1"));
    }
    if let Some(name) = filter.empty() {
        return Err(Problem::invalid(format!("{name} is empty: leave it out to delete tasks of any")));
    }
    filter.note();
    let (wanted, limit) = (filter.build()?, limit.min(MAX_DELETED));
    let Ok(_permit) = app.bulk.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many bulk actions are under way as this instance allows: try again"));
    };
    let done = app.queue.delete_tasks(filter.partition.as_str(), &wanted, limit).await?;
    let deleted = done.total();
    noted::detail("deleted", deleted);
    let anyqueue::DeletedTasks { live, dead, ended, held, more, .. } = done;
    Ok(Json(DeletedTasks { deleted, live, dead, ended, held, more }))
}

/// Which task.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Of {
    /// The queue.
    pub(crate) partition: String,
    /// For a result: how long to wait for the end, in milliseconds, at most 30,000.
    #[serde(default)]
    pub(crate) wait_ms: Option<u64>,
}

impl Of {
    fn place(&self, id: &str) -> Answer<(PartitionId, MessageId)> {
        Ok((partition(&self.partition)?, message_id(id)?))
    }
}

/// Shows a task, with its result if it has ended.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", operation_id = "show_task", tag = "tasks",
    params(("id" = String, Path, description = "The id of its message."), Of),
    responses((status = 200, description = "The task.", body = TaskInfo), (status = 404, description = "Nothing is known of it.", body = Problem))
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(of): Query<Of>,
) -> Answer<Json<TaskInfo>> {
    let (partition, message) = of.place(&id)?;
    let task = app.queue.task(partition, message).await?.ok_or_else(|| unknown(message))?;
    Ok(Json(TaskInfo::of(&task)))
}

/// Waits for the end of a task. Returns 200 with its result once it has ended or is dead, and 202 with its
/// current state when the wait is over.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/result", operation_id = "wait_for_result", tag = "tasks",
    params(("id" = String, Path, description = "The id of its message."), Of),
    responses(
        (status = 200, description = "It has ended.", body = TaskInfo),
        (status = 202, description = "It has not.", body = TaskInfo),
        (status = 404, description = "Nothing is known of it.", body = Problem)
    )
)]
pub(crate) async fn result(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(of): Query<Of>,
) -> Answer<Response> {
    let (partition, message) = of.place(&id)?;
    let wait = Duration::from_millis(of.wait_ms.unwrap_or(0)).min(MAX_WAIT);
    let Ok(_poll) = app.polls.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many requests wait as this instance allows: try again, or elsewhere"));
    };
    let found = tokio::select! {
        biased;
        found = app.queue.wait_for(partition, message, wait) => found?,
        () = app.ending.cancelled() => return Err(Problem::busy("the service is shutting down: try again")),
    };
    let task = found.ok_or_else(|| unknown(message))?;
    let status = if task.state.ended().is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(TaskInfo::of(&task))).into_response())
}

/// The outcome of a request about one task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// What was done.
    outcome: &'static str,
}

/// Cancels a task: if it waits, it is removed; if it runs, its worker is asked to stop.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/cancel", operation_id = "cancel_task", tag = "tasks",
    params(("id" = String, Path, description = "The id of its message."), Of),
    responses(
        (status = 200, description = "`removed`, or `requested` from the worker that runs it.", body = Done),
        (status = 404, description = "There is no such message.", body = Problem)
    )
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(of): Query<Of>,
) -> Answer<Json<Done>> {
    app.writable()?;
    let (partition, message) = of.place(&id)?;
    Ok(Json(Done { outcome: manage::cancel(&app.queue, &partition, message).await? }))
}

/// Retries a task: if it is dead, it is put back; if it is delayed, it is due now.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/retry", operation_id = "retry_task", tag = "tasks",
    params(("id" = String, Path, description = "The id of its message."), Of),
    responses(
        (status = 200, description = "`put_back` or `due_now`.", body = Done),
        (status = 404, description = "Nothing is known of it.", body = Problem),
        (status = 409, description = "It cannot be retried in its state.", body = Problem)
    )
)]
pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(of): Query<Of>,
) -> Answer<Json<Done>> {
    app.writable()?;
    let (partition, message) = of.place(&id)?;
    Ok(Json(Done { outcome: manage::retry(&app.queue, &partition, message).await? }))
}

/// Deletes a task's message or dead letter, unless somebody holds it.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", operation_id = "delete_task", tag = "tasks",
    params(("id" = String, Path, description = "The id of its message."), Of),
    responses(
        (status = 200, description = "It is deleted.", body = Done),
        (status = 404, description = "There is no such message.", body = Problem),
        (status = 409, description = "Somebody holds it.", body = Problem)
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(of): Query<Of>,
) -> Answer<Json<Done>> {
    app.writable()?;
    let (partition, message) = of.place(&id)?;
    Ok(Json(Done { outcome: manage::delete(&app.queue, &partition, message).await? }))
}
