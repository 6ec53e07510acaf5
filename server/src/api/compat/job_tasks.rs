//! The tasks of workers that know nothing but ids: dequeue, set an outcome, enqueue.

use std::sync::Arc;

use anyqueue::{Bytes, EndState, MessageData, PushOutcome, QueueMessageStatus, SettleOutcome, TaskReport};
use anyqueue_worker::{FailureKind, TaskError};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::job_wire::{Kind, Which, lease};
use super::job_worker::{JobWorker, expired};
use super::oldest::{oldest, served};
use crate::app::App;
use crate::body::{HandOut, ReleaseOnDrop};
use crate::fate::failed;
use crate::problem::{Answer, Problem};
use crate::trace;
use crate::wire::{Content, Json, message_id, partition};

/// A task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Job {
    /// Its id.
    #[serde(rename = "Id")]
    id: String,
    /// Its kind: the queue that it comes from.
    #[serde(rename = "JobKind")]
    kind: String,
    /// What it is about.
    #[serde(rename = "JobEntityId")]
    entity_id: Option<String>,
    /// Its content, if it is text.
    #[serde(rename = "JobData")]
    data: Option<String>,
    /// Its content in base64, if it is not text.
    #[serde(rename = "JobDataBase64", skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// Returns the oldest task of the worker's kinds, or `null` if there is none. The task is the worker's until
/// its outcome is set, as long as the worker pings.
#[utoipa::path(
    post, path = "/v1/jobs/Dequeue", operation_id = "dequeue_job", tag = "compat",
    request_body = Which,
    responses(
        (status = 200, description = "The task, or `null`.", body = Option<Job>),
        (status = 410, description = "The worker has to register again.", body = Problem)
    )
)]
pub(crate) async fn dequeue(State(app): State<Arc<App>>, Json(which): Json<Which>) -> Answer<Response> {
    app.writable()?;
    let (worker, registry) = (JobWorker::of(&which.id)?, app.registry()?);
    let (info, kept) = registry.admitted(&worker.name, &worker.session).await?.ok_or_else(expired)?;
    // A worker that asks for more than it has room for has not received the last ones.
    let beyond: Vec<_> = kept.iter().skip(info.slots.saturating_sub(1)).collect();
    for (id, sealed) in &beyond {
        if let Ok(held) = app.open(sealed) {
            app.release(vec![held]).await;
        }
        registry.keep(&worker.name, &worker.session, |kept| kept.remove(*id, sealed)).await?;
    }
    if !worker.takes_on(&info) {
        return Ok(Json(None::<Job>).into_response());
    }
    let kinds = served(&app, &info.partitions).await?;
    let Some(delivery) = oldest(&app.queue, &kinds, lease(&app)).await? else {
        return Ok(Json(None::<Job>).into_response());
    };
    let message = delivery.message();
    let content = Content::of(delivery.payload());
    let job = Job {
        id: delivery.id().to_string(),
        kind: delivery.partition().name().to_owned(),
        entity_id: message.task_id().map(str::to_owned),
        data: content.payload,
        data_base64: content.payload_base64,
    };
    let id = delivery.id();
    let held = app.hand_out(delivery);
    let sealed = app.seal(&held);
    let release = ReleaseOnDrop::new(app.clone(), vec![held]);
    // Kept before it is sent: a task that nobody can name would be lost until its lease ends.
    let is_kept = registry.keep(&worker.name, &worker.session, |kept| kept.put(id, sealed.clone())).await?;
    is_kept.ok_or_else(expired)?;
    let body = serde_json::to_vec(&job).map_err(|error| Problem::invalid(error.to_string()))?;
    let body = Body::new(HandOut::new(Bytes::from(body), release, Box::new(drop)));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// How a task ended.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
pub(crate) enum Outcome {
    /// It is done.
    Succeeded,
    /// It failed: it is tried again, as often as its retries allow.
    Failed,
    /// It took too long: it is not tried again.
    TimedOut,
}

/// The outcome of a task.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct SetOutcome {
    /// The task.
    #[serde(alias = "id", alias = "TaskId", alias = "taskId")]
    id: String,
    /// How it ended.
    #[serde(alias = "outcome")]
    outcome: Outcome,
    /// The worker.
    #[serde(alias = "workerId")]
    worker_id: String,
}

