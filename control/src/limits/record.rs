//! The entry of a limit.

use std::time::SystemTime;

use anyqueue::Result;
use anyqueue::control::Entry;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::gcra::Gcra;
use super::holders::{Holders, nanos};
use super::limit::{Limit, Rate, Scope};
use crate::entry::{FORMAT, decode};

/// How many bytes of the hash of its content the tag of a limit has.
const TAG_BYTES: usize = 16;

/// What the entry of a limit holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    pub(super) of: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cap: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<Rate>,
    /// How often the limit was put.
    pub(super) revision: u64,
    #[serde(default, skip_serializing_if = "Holders::is_empty")]
    pub(super) holders: Holders,
    /// Until when the rate is used up, in nanoseconds of Unix time by the server's clock.
    #[serde(default)]
    pub(super) tat_ns: u64,
}

impl Record {
    /// The entry of a limit that is put, based on its previous entry.
    pub(super) fn put(limit: &Limit, before: Option<Self>) -> Self {
        let revision = before.as_ref().map_or(1, |before| before.revision.saturating_add(1));
        // Processes that hold permits of a limit for something else do not hold permits of this one.
        let before = before.filter(|before| before.of == *limit.of());
        let (holders, tat_ns) = before.map(|before| (before.holders, before.tat_ns)).unwrap_or_default();
        let (cap, rate) = (limit.most(), limit.starts());
        let holders = if cap.is_some() { holders } else { Holders::default() };
        Self { format: FORMAT, of: limit.of().clone(), cap, rate, revision, holders, tat_ns }
    }

    /// Distinguishes this content from every other.
    pub(super) fn tag(&self) -> String {
        let content = serde_json::to_vec(&(&self.of, self.cap, self.rate)).unwrap_or_default();
        let digest = Sha256::digest(content);
        let hex: Vec<String> = digest.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}", self.revision, hex.concat())
    }

    /// The entry, as it counts at this time of the server.
    pub(super) fn of(entry: &Entry, now: SystemTime) -> Result<Self> {
        let mut record: Self = decode(entry)?;
        record.holders.lapse(now);
        Ok(record)
    }

    pub(super) fn gcra(&self, now: SystemTime) -> Option<Gcra> {
        Some(Gcra::new(self.rate?, self.tat_ns, nanos(now)))
    }
}
