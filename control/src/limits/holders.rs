//! Who has how many permits, as an entry records it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::share::Others;

/// How many processes one cap counts at most. Further processes get no permits until others have left.
pub const MAX_HOLDERS: usize = 500;

/// What one process has of a cap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HolderRecord {
    pub(super) who: String,
    /// Distinguishes processes of the same name.
    pub(super) session: String,
    pub(super) held: u64,
    #[serde(default)]
    pub(super) wanted: u64,
    /// Until when that counts, in milliseconds of Unix time by the server's clock, and for how long it
    /// counted when it was written.
    pub(super) until_ms: u64,
    pub(super) valid_ms: u64,
}

/// The processes that an entry lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Holders(Vec<HolderRecord>);

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(self) -> impl Iterator<Item = HolderRecord> {
        self.0.into_iter()
    }

    /// When the last of their permits ends, in milliseconds of Unix time.
    pub(super) fn last_until_ms(&self) -> Option<u64> {
        self.0.iter().map(|holder| holder.until_ms).max()
    }

    /// Forgets the holders whose permits have ended at this time of the server.
    pub(super) fn lapse(&mut self, now: SystemTime) {
        let now_ms = millis(now);
        self.0.retain(|holder| holder.until_ms > now_ms);
        for holder in &mut self.0 {
            // Nobody can have written a later end. If there is one, the clock went back, and the permits
            // would count for too long.
            holder.until_ms = holder.until_ms.min(now_ms.saturating_add(holder.valid_ms));
        }
    }

    /// What the processes other than this one have of the cap.
    pub(super) fn others(&self, session: &str) -> Others {
        let mut others = Others::default();
        for holder in self.0.iter().filter(|holder| holder.session != session) {
            others.held = others.held.saturating_add(holder.held);
            others.wanted = others.wanted.saturating_add(holder.wanted);
            others.claimants += u64::from(holder.held > 0 || holder.wanted > 0);
        }
        others
    }

    /// How long it takes until the first of the others' permits expires, unless they are renewed.
    pub(super) fn first_lapse(&self, session: &str, now: SystemTime) -> Option<Duration> {
        let others = self.0.iter().filter(|holder| holder.session != session && holder.held > 0);
        let first = others.map(|holder| holder.until_ms).min()?;
        Some(Duration::from_millis(first.saturating_sub(millis(now)).saturating_add(1)))
    }

    pub(super) fn holder(&self, session: &str) -> Option<&HolderRecord> {
        self.0.iter().find(|holder| holder.session == session)
    }

    /// Writes what this process has, or that it has nothing. Returns `false` if there is no place for it.
    pub(super) fn hold(&mut self, holder: HolderRecord) -> bool {
        let place = self.0.iter().position(|there| there.session == holder.session);
        match (place, holder.held == 0 && holder.wanted == 0) {
            (Some(place), true) => drop(self.0.remove(place)),
            (Some(place), false) => {
                if let Some(there) = self.0.get_mut(place) {
                    *there = holder;
                }
            }
            (None, true) => {}
            (None, false) if self.0.len() >= MAX_HOLDERS => return false,
            (None, false) => self.0.push(holder),
        }
        true
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn nanos(time: SystemTime) -> u64 {
    millis(time).saturating_mul(1_000_000)
}
