//! Which of the due times are run.

use std::time::{Duration, SystemTime};

use super::schedule::{Missed, Schedule};

/// How late a time may be run and still count as in time.
const IN_TIME: Duration = Duration::from_mins(1);

/// What one tick of a schedule does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The times to run, in order. Empty if all due times are too late.
    pub(super) run: Vec<SystemTime>,
    /// When the schedule is due next.
    pub(super) next: Option<SystemTime>,
}

/// What to do now about the times from `at` on. All times up to now are then dealt with, so that none is run
/// twice.
pub(super) fn plan(schedule: &Schedule, at: SystemTime, now: SystemTime) -> Plan {
    let (timetable, next) = (&schedule.timetable, next(schedule, at, now));
    let follows_runs = timetable.spec().pause().is_some();
    let (most, late) = match schedule.missed {
        Missed::Latest => (1, None),
        Missed::None => (1, Some(IN_TIME)),
        Missed::All(most) => (most, None),
    };
    let allowed = [late, schedule.deadline].into_iter().flatten().min();
    if follows_runs {
        let is_in_time = allowed.is_none_or(|allowed| now.duration_since(at).unwrap_or_default() <= allowed);
        return Plan { run: if is_in_time { vec![at] } else { Vec::new() }, next };
    }
    let earliest = allowed.and_then(|allowed| now.checked_sub(allowed)).map_or(at, |least| least.max(at));
    // Searched backwards from now: however many times were missed, this takes as many steps as there are
    // tasks.
    let until = now.checked_add(Duration::from_nanos(1)).unwrap_or(now);
    let latest =
        std::iter::successors(timetable.latest_before(until), |later| timetable.latest_before(later.at()));
    let due = latest.map(|occurrence| occurrence.at()).take_while(|time| *time >= earliest);
    let mut run: Vec<_> = due.take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
    run.reverse();
    Plan { run, next }
}

/// Like [`plan`], but runs nothing.
pub(super) fn pass(schedule: &Schedule, at: SystemTime, now: SystemTime) -> Plan {
    Plan { run: Vec::new(), next: next(schedule, at, now) }
}

fn next(schedule: &Schedule, at: SystemTime, now: SystemTime) -> Option<SystemTime> {
    schedule.timetable.next_after(at.max(now)).map(|occurrence| occurrence.at())
}

#[cfg(test)]
mod tests {
    use anyqueue::PartitionId;

    use super::super::schedule::Running;
    use super::super::timetable::Timetable;
    use super::super::zone::Zone;
    use super::*;

    const MINUTE: u64 = 60;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_020 + seconds)
    }

    fn minutely() -> Schedule {
        let timetable = Timetable::new("* * * * *".parse().unwrap(), Zone::utc());
        Schedule::new("a", timetable, PartitionId::new("p").unwrap())
    }

    fn run(schedule: &Schedule, now: SystemTime) -> Vec<SystemTime> {
        plan(schedule, at(0), now).run
    }

    #[test]
    fn what_is_in_time_is_run_and_the_next_comes_after_it() {
        for late in [0, 1, 59] {
            let expected = Plan { run: vec![at(0)], next: Some(at(MINUTE)) };
            for missed in [Missed::Latest, Missed::None, Missed::All(3)] {
                assert_eq!(plan(&minutely().with_missed(missed), at(0), at(late)), expected);
            }
        }
        assert_eq!(run(&minutely(), at(0) - Duration::from_millis(1)), []);
    }

    #[test]
    fn of_missed_times_those_are_run_that_the_policy_says() {
        let now = at(10 * MINUTE + 30);
        assert_eq!(run(&minutely(), now), [at(10 * MINUTE)]);
        let all = minutely().with_running(Running::Allow).with_missed(Missed::All(3));
        assert_eq!(run(&all, now), [at(8 * MINUTE), at(9 * MINUTE), at(10 * MINUTE)]);
        assert_eq!(run(&all.with_missed(Missed::All(99)), now).len(), 11);
        let timetable = Timetable::new("*/10 * * * *".parse().unwrap(), Zone::utc());
        let none = Schedule { timetable, ..minutely() }.with_missed(Missed::None);
        let ten = none.timetable.next_after(at(0)).unwrap().at();
        assert_eq!(plan(&none, ten, ten + IN_TIME).run, [ten]);
        assert_eq!(plan(&none, ten, ten + IN_TIME + Duration::from_millis(1)).run, []);
    }

    #[test]
    fn what_is_past_its_deadline_is_not_run() {
        let timetable = Timetable::new("@hourly".parse().unwrap(), Zone::utc());
        let hourly = Schedule { timetable, ..minutely() }.with_deadline(Duration::from_secs(100));
        let hour = hourly.timetable.next_after(at(0)).unwrap().at();
        assert_eq!(plan(&hourly, hour, hour + Duration::from_secs(100)).run, [hour]);
        let late = plan(&hourly, hour, hour + Duration::from_secs(101));
        assert_eq!((late.run.len(), late.next), (0, Some(hour + Duration::from_hours(1))));
    }

    #[test]
    fn a_million_missed_times_are_passed_over_at_once() {
        let years = at(0) + Duration::from_hours(24 * 700);
        let plan = plan(&minutely(), at(0), years);
        assert_eq!((plan.run.len(), plan.next > Some(years)), (1, true));
    }
}
