//! Schedules: what is due when, in which time zone.
//!
//! A [`Spec`] says when, in the five or six fields of cron; a [`Zone`] says by whose clocks on the wall. A [`Timetable`] has both, and computes
//! [occurrences](Occurrence) forwards and backwards, also where clocks are changed:
//!
//! | the clock | an entry at fixed times | an entry with `*` in its hours or minutes |
//! |---|---|---|
//! | skips its time | runs once at the first moment after the gap ([`Gap::Shift`]), or not ([`Gap::Skip`]) | runs when the clock shows a time of it |
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

mod fields;
mod impossible;
mod segment;
mod spec;
mod timetable;
mod zone;

pub use spec::{MAX_SPEC_BYTES, Spec};
pub use timetable::{Gap, Occurrence, Overlap, Timetable};
pub use zone::Zone;