/// Ends a task. Returns `false` if the task is not, or is no longer, this worker's; so a repeated call
/// returns `false` too.
#[utoipa::path(
    post, path = "/v1/jobs/SetOutcome", operation_id = "set_job_outcome", tag = "compat",
    request_body = SetOutcome,
    responses(
        (status = 200, description = "Whether this ended the task.", body = bool),
        (status = 410, description = "The worker has to register again.", body = Problem)
    )
)]
pub(crate) async fn set_outcome(
    State(app): State<Arc<App>>,
    Json(request): Json<SetOutcome>,
) -> Answer<Json<bool>> {
    app.writable()?;
    let (worker, id) = (JobWorker::of(&request.worker_id)?, message_id(&request.id)?);
    let registry = app.registry()?;
    let (_, kept) = registry.admitted(&worker.name, &worker.session).await?.ok_or_else(expired)?;
    let Some(sealed) = kept.get(id) else { return Ok(Json(false)) };
    let held = app.open(sealed)?;
    let report = TaskReport::new().with_worker(&*worker.name);
    let (status, report) = match request.outcome {
        Outcome::Succeeded => (QueueMessageStatus::Processed, report),
        Outcome::Failed => {
            let error = TaskError::retry("its worker said no more than that");
            let (status, attempt) = failed(&app, &held, FailureKind::Failed, &error).await;
            (status, report.with_state(EndState::Failed).with_attempt(attempt))
        }
        Outcome::TimedOut => {
            let error = TaskError::permanent("its worker said no more than that");
            let (status, attempt) = failed(&app, &held, FailureKind::TimedOut, &error).await;
            (status, report.with_state(EndState::TimedOut).with_attempt(attempt))
        }
    };
    let settled = app.settle(&held, status, report).await?;
    // The task has ended. If this fails, the next ping notices.
    let _ = registry.keep(&worker.name, &worker.session, |kept| kept.remove(id, sealed)).await;
    Ok(Json(settled == SettleOutcome::Settled))
}

/// A job to be done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Enqueue {
    /// Its kind: the queue that it goes to.
    #[serde(rename = "JobKind", alias = "jobKind")]
    kind: Kind,
    /// What it is about: the name of the task.
    #[serde(default, rename = "JobEntityId", alias = "jobEntityId")]
    entity_id: Option<String>,
    /// Its content.
    #[serde(default, rename = "JobData", alias = "jobData")]
    data: Option<String>,
}

/// Pushes a job, and returns the id of its task.
#[utoipa::path(
    post, path = "/v1/jobs/Enqueue", operation_id = "enqueue_job", tag = "compat",
    params(("traceparent" = Option<String>, Header, description = "W3C trace context.")),
    request_body = Enqueue,
    responses((status = 200, description = "The id of its task, a UUID.", body = String))
)]
pub(crate) async fn enqueue(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Json(request): Json<Enqueue>,
) -> Answer<Json<String>> {
    app.writable()?;
    let kind = request.kind.into_name();
    let partition = partition(&kind)?;
    let message = MessageData::new(request.data.unwrap_or_default());
    let mut message =
        trace::given(message.with_header(anyqueue::header::TASK_KIND, kind), trace::of(&headers));
    if let Some(entity) = request.entity_id {
        message = message.with_task_id(entity);
    }
    let id = match app.queue.push(partition, message).await? {
        PushOutcome::Stored(id) | PushOutcome::Replaced(id) | PushOutcome::Duplicate(Some(id)) => id,
        PushOutcome::Duplicate(None) => return Err(Problem::busy("it was not stored: try again")),
    };
    Ok(Json(id.to_string()))
}
