//! A schedule as its entry in the control store describes it.

use std::fmt;
use std::time::{Duration, SystemTime};

use anyqueue::control::{Entry, Key};
use anyqueue::{Bytes, Error, ErrorKind, Headers, MessageId, PartitionId, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::schedule::{Missed, Running, Schedule, check_name};
use super::tick::{millis, time};
use super::timetable::{Gap, Overlap, Timetable};
use crate::entry::{FORMAT, decode};

pub(super) const SCHEDULES: &str = "cron/";

/// What happened at a time of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunOutcome {
    /// The task was pushed; for several missed times, the tasks of those that had to be run.
    Pushed,
    /// The task of an earlier time was still alive, so this time was skipped.
    Running,
    /// It was too late, so the task was not pushed.
    Missed,
    /// The schedule was paused.
    Paused,
    /// The backend refused the task.
    Refused,
}

impl RunOutcome {
    /// The name, in `snake_case`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Running => "running",
            Self::Missed => "missed",
            Self::Paused => "paused",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The last time of a schedule that has been dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// When the time was due: the latest, if there were several.
    pub due_at: SystemTime,
    /// When it was dealt with, by the server's clock.
    pub done_at: SystemTime,
    /// What happened.
    pub outcome: RunOutcome,
    /// The message that was pushed.
    pub id: Option<MessageId>,
    /// Why the task was refused.
    pub error: Option<String>,
}

/// A schedule and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The definition of the schedule.
    pub schedule: Schedule,
    /// Whether the schedule is paused, so that its times pass without a task.
    pub is_paused: bool,
    /// When it is due next; `None` if never again. In the past if no scheduler runs.
    pub next_at: Option<SystemTime>,
    /// What happened at its last time.
    pub last: Option<LastRun>,
    /// Differs for each content that was [put](super::Scheduler::put), and changes whenever the schedule
    /// starts over, such as when it is resumed.
    pub revision: String,
}

/// What the entry of a schedule holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    /// A new random value for each content.
    pub(super) revision: String,
    spec: String,
    zone: String,
    #[serde(default)]
    gap: Gap,
    #[serde(default)]
    overlap_hour: Overlap,
    partition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(default)]
    priority: u8,
    #[serde(default)]
    missed: Missed,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(default)]
    running: Running,
    #[serde(default)]
    pub(super) paused: bool,
    /// Whether its first tick was pushed. If not, or if that could not be noted, any scheduler pushes one.
    #[serde(default)]
    pub(super) started: bool,
    /// When it is due next. Noted after the tick, so it can lag behind, but never runs ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_ms: Option<u64>,
    /// The server's time when this was noted.
    pub(super) noted_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<Run>,
    /// The message that was pushed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pushed: Option<String>,
}

/// What is recorded about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) due_ms: u64,
    pub(super) done_ms: u64,
    pub(super) outcome: RunOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Returns a payload that can be kept as text: it may not become much longer when it is escaped.
fn readable(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload).ok()?;
    let escaped = text.chars().filter(|c| c.is_control()).count();
    (escaped <= text.len() / 8).then_some(text)
}

/// The entry of a schedule.
pub(super) fn key_of(name: &str) -> Result<Key> {
    check_name(name)?;
    Key::new(format!("{SCHEDULES}{name}"))
}

pub(super) fn name_of(key: &Key) -> &str {
    key.as_str().strip_prefix(SCHEDULES).unwrap_or_else(|| key.as_str())
}

impl Record {
    /// A new record, which has not started.
    pub(super) fn new(schedule: &Schedule, now: SystemTime) -> Self {
        let text = readable(&schedule.payload).map(str::to_owned);
        let timetable = &schedule.timetable;
        let deadline_ms = |deadline: Duration| u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        Self {
            format: FORMAT,
            revision: uuid::Uuid::new_v4().to_string(),
            spec: timetable.spec().to_string(),
            zone: timetable.zone().to_string(),
            gap: timetable.gap(),
            overlap_hour: timetable.overlap(),
            partition: schedule.partition.name().to_owned(),
            payload_base64: text.is_none().then(|| BASE64.encode(&schedule.payload)),
            payload: text,
            headers: schedule.headers.clone(),
            priority: schedule.priority,
            missed: schedule.missed,
            deadline_ms: schedule.deadline.map(deadline_ms),
            running: schedule.running,
            paused: false,
            started: false,
            next_ms: None,
            noted_ms: millis(now),
            last: None,
            pushed: None,
        }
    }

