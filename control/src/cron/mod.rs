//! Schedules: what is due when, in which time zone.
//!
//! A [`Spec`] says when, in the five or six fields of cron; a [`Zone`] says in which time zone. A
//! [`Timetable`] combines both, and computes [occurrences](Occurrence) forwards and backwards, even where the
//! clocks change:
//!
//! | the clock | an entry at fixed times | an entry with `*` in its hours or minutes |
//! |---|---|---|
//! | skips its time | runs once at the first moment after the gap ([`Gap::Shift`]), or not at all ([`Gap::Skip`]) | runs when the clock shows a matching time |
//! | shows its time twice | runs the first time ([`Overlap::First`]), or the last ([`Overlap::Last`]) | runs both times |
//!
//! ```
//! use anyqueue_control::cron::{Spec, Timetable, Zone};
//! use std::time::{Duration, SystemTime};
//!
//! let daily: Spec = "30 2 * * *".parse()?;
//! let timetable = Timetable::new(daily, "Europe/Berlin".parse()?);
//! let eve = SystemTime::UNIX_EPOCH + Duration::from_secs(1_774_648_800); // 2026-03-27 23:00 in Berlin
//! let local: Vec<_> = timetable.after(eve).take(3).map(|occurrence| occurrence.local()).collect();
//! assert_eq!(local, ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]);
//!
//! let never = "0 0 31 4 *".parse::<Spec>().unwrap_err();
//! assert!(never.message().contains("`0 0 30 4 *`"));
//! # Ok::<(), anyqueue::Error>(())
//! ```
//!
//! A [`Schedule`] says what is pushed at the times of a timetable; a [`Scheduler`] keeps schedules and runs
//! them, in any number of processes at once.
//!
//! # How each time is run once
//! A schedule has an entry in the [control store](anyqueue::control), and one message in the partition
//! [`TICKS`]: its tick, which is due when the schedule is due next. Whoever pulls the tick settles it with
//! two successors, the task and the next tick. Where the backend stores these [in one
//! step](anyqueue::adapter::Capabilities::successors) with the settlement, each time is run exactly once,
//! whichever process dies or freezes at whatever moment: the tick is held under a lease, a process that has
//! lost the lease changes nothing, and the task is stored together with the end of the tick. Only the
//! server's clock counts, there is no leader, and times are not polled for: a waiting pull gets the tick when
//! it is due.
//!
//! The deduplication key of the tick ensures that there is one tick, and not two. It belongs to the content
//! of the entry, and each tick hands it on to the next. So pushing a tick again where one may be missing does
//! no harm. The entry is changed after the tick; if that fails, the entry lags behind.
//!
//! A schedule that counts from the end of its last run has the same tick. While the task is alive, the tick
//! only checks on it: it names the task that was pushed with it, and comes again until that task has ended.
//!
//! If tasks go to another queue than the one that holds the schedules ([`Scheduler::beside`]), or to another
//! server of a cluster, the task is pushed under an id that depends only on the schedule and the time, and
//! then the tick is settled. The task is run twice only if the process that pushed it dies or freezes before
//! it has settled the tick, and the task has ended by then or the queue does not refuse [ids that
//! live](anyqueue::adapter::Capabilities::unique_ids).

mod earlier;
mod fields;
mod fire;
mod follow;
mod heal;
mod impossible;
mod manage;
mod outage;
mod pause;
mod plan;
mod record;
mod run;
mod schedule;
mod scheduler;
mod segment;
mod spec;
mod start;
mod steer;
mod task;
mod tick;
mod timetable;
mod zone;

pub use manage::{MAX_SCHEDULES, Schedules};
pub use record::{LastRun, RunOutcome, ScheduleInfo};
pub use schedule::{
    MAX_MISSED, MAX_SCHEDULE_NAME_BYTES, MAX_SCHEDULE_PAYLOAD_BYTES, Missed, Running, Schedule,
};
pub use scheduler::Scheduler;
pub use spec::{MAX_SPEC_BYTES, Spec};
pub use task::{AT_HEADER, NAME_HEADER};
pub use tick::TICKS;
pub use timetable::{Gap, Occurrence, Overlap, Timetable};
pub use zone::Zone;
