//! What a worker reports about a delivery, as a status and a report.

use std::time::Duration;

use anyqueue::{EndState, MessageData, QueueMessageStatus, TaskReport};
use anyqueue_worker::{FailureKind, TaskError, failed_attempt};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
use crate::held::Held;
use crate::problem::{Answer, Problem};

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// Done: it is removed.
    Processed,
    /// The attempt failed: it is retried after a delay that grows, as often as its retries allow; then it becomes a dead letter.
    Failed,
    /// It took too long: as `failed`.
    TimedOut,
    /// It must not be tried again: it becomes a dead letter.
    Poisonous,
    /// Later, after `delay_ms`; no attempt is counted.
    Postponed,
    /// It is not wanted any more: it is removed.
    Cancelled,
    /// It goes back, untouched; no attempt is counted.
    Waiting,
}

/// A settlement.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settle {
    /// What a pull returned.
    pub(crate) delivery: String,
    /// How it ends.
    pub(crate) status: Fate,
    /// What the task returned, as JSON; kept with its end if there is a ledger.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) result: Option<Value>,
    /// Why it failed, for people to read.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// When to try again, in milliseconds from now: for `postponed`, and for `failed` in place of the policy's delay.
    #[serde(default)]
    pub(crate) delay_ms: Option<u64>,
    /// Its log, as lines of text, at most 4 KiB; kept with its end if there is a ledger.
    #[serde(default)]
    pub(crate) log: Option<String>,
    /// How far it came, in words, at most 1 KiB; kept with its end if there is a ledger.
    #[serde(default)]
    pub(crate) progress: Option<String>,
    /// The worker that ran it.
    #[serde(default)]
    pub(crate) worker: Option<String>,
}

impl Settle {
    /// Returns the status to settle the delivery with, and the report.
    pub(crate) async fn decide(self, app: &App, held: &Held) -> Answer<(QueueMessageStatus, TaskReport)> {
        let mut report = TaskReport::new();
        if let Some(worker) = &self.worker {
            report = report.with_worker(worker.as_str());
        }
        if let Some(log) = &self.log {
            report = report.with_log(log.as_str());
        }
        if let Some(progress) = &self.progress {
            report = report.with_progress(progress.as_str());
        }
        if let Some(result) = &self.result {
            let bytes = serde_json::to_vec(result).map_err(|error| Problem::invalid(error.to_string()))?;
            report = report.with_result(bytes);
        }
        let error = self.error.unwrap_or_default();
        let delay = self.delay_ms.map(Duration::from_millis);
        let status = match self.status {
            Fate::Processed => QueueMessageStatus::Processed,
            Fate::Cancelled => QueueMessageStatus::Cancelled,
            Fate::Waiting => QueueMessageStatus::Waiting,
            Fate::Postponed => QueueMessageStatus::postponed(delay.unwrap_or_default()),
            Fate::Poisonous => {
                report = report.with_reason(error.as_str());
                QueueMessageStatus::poisonous(error)
            }
            Fate::Failed | Fate::TimedOut => {
                let (kind, state) = if self.status == Fate::TimedOut {
                    (FailureKind::TimedOut, EndState::TimedOut)
                } else {
                    (FailureKind::Failed, EndState::Failed)
                };
                let error = match delay {
                    Some(delay) => TaskError::after(delay, error),
                    None => TaskError::retry(error),
                };
                let (status, attempt) = failed(app, held, kind, &error).await;
                report = report.with_state(state).with_attempt(attempt);
                status
            }
        };
        Ok((status, report))
    }
}

/// Returns the status for a failed attempt, and the attempt's number.
pub(crate) async fn failed(
    app: &App,
    held: &Held,
    kind: FailureKind,
    error: &TaskError,
) -> (QueueMessageStatus, u32) {
    let of =
        |message: &MessageData, count| failed_attempt(&app.queue, message, count, &app.retry, kind, error);
    match held {
        Held::Detached(delivery) => of(delivery.message_without_payload(), delivery.delivery_count()),
        Held::Pinned(pin) => match app.pins.get(*pin) {
            Some(pinned) => {
                let delivery = pinned.lock().await;
                of(delivery.message(), delivery.delivery_count())
            }
            // The delivery is lost, and nothing will be changed.
            None => (QueueMessageStatus::Failed, 1),
        },
    }
}
