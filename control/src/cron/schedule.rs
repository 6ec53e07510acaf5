//! The definition of a schedule: what is pushed when.

use std::time::Duration;

use anyqueue::{Bytes, Error, ErrorKind, Headers, MAX_SUCCESSORS, PartitionId, Result, header};
use serde::{Deserialize, Serialize};

use super::timetable::Timetable;

/// The longest name of a schedule, in bytes.
pub const MAX_SCHEDULE_NAME_BYTES: usize = 200;
/// The largest payload of a schedule, in bytes. For something larger, let the payload say where it is.
pub const MAX_SCHEDULE_PAYLOAD_BYTES: usize = 64 << 10;
/// The largest number of missed times that [`Missed::All`] makes up for: as many as fit into one settlement,
/// in addition to the message that continues the schedule.
#[allow(clippy::cast_possible_truncation, reason = "a hundred")]
pub const MAX_MISSED: u32 = MAX_SUCCESSORS as u32 - 1;
/// The largest total size of the tasks for missed times, in bytes.
const MAX_MISSED_BYTES: usize = 512 << 10;

/// What happens to times at which no scheduler ran, or at which the backend could not be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Missed {
    /// The latest missed time is run, late.
    #[default]
    Latest,
    /// Times that are more than a minute late are not run.
    None,
    /// The latest missed times are run, at most this many, in their order, each as a task of its own. At most
    /// [`MAX_MISSED`].
    All(u32),
}

/// What happens if the schedule is due while the task of an earlier time is still alive: waiting, running, or
/// waiting for a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Running {
    /// The new time is skipped.
    #[default]
    Skip,
    /// The new task is pushed all the same, and can run at the same time.
    Allow,
    /// If the earlier task is running, one new task waits behind it. If the earlier task is still waiting,
    /// the new time is skipped.
    BufferOne,
    /// The earlier task is cancelled, and the new one is pushed. A waiting task is removed; a running one is
    /// asked to stop, without waiting for it.
    CancelOld,
}

/// A task that is pushed at the times of a [`Timetable`].
///
/// The message has the task id `cron/<name>` and, in addition to its own headers, `cron-name` and `cron-at`:
/// the time at which it was due, as RFC 3339 in UTC.
///
/// ```
/// use anyqueue::PartitionId;
/// use anyqueue_control::cron::{Running, Schedule, Timetable};
/// let timetable = Timetable::new("0 7 * * MON-FRI".parse()?, "Europe/Berlin".parse()?);
/// let report = Schedule::new("report", timetable, PartitionId::new("reports")?)
///     .with_kind("daily_report")
///     .with_payload("null")
///     .with_running(Running::BufferOne);
/// assert_eq!(report.partition.name(), "reports");
/// # Ok::<(), anyqueue::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a schedule does nothing until it is put"]
pub struct Schedule {
    /// The name of the schedule: 1 to [`MAX_SCHEDULE_NAME_BYTES`] bytes without control characters.
    pub name: String,
    /// When the schedule is due.
    pub timetable: Timetable,
    /// The partition that its tasks are pushed to.
    pub partition: PartitionId,
    /// The payload of its tasks, at most [`MAX_SCHEDULE_PAYLOAD_BYTES`]; empty by default.
    pub payload: Bytes,
    /// The headers of its tasks.
    pub headers: Headers,
    /// The priority of its tasks; 0 by default.
    pub priority: u8,
    /// What happens to missed times.
    pub missed: Missed,
    /// How late a time may be run at most: after that, its task is neither pushed nor delivered to a worker.
    /// `None` if there is no limit.
    pub deadline: Option<Duration>,
    /// What happens to times that come while an earlier task is alive.
    pub running: Running,
}

impl Schedule {
    /// Makes a schedule with an empty payload and the default policies.
    pub fn new(name: impl Into<String>, timetable: Timetable, partition: PartitionId) -> Self {
        Self {
            name: name.into(),
            timetable,
            partition,
            payload: Bytes::new(),
            headers: Headers::new(),
            priority: 0,
            missed: Missed::default(),
            deadline: None,
            running: Running::default(),
        }
    }

