//! A limit as its entries show it.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::gate::PlaceRecord;
use super::gcra::Gcra;
use super::holders::{HolderRecord, Holders, millis, nanos};
use super::limit::{Rate, Scope};
use super::record::Record;

/// The values of a header that are shown of one limit, at most.
pub const MAX_KEYS: usize = 100;

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
    /// Another one with each content that was [put](super::Limits::put), also if it was deleted in between.
    #[serde(skip)]
    pub tag: String,
    /// The permits that processes hold: more than the cap for a while after it was lowered.
    pub held: u64,
    /// Who holds them.
    pub holders: Vec<Holder>,
    /// How many may start now; `None` without a rate, and where each value of a header has its own.
    pub available: Option<u64>,
    /// Of a limit for each value of a header: the values in use, those with the most permits first, at most [`MAX_KEYS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyInfo>,
}

/// One value of a header, and what is held of its permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyInfo {
    /// The value; a long one is cut.
    pub value: String,
    /// The permits that processes hold.
    pub held: u64,
    /// How many more they wait for.
    pub wanted: u64,
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
    /// A limit, and what there is of its places.
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
