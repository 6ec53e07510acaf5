//! A limit as its entries describe it.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::gate::PlaceRecord;
use super::gcra::Gcra;
use super::holders::{HolderRecord, Holders, millis, nanos};
use super::limit::{Rate, Scope};
use super::record::Record;

/// How many values of a header are shown for one limit, at most.
pub const MAX_KEYS: usize = 100;

/// A limit as its entries describe it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The name of the limit.
    pub name: String,
    /// What the limit applies to.
    pub of: Scope,
    /// How many tasks may run at once.
    pub cap: Option<u64>,
    /// How fast tasks may start.
    pub rate: Option<Rate>,
    /// How often the limit was put.
    pub revision: u64,
    /// Differs for each content that was [put](super::Limits::put), even if the limit was deleted in between.
    #[serde(skip)]
    pub tag: String,
    /// The number of permits that processes hold. It can exceed the cap for a while after the cap was
    /// lowered.
    pub held: u64,
    /// The processes that hold or want permits.
    pub holders: Vec<Holder>,
    /// How many tasks may start now; `None` without a rate, or if each value of a header has its own.
    pub available: Option<u64>,
    /// For a limit of each value of a header: the values in use, those with the most permits first, at most
    /// [`MAX_KEYS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyInfo>,
}

/// One value of a header, and the permits held for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyInfo {
    /// The value; a long value is cut.
    pub value: String,
    /// The number of permits that processes hold.
    pub held: u64,
    /// How many more permits processes wait for.
    pub wanted: u64,
    /// How many tasks may start now; `None` without a rate.
    pub available: Option<u64>,
}

/// A process that holds permits, or waits for some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The name of the process's worker.
    pub who: String,
    /// How many permits it holds.
    pub held: u64,
    /// How many more permits it waits for.
    pub wanted: u64,
    /// How long the permits remain its own if it is not heard of again.
    #[serde(skip)]
    pub valid_for: Duration,
}

impl LimitInfo {
    /// A limit, and what is known about its places.
    pub(super) fn new(name: &str, record: Record, places: &[PlaceRecord], now: SystemTime) -> Self {
        let mut info = Self {
            name: name.to_owned(),
            tag: record.tag(),
            available: record.gcra(now).map(|gcra| gcra.available(nanos(now))),
            holders: holders(record.holders, now),
            of: record.of,
            cap: record.cap,
            rate: record.rate,
            revision: record.revision,
            held: 0,
            keys: Vec::new(),
        };
        for place in places.iter().filter(|place| place.limit == name) {
            info.add(place, now);
        }
        info.held = info.holders.iter().fold(0_u64, |sum, holder| sum.saturating_add(holder.held));
        info.keys.sort_by_key(|key| std::cmp::Reverse((key.held, key.wanted)));
        info.keys.truncate(MAX_KEYS);
        if matches!(info.of, Scope::Header(_)) {
            info.available = None;
        }
        info
    }

    fn add(&mut self, place: &PlaceRecord, now: SystemTime) {
        let gcra = self.rate.map(|rate| Gcra::new(rate, place.tat_ns, nanos(now)));
        let available = gcra.map(|gcra| gcra.available(nanos(now)));
        let of_place = holders(place.holders.clone(), now);
        let sum =
            |of: fn(&Holder) -> u64| of_place.iter().fold(0_u64, |sum, one| sum.saturating_add(of(one)));
        let (held, wanted) = (sum(|holder| holder.held), sum(|holder| holder.wanted));
        if matches!(self.of, Scope::Header(_)) {
            self.keys.push(KeyInfo { value: place.value.clone(), held, wanted, available });
        } else {
            self.available = available;
        }
        for holder in of_place {
            match self.holders.iter_mut().find(|there| there.who == holder.who) {
                Some(there) => {
                    there.held = there.held.saturating_add(holder.held);
                    there.wanted = there.wanted.saturating_add(holder.wanted);
                    there.valid_for = there.valid_for.max(holder.valid_for);
                }
                None => self.holders.push(holder),
            }
        }
    }
}

fn holders(holders: Holders, now: SystemTime) -> Vec<Holder> {
    let holder = |holder: HolderRecord| Holder {
        valid_for: Duration::from_millis(holder.until_ms.saturating_sub(millis(now))),
        who: holder.who,
        held: holder.held,
        wanted: holder.wanted,
    };
    holders.all().map(holder).collect()
}