    /// Sets [`payload`](Self::payload).
    pub fn with_payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the kind of its tasks, which selects their handler: the header `task-kind`.
    pub fn with_kind(self, kind: impl Into<String>) -> Self {
        self.with_header(header::TASK_KIND, kind)
    }

    /// Adds or replaces one of its [`headers`](Self::headers).
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets [`priority`](Self::priority).
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets [`missed`](Self::missed).
    pub fn with_missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets [`deadline`](Self::deadline).
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets [`running`](Self::running).
    pub fn with_running(mut self, running: Running) -> Self {
        self.running = running;
        self
    }

    /// The size of its payload and headers.
    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.payload.len() + headers.sum::<usize>()
    }

    /// Checks whether the schedule is possible.
    pub(super) fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let bytes = self.payload.len();
        if bytes > MAX_SCHEDULE_PAYLOAD_BYTES {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "a payload of {bytes} bytes: at most {MAX_SCHEDULE_PAYLOAD_BYTES} fit into a schedule; store the data elsewhere and push a reference"
                ),
            ));
        }
        if self.partition.is_dead_letters() {
            return Err(Error::invalid("a schedule cannot push dead letters: name a live partition"));
        }
        if self.deadline.is_some_and(|deadline| deadline < Duration::from_secs(1)) {
            return Err(Error::invalid("a deadline of less than a second: every time would be too late"));
        }
        match self.missed {
            Missed::All(0) => Err(Error::invalid("0 missed times would be run: use none instead")),
            Missed::All(most) if most > MAX_MISSED => {
                Err(Error::invalid(format!("{most} missed times at once: at most {MAX_MISSED} can be run")))
            }
            Missed::All(_) if self.timetable.spec().pause().is_some() => Err(Error::invalid(
                "a schedule that counts from the end of its last run misses one time at most: use latest or none",
            )),
            Missed::All(_) if self.running != Running::Allow => Err(Error::invalid(
                "all missed times are run at once, so they need `allow` for tasks that still run",
            )),
            Missed::All(most) if self.bytes().saturating_mul(most as usize) > MAX_MISSED_BYTES => {
                Err(Error::invalid(format!(
                    "{most} missed times with {} bytes each: at most {MAX_MISSED_BYTES} bytes can be run at once",
                    self.bytes()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Checks whether a schedule can have this name.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_SCHEDULE_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a schedule's name of {} bytes: give it 1 to {MAX_SCHEDULE_NAME_BYTES}, none of them a control character",
            name.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::zone::Zone;
    use super::*;

    fn schedule() -> Schedule {
        let timetable = Timetable::new("* * * * *".parse().unwrap(), Zone::utc());
        Schedule::new("a", timetable, PartitionId::new("p").unwrap())
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_what_to_do() {
        let second = Duration::from_secs(1);
        let all = schedule().with_running(Running::Allow).with_missed(Missed::All(99));
        let refused = [
            (Schedule { name: String::new(), ..schedule() }, "1 to 200"),
            (Schedule { name: "a\nb".to_owned(), ..schedule() }, "control character"),
            (Schedule { name: "a".repeat(201), ..schedule() }, "201 bytes"),
            (schedule().with_payload(vec![0; MAX_SCHEDULE_PAYLOAD_BYTES + 1]), "65537 bytes"),
            (schedule().with_deadline(second / 2), "less than a second"),
            (schedule().with_missed(Missed::All(0)), "use none"),
            (schedule().with_missed(Missed::All(100)), "at most 99"),
            (schedule().with_missed(Missed::All(2)), "`allow`"),
            (all.clone().with_payload(vec![0; 6000]), "524288 bytes"),
        ];
        for (schedule, why) in refused {
            let error = schedule.check().unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
        all.check().unwrap();
        schedule().with_deadline(second).check().unwrap();
    }
}
