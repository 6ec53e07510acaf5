//! The entry of a place.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::{Change, Entry, Key};
use serde::{Deserialize, Serialize};

use super::place::PlaceId;
use crate::entry::{FORMAT, decode, encode, unchanged};
use crate::limits::holders::{Holders, millis, nanos};

/// How much longer an entry is kept than it has something to say.
const MARGIN: Duration = Duration::from_secs(1);

/// What the entry of a place holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::limits) struct PlaceRecord {
    format: u32,
    pub(in crate::limits) limit: String,
    /// The value of the header; empty for a kind.
    pub(in crate::limits) value: String,
    #[serde(default, skip_serializing_if = "Holders::is_empty")]
    pub(in crate::limits) holders: Holders,
    /// Until when the rate is used up, in nanoseconds of Unix time by the server's clock.
    #[serde(default)]
    pub(in crate::limits) tat_ns: u64,
}

impl PlaceRecord {
    /// The entry, as it counts at this time of the server. An entry that cannot be read is an error: it may
    /// say that others have all permits.
    pub(in crate::limits) fn of(entry: &Entry, now: SystemTime) -> Result<Self> {
        let mut record: Self = decode(entry)?;
        record.holders.lapse(now);
        Ok(record)
    }

    pub(super) fn of_place(id: &PlaceId, entry: Option<&Entry>, now: SystemTime) -> Result<Self> {
        match entry {
            Some(entry) => Self::of(entry, now),
            None => Ok(Self {
                format: FORMAT,
                limit: id.limit.to_string(),
                value: id.shown.to_string(),
                holders: Holders::default(),
                tat_ns: 0,
            }),
        }
    }

    /// The change that writes the entry, or deletes it if it has nothing to say any more. The entry is kept
    /// as long as it has.
    pub(super) fn change(&self, key: &Key, there: Option<&Entry>, now: SystemTime) -> Result<Option<Change>> {
        let (now_ms, exact) = (millis(now), nanos(now));
        let held = self.holders.last_until_ms().map_or(0, |until| until.saturating_sub(now_ms));
        let rated = self.tat_ns.saturating_sub(exact).div_ceil(1_000_000);
        let keep = held.max(rated);
        let expect = unchanged(there);
        if keep == 0 {
            return Ok(there.map(|_| Change::delete(key.clone(), expect)));
        }
        // A little longer, since it also counts by the clock of whoever reads it.
        let ttl = Duration::from_millis(keep).saturating_add(MARGIN);
        Ok(Some(Change::put(key.clone(), expect, encode(self)?).with_ttl(ttl)))
    }
}