    /// The record with a new revision, which has not started.
    pub(super) fn renewed(&self, now: SystemTime) -> Self {
        let revision = uuid::Uuid::new_v4().to_string();
        Self { revision, started: false, next_ms: None, noted_ms: millis(now), ..self.clone() }
    }

    /// # Errors
    /// As [`decode`].
    pub(super) fn of(entry: &Entry) -> Result<Self> {
        decode(entry)
    }

    /// The definition of the schedule, under this name.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if this machine does not know the zone, or the content was
    /// written by hand and is wrong.
    pub(super) fn schedule(&self, name: &str) -> Result<Schedule> {
        let of_entry =
            |error: Error| Error::new(error.kind(), format!("the schedule {name}: {}", error.message()));
        let timetable = || {
            let timetable = Timetable::new(self.spec.parse()?, self.zone.parse()?);
            Ok(timetable.with_gap(self.gap).with_overlap(self.overlap_hour))
        };
        let mut schedule = Schedule::new(
            name,
            timetable().map_err(of_entry)?,
            PartitionId::new(&self.partition).map_err(of_entry)?,
        );
        schedule.payload = self.payload().map_err(of_entry)?;
        schedule.headers = self.headers.clone();
        (schedule.priority, schedule.missed, schedule.running) = (self.priority, self.missed, self.running);
        schedule.deadline = self.deadline_ms.map(Duration::from_millis);
        schedule.check().map_err(of_entry)?;
        Ok(schedule)
    }

    fn payload(&self) -> Result<Bytes> {
        let Some(encoded) = &self.payload_base64 else {
            return Ok(self.payload.clone().unwrap_or_default().into());
        };
        let damaged = |error| Error::new(ErrorKind::Corrupt, "its payload is not base64").with_source(error);
        BASE64.decode(encoded).map(Bytes::from).map_err(damaged)
    }

    /// The state of the schedule at this time of the server.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule).
    pub(super) fn info(&self, name: &str, now: SystemTime) -> Result<ScheduleInfo> {
        let schedule = self.schedule(name)?;
        let first = || schedule.timetable.next_after(now).map(|occurrence| occurrence.at());
        let next_at = if self.started { self.next_ms.map(time) } else { first() };
        let last = self.last.as_ref().map(|run| LastRun {
            due_at: time(run.due_ms),
            done_at: time(run.done_ms),
            outcome: run.outcome,
            id: run.id.as_deref().and_then(|id| id.parse().ok()),
            error: run.error.clone(),
        });
        let revision = self.revision.clone();
        Ok(ScheduleInfo { schedule, is_paused: self.paused, next_at, last, revision })
    }

    /// Whether a tick for this time is a past one, which was restored from somewhere.
    pub(super) fn is_done_with(&self, at_ms: u64) -> bool {
        self.started && self.next_ms.is_none_or(|next| next > at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::zone::Zone;
    use super::*;

    #[test]
    fn what_an_entry_holds_is_the_schedule_again() {
        let timetable = Timetable::new("0 30 2 * * *".parse().unwrap(), "Europe/Berlin".parse().unwrap());
        let timetable = timetable.with_gap(Gap::Skip).with_overlap(Overlap::Last);
        let full = Schedule::new("ä/b", timetable, PartitionId::new("p").unwrap())
            .with_payload(vec![0xff, 0])
            .with_kind("k")
            .with_priority(3)
            .with_running(Running::Allow)
            .with_missed(Missed::All(7))
            .with_deadline(Duration::from_millis(1500));
        let bare = Schedule::new(
            "bare",
            Timetable::new("@daily".parse().unwrap(), Zone::utc()),
            PartitionId::new("p").unwrap(),
        );
        for schedule in [full, bare.with_payload("text")] {
            let json = serde_json::to_vec(&Record::new(&schedule, SystemTime::now())).unwrap();
            let record: Record = serde_json::from_slice(&json).unwrap();
            assert_eq!(record.schedule(&schedule.name).unwrap(), schedule);
        }
    }
}
