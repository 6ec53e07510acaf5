//! The entry of a limit.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::Entry;
use serde::{Deserialize, Serialize};

use super::gcra::Gcra;
use super::limit::{Limit, Rate, Scope};
use super::share::Others;
use crate::entry::{FORMAT, decode};

/// The processes that one cap counts at most; more get no permits until others have left.
pub const MAX_HOLDERS: usize = 500;

/// What the entry of a limit holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    pub(super) of: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cap: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<Rate>,
    /// How often it was put.
    pub(super) revision: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) holders: Vec<HolderRecord>,
    /// Until when the rate is used up, in nanoseconds of Unix time by the server's clock.
    #[serde(default)]
    pub(super) tat_ns: u64,
}

/// What one process has of a cap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HolderRecord {
    pub(super) who: String,
    /// Tells one process from another of the same name.
    pub(super) session: String,
    pub(super) held: u64,
    #[serde(default)]
    pub(super) wanted: u64,
    /// Until when that counts, in milliseconds of Unix time by the server's clock, and for how long it counted when it was written.
    pub(super) until_ms: u64,
    pub(super) valid_ms: u64,
}

impl Record {
    /// The entry of a limit that is put, over what is there of it.
    pub(super) fn put(limit: &Limit, before: Option<Self>) -> Self {
        let revision = before.as_ref().map_or(1, |before| before.revision.saturating_add(1));
        // What holds the permits of something else does not hold these.
        let before = before.filter(|before| before.of == *limit.of());
        let (holders, tat_ns) = before.map(|before| (before.holders, before.tat_ns)).unwrap_or_default();
        let (cap, rate) = (limit.most(), limit.starts());
        let holders = if cap.is_some() { holders } else { Vec::new() };
        Self { format: FORMAT, of: limit.of().clone(), cap, rate, revision, holders, tat_ns }
    }

    /// What is there, as it counts at this time of the server.
    pub(super) fn of(entry: &Entry, now: SystemTime) -> Result<Self> {
        let mut record: Self = decode(entry)?;
        let now_ms = millis(now);
        record.holders.retain(|holder| holder.until_ms > now_ms);
        for holder in &mut record.holders {
            // Nobody can have written a later end: then the clock went back, and it would count for too long.
            holder.until_ms = holder.until_ms.min(now_ms.saturating_add(holder.valid_ms));
        }
        Ok(record)
    }

    /// What the processes other than this one have of the cap.
    pub(super) fn others(&self, session: &str) -> Others {
        let mut others = Others::default();
        for holder in self.holders.iter().filter(|holder| holder.session != session) {
            others.held = others.held.saturating_add(holder.held);
            others.wanted = others.wanted.saturating_add(holder.wanted);
            others.claimants += u64::from(holder.held > 0 || holder.wanted > 0);
        }
        others
    }

    /// When the first of the others' permits would be free without them, from now.
    pub(super) fn first_lapse(&self, session: &str, now: SystemTime) -> Option<Duration> {
        let others = self.holders.iter().filter(|holder| holder.session != session && holder.held > 0);
        let first = others.map(|holder| holder.until_ms).min()?;
        Some(Duration::from_millis(first.saturating_sub(millis(now)).saturating_add(1)))
    }

    pub(super) fn holder(&self, session: &str) -> Option<&HolderRecord> {
        self.holders.iter().find(|holder| holder.session == session)
    }

    /// Writes what this process has, or that it has nothing. `false`: there is no place for it.
    pub(super) fn hold(&mut self, holder: HolderRecord) -> bool {
        let place = self.holders.iter().position(|there| there.session == holder.session);
        match (place, holder.held == 0 && holder.wanted == 0) {
            (Some(place), true) => drop(self.holders.remove(place)),
            (Some(place), false) => {
                if let Some(there) = self.holders.get_mut(place) {
                    *there = holder;
                }
            }
            (None, true) => {}
            (None, false) if self.holders.len() >= MAX_HOLDERS => return false,
            (None, false) => self.holders.push(holder),
        }
        true
    }

    pub(super) fn gcra(&self, now: SystemTime) -> Option<Gcra> {
        Some(Gcra::new(self.rate?, self.tat_ns, nanos(now)))
    }
}

/// A limit as its entry shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitInfo {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub of: Scope,
    /// How many may run at once.
    pub cap: Option<u64>,
    /// How fast they may start.
    pub rate: Option<Rate>,
    /// How often it was put.
    pub revision: u64,
    /// The permits that processes hold: more than the cap for a while after it was lowered.
    pub held: u64,
    /// Who holds them.
    pub holders: Vec<Holder>,
    /// How many may start now; `None` without a rate.
    pub available: Option<u64>,
}

/// A process that holds permits, or waits for some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The name of its worker.
    pub who: String,
    /// How many it holds.
    pub held: u64,
    /// How many more it waits for.
    pub wanted: u64,
    /// For how long they are its own if it is not heard of again.
    #[serde(skip)]
    pub valid_for: Duration,
}

impl LimitInfo {
    pub(super) fn new(name: &str, record: Record, now: SystemTime) -> Self {
        let available = record.gcra(now).map(|gcra| gcra.available(nanos(now)));
        let holder = |holder: HolderRecord| Holder {
            valid_for: Duration::from_millis(holder.until_ms.saturating_sub(millis(now))),
            who: holder.who,
            held: holder.held,
            wanted: holder.wanted,
        };
        let holders: Vec<_> = record.holders.into_iter().map(holder).collect();
        let held = holders.iter().fold(0_u64, |sum, holder| sum.saturating_add(holder.held));
        let Record { of, cap, rate, revision, .. } = record;
        Self { name: name.to_owned(), of, cap, rate, revision, held, holders, available }
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn nanos(time: SystemTime) -> u64 {
    millis(time).saturating_mul(1_000_000)
}
