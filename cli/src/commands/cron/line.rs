//! A schedule as JSON, and times as text.

use std::time::SystemTime;

use anyqueue_control::cron::{Gap, Missed, Overlap, Running, ScheduleInfo};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

pub(super) fn line(info: &ScheduleInfo) -> Value {
    let schedule = &info.schedule;
    let timetable = &schedule.timetable;
    let text = std::str::from_utf8(&schedule.payload).ok();
    let mut line = json!({
        "schedule": schedule.name,
        "spec": timetable.spec().as_str(),
        "zone": timetable.zone().name(),
        "gap": gap(timetable.gap()),
        "overlap_hour": overlap(timetable.overlap()),
        "queue": schedule.partition.name(),
        "headers": schedule.headers,
        "priority": schedule.priority,
        "missed": missed(schedule.missed),
        "running": running(schedule.running),
        "deadline_s": schedule.deadline.map(|deadline| deadline.as_secs_f64()),
        "paused": info.is_paused,
        "next_at": info.next_at.map(utc),
        "last": info.last.as_ref().map(|last| json!({
            "due_at": utc(last.due_at),
            "done_at": utc(last.done_at),
            "outcome": last.outcome.as_str(),
            "id": last.id.map(|id| id.to_string()),
            "error": last.error,
        })),
    });
    if let Some(object) = line.as_object_mut() {
        match text {
            Some(text) => object.insert("payload".to_owned(), json!(text)),
            None => object.insert("payload_base64".to_owned(), json!(BASE64.encode(&schedule.payload))),
        };
    }
    line
}

/// Formats a time, to the second; it may come from outside, and have any value.
pub(super) fn utc(time: SystemTime) -> String {
    const LAST: u64 = 253_402_300_799; // the year 9999
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().min(LAST);
    let time = SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(since));
    humantime::format_rfc3339_seconds(time.unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

fn gap(gap: Gap) -> &'static str {
    match gap {
        Gap::Shift => "shift",
        Gap::Skip => "skip",
    }
}

fn overlap(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::First => "first",
        Overlap::Last => "last",
    }
}

fn missed(missed: Missed) -> String {
    match missed {
        Missed::None => "none".to_owned(),
        Missed::All(most) => format!("all:{most}"),
        _ => "latest".to_owned(),
    }
}

fn running(running: Running) -> &'static str {
    match running {
        Running::Allow => "allow",
        Running::BufferOne => "buffer_one",
        Running::CancelOld => "cancel_old",
        _ => "skip",
    }
}
