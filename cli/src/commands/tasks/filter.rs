//! The filter that selects tasks.

use std::time::SystemTime;

use anyqueue::{TaskFilter, TaskState};
use clap::Args;

use crate::output::Output;

/// All conditions must hold.
#[derive(Args, Clone)]
pub(super) struct Filter {
    /// Only those in this state: queued, scheduled, running, disabled, succeeded, failed, `timed_out` or cancelled; repeatable
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<TaskState>,
    /// Only those that ended at this time or later: RFC 3339 in UTC, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Only those that ended before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    before: Option<SystemTime>,
    /// Only those of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only those whose task id begins with this
    #[arg(long, value_name = "PREFIX")]
    task_id: Option<String>,
    /// Only those that this worker ended
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Only those with this text in the reason or in an error
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those with at least this many attempts
    #[arg(long, value_name = "N")]
    min_attempts: Option<u32>,
}

impl Filter {
    /// Builds the library's filter. Notes if it makes the backend read tasks that do not match.
    pub(super) fn build(&self, output: Output) -> TaskFilter {
        let mut filter = TaskFilter::new();
        for state in &self.state {
            filter = filter.in_state(*state);
        }
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        (filter.since, filter.before) = (self.since, self.before);
        filter.kind = text(&self.kind);
        filter.session_id = text(&self.session);
        filter.task_id_prefix = text(&self.task_id);
        filter.worker = text(&self.worker);
        filter.error = text(&self.error);
        filter.min_attempts = self.min_attempts;
        if filter.scans() {
            output.note(
                "no index covers this filter: every task in these states and times is read, a page at a time",
            );
        }
        filter
    }
}

fn state(text: &str) -> Result<TaskState, String> {
    let named = TaskState::ALL.into_iter().find(|state| state.as_str() == text.replace('-', "_"));
    named.ok_or_else(|| {
        let all: Vec<_> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("there is no such state: the states are {}", all.join(", "))
    })
}

pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    moment_from(text, SystemTime::now())
}

fn moment_from(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let time = now.checked_sub(ago).filter(|time| *time >= SystemTime::UNIX_EPOCH);
        return time.ok_or_else(|| format!("{text} ago nothing had ended yet"));
    }
    humantime::parse_rfc3339_weak(text).map_err(|_| {
        "write a time in UTC such as 2030-12-31T23:59:00Z, or how long ago, such as 2h".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_of_day_or_so_long_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1000);
        assert_eq!(moment_from("2h", now), Ok(now - Duration::from_hours(2)));
        assert_eq!(
            moment_from("1970-01-01T01:00:00Z", now),
            Ok(SystemTime::UNIX_EPOCH + Duration::from_hours(1))
        );
        for wrong in ["", "soon", "1001h", "2h ago", "99999999999999999999y"] {
            assert!(moment_from(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_state_is_known_by_its_name() {
        for known in TaskState::ALL {
            assert_eq!(state(known.as_str()), Ok(known));
        }
        assert_eq!(state("timed-out"), Ok(TaskState::TimedOut));
        assert!(state("done").unwrap_err().contains("succeeded"));
    }
}
