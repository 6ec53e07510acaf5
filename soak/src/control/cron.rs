//! A schedule that fires each second, and whether it fired once for each second.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyqueue::{PartitionId, Queue};
use anyqueue_control::cron::{AT_HEADER, Missed, Running, Schedule, Scheduler, Timetable, Zone};

use crate::backends::Result;
use crate::survey::drain;

/// The partition in which its tasks wait until the end, so that none runs twice, and what comes twice was
/// pushed twice.
const PARTITION: &str = "cron";
/// How many missed times are made up for after an outage.
const MISSED: u32 = 99;
/// How late the last time may be: a tick that a killed worker held comes back after ten seconds.
const LATE: Duration = Duration::from_secs(20);

/// How often the schedule fired for each second.
#[derive(Debug, Default)]
pub(super) struct Fired(BTreeMap<u64, u32>);

/// Stores the schedule.
pub(super) async fn put(scheduler: &Scheduler) -> Result<()> {
    let timetable = Timetable::new("* * * * * *".parse()?, Zone::utc());
    let schedule = Schedule::new("each second", timetable, PartitionId::new(PARTITION)?);
    scheduler.put(&schedule.with_running(Running::Allow).with_missed(Missed::All(MISSED))).await?;
    Ok(())
}

/// Returns what has fired.
pub(super) async fn fired(queue: &Queue) -> Result<Fired> {
    let mut times = Vec::new();
    drain(queue, &PartitionId::new(PARTITION)?, |task| times.push(task.headers().get(AT_HEADER).cloned()))
        .await?;
    let mut fired = Fired::default();
    for at in times {
        let at = at.ok_or("a task of the schedule does not say its time")?;
        *fired.0.entry(second(humantime::parse_rfc3339(&at)?)).or_default() += 1;
    }
    Ok(fired)
}

fn second(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Fired {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn twice(&self) -> usize {
        self.0.values().filter(|count| **count > 1).count()
    }

    /// Returns what is wrong, if the schedule ran until this moment. `is_once`: its tasks are kept where the
    /// schedule is, so that none may come twice.
    pub(super) fn violations(&self, until: SystemTime, is_once: bool) -> Vec<String> {
        let (Some((first, _)), Some((last, _))) = (self.0.first_key_value(), self.0.last_key_value()) else {
            return vec!["the schedule never came".to_owned()];
        };
        let mut violations = Vec::new();
        let missing = usize::try_from(last - first + 1).unwrap_or(usize::MAX) - self.count();
        if missing > 0 {
            violations.push(format!("{missing} times of the schedule did not come"));
        }
        if is_once && self.twice() > 0 {
            violations.push(format!("{} times of the schedule came twice", self.twice()));
        }
        if last + LATE.as_secs() < second(until) {
            violations.push(format!("the schedule stopped {} s before the end", second(until) - last));
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(times: &[u64], is_once: bool) -> Vec<String> {
        let mut fired = Fired::default();
        for time in times {
            *fired.0.entry(*time).or_default() += 1;
        }
        fired.violations(SystemTime::UNIX_EPOCH + Duration::from_secs(105), is_once)
    }

    #[test]
    fn each_second_once_is_right() {
        assert_eq!(violations(&[100, 101, 102], true), [""; 0]);
    }

    #[test]
    fn a_second_that_is_missing_comes_twice_or_not_at_all_is_found() {
        assert_eq!(violations(&[100, 103], true), ["2 times of the schedule did not come"]);
        assert_eq!(violations(&[100, 100, 101], true), ["1 times of the schedule came twice"]);
        assert_eq!(violations(&[100, 100, 101], false), [""; 0]);
        assert_eq!(violations(&[80], true), ["the schedule stopped 25 s before the end"]);
        assert_eq!(violations(&[], true), ["the schedule never came"]);
    }
}
