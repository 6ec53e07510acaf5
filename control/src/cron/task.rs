//! The message that a schedule pushes.

use std::time::SystemTime;

use anyqueue::{MessageData, MessageId, OnDuplicate};
use jiff::Timestamp;

use super::record::SCHEDULES;
use super::schedule::{Running, Schedule};

/// The header with the name of the schedule that a task belongs to.
pub const NAME_HEADER: &str = "cron-name";
/// The header with the time at which a task was due, as RFC 3339 in UTC.
pub const AT_HEADER: &str = "cron-at";

/// The task for a time. `now` is the server's time.
pub(super) fn task(schedule: &Schedule, id: MessageId, at: SystemTime, now: SystemTime) -> MessageData {
    let own = format!("{SCHEDULES}{}", schedule.name);
    let mut message = MessageData::with_id(id, schedule.payload.clone())
        .with_headers(schedule.headers.clone())
        .with_header(NAME_HEADER, schedule.name.as_str())
        .with_header(AT_HEADER, rfc3339(at))
        .with_task_id(own.as_str())
        .with_priority(schedule.priority);
    if let Some(deadline) = schedule.deadline {
        let late = now.duration_since(at).unwrap_or_default();
        message = message.with_time_to_live(deadline.saturating_sub(late));
    }
    match schedule.running {
        Running::Skip => message.with_dedup_key(own),
        Running::BufferOne => message.with_dedup_key(own).with_on_duplicate(OnDuplicate::Behind),
        // The task that is cancelled may keep its key until it has stopped.
        Running::Allow | Running::CancelOld => message,
    }
}

fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or_default().to_string()
}
