//! A task as a JSON object on one line.

use std::time::{Duration, SystemTime};

use anyqueue::Task;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::Value;

use crate::line::Line;

/// What is known of a task. Fields that are unknown, or do not apply, are left out.
#[derive(Serialize)]
pub(super) struct TaskLine {
    queue: String,
    id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pushed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The failed attempts as the worker recorded them; text, if that is no JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Value>,
    /// How far the handler said that it had come.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    /// The log that the handler wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// The result, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    /// The result in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    /// The message in the form that `peek` writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Line>,
}

impl TaskLine {
    /// Describes a task, without its message.
    pub(super) fn of(task: &Task) -> Self {
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        let bytes = task.result.as_deref();
        let result = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
        Self {
            queue: task.partition.name().to_owned(),
            id: task.id.to_string(),
            state: task.state.as_str(),
            kind: text(&task.kind),
            task_id: text(&task.task_id),
            session_id: text(&task.session_id),
            trace: text(&task.trace),
            worker: text(&task.worker),
            attempt: task.attempt,
            deliveries: task.delivery_count,
            pushed_at: task.pushed_at.map(moment),
            due_at: task.due_at.map(moment),
            ended_at: task.ended_at.map(moment),
            expires_at: task.expires_at.map(moment),
            waited_ms: task.waited.map(millis),
            ran_ms: task.ran.map(millis),
            reason: text(&task.reason),
            errors: task.errors.as_deref().map(|errors| {
                serde_json::from_str(errors).unwrap_or_else(|_| Value::String(errors.to_owned()))
            }),
            progress: text(&task.progress),
            log: text(&task.log),
            result_base64: bytes.filter(|_| result.is_none()).map(|bytes| BASE64.encode(bytes)),
            result,
            message: None,
        }
    }

    /// Adds the task's message, if it still exists.
    pub(super) fn with_message(mut self, task: &Task) -> Self {
        self.message = task.message.as_ref().map(Line::of);
        self
    }
}

/// Formats a time. One that no calendar contains is shown as the last possible time.
pub(super) fn moment(time: SystemTime) -> String {
    // The year 9999: humantime panics beyond it.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST))
        .to_string()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        let after = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(moment(after(1)), "1970-01-01T00:00:01.000Z");
        assert_eq!(moment(after(1 << 40)), "9999-12-31T23:59:59.000Z");
        assert_eq!(moment(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
