//! A task in the form in which the management of a queue of notifications shows it.

use anyqueue::{MessageData, Task, TaskState};
use anyqueue_worker::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::tenant::Tenant;
use crate::app::App;
use crate::wire::Content;

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// It waits, runs, or will be tried again.
    Pending,
    /// It is done.
    Succeeded,
    /// It failed for good, or timed out.
    Failed,
    /// It ended otherwise: it was cancelled.
    #[serde(skip_deserializing)]
    Unknown,
}

impl Status {
    pub(crate) fn of(state: TaskState) -> Self {
        match state {
            TaskState::Succeeded => Self::Succeeded,
            TaskState::Failed | TaskState::TimedOut => Self::Failed,
            TaskState::Cancelled => Self::Unknown,
            _ => Self::Pending,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// How a task runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Runtime {
    /// Its name, or the id of its message if it has none.
    task_id: String,
    /// Its kind; empty if it has none.
    task_type: String,
    /// Its status.
    status: Status,
    /// How often it will be tried again, while that is known.
    retries_left: Option<u32>,
    /// Why it failed before, in the order of the attempts.
    errors: Vec<String>,
}

impl Runtime {
    pub(crate) fn of(app: &App, task: &Task) -> Self {
        let status = Status::of(task.state);
        let retries = |message: &MessageData| {
            let most = message.options().max_retries.unwrap_or_else(|| app.retry.retries());
            if status == Status::Pending { most.saturating_sub(task.attempt) } else { 0 }
        };
        let before: Vec<Failure> =
            task.errors.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let last = task.reason.as_deref().filter(|_| status == Status::Failed).map(str::to_owned);
        Self {
            task_id: task.task_id.as_deref().map_or_else(|| task.id.to_string(), str::to_owned),
            task_type: task.kind.as_deref().unwrap_or_default().to_owned(),
            status,
            retries_left: task.message.as_ref().map(retries),
            errors: before.into_iter().map(|failure| failure.error).chain(last).collect(),
        }
    }
}

/// What a task should do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Input {
    /// The tenant.
    fiware_service: Option<String>,
    /// What it is for within the tenant.
    fiware_service_path: Option<String>,
    /// What it belongs to.
    fiware_correlator: Option<String>,
    /// Its content: JSON if it is JSON, otherwise `payload` or `payload_base64`. Null once the task has
    /// ended, and without the right `payloads`.
    #[schema(value_type = Option<Object>)]
    payload: Option<Value>,
}

/// A task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Notification {
    /// How it runs.
    runtime: Runtime,
    /// What it should do.
    input: Input,
}

impl Notification {
    pub(crate) fn of(app: &App, task: &Task, sees_payloads: bool) -> Self {
        let content = task.message.as_ref().filter(|_| sees_payloads).map(|message| {
            let bytes = message.payload();
            serde_json::from_slice(bytes).unwrap_or_else(|_| json!(Content::of(bytes)))
        });
        let tenant = task.task_id.as_deref().and_then(Tenant::of_task);
        let part = |of: fn(Tenant) -> String| tenant.clone().map(of);
        let input = Input {
            fiware_service: part(|tenant| tenant.service),
            fiware_service_path: part(|tenant| tenant.service_path),
            fiware_correlator: part(|tenant| tenant.correlator),
            payload: content,
        };
        Self { runtime: Runtime::of(app, task), input }
    }
}
