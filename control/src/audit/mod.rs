//! What was managed through a service: who asked for what, when, from where, and what came of it.
//!
//! Each call is one entry of the [control store](anyqueue::control), `audit/<number>`, written *before* anything is done, and completed with what came of it
//! after. A number is taken by whoever finds nothing under it, so that instances that write at once lose none. The keys count down, so that the newest come
//! first. Who takes a number deletes the one [`MAX_ENTRIES`] below it, so there are never more of them; and each ends by itself after [`KEPT`].

mod call;
mod keys;
mod record;

use std::sync::Arc;

use anyqueue::control::{Applied, Change, ControlStore, Expect, MAX_CONTROL_CHANGES, Version};
use anyqueue::{Error, ErrorKind, Page, Result};
use tokio::sync::Mutex;

pub use call::{Call, MAX_DETAIL_BYTES, MAX_DETAILS, MAX_PATH_BYTES, MAX_QUEUES, Outcome};
pub use record::AuditEntry;

use crate::entry::encode;
use keys::{AUDIT, key_of, number_of};
use record::Record;

/// The most entries: of more, the oldest go.
pub const MAX_ENTRIES: u64 = 10_000;
/// For how long an entry is kept.
pub const KEPT: std::time::Duration = std::time::Duration::from_hours(24 * 90);
/// So many entries below the oldest are deleted with each new one: those that were left there by calls that were cut off in the middle.
const PURGED: u64 = 2;
/// How often a number is tried for, while other instances take them.
const ROUNDS: usize = 64;

/// The trail in a control store.
#[derive(Clone, Debug)]
pub struct Audit {
    store: ControlStore,
    /// Those of one process take their numbers in turn: only other processes are in the way.
    turn: Arc<Mutex<()>>,
}

/// A call that is entered, and not yet known to have ended.
#[derive(Clone, Debug)]
#[must_use = "what came of it is to be entered too"]
pub struct Begun {
    number: u64,
    version: Version,
    record: Record,
}

/// A page of the trail.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditPage {
    /// The newest first.
    pub entries: Vec<AuditEntry>,
    /// The keys of those that cannot be read, and why.
    pub unreadable: Vec<(String, Error)>,
    /// Where to go on; nothing on the last page.
    pub next: Option<u64>,
}

impl Audit {
    /// The trail of a store.
    #[must_use]
    pub fn new(store: ControlStore) -> Self {
        Self { store, turn: Arc::default() }
    }

    /// Enters a call that is about to be made.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if others take each number first, or the server's. Then it may have been entered.
    pub async fn begin(&self, call: &Call) -> Result<Begun> {
        let _turn = self.turn.lock().await;
        for _ in 0..ROUNDS {
            let newest = self.store.list(AUDIT, Page::of(1)).await?;
            let last = newest.value.first().map(|entry| number_of(&entry.key)).transpose()?.unwrap_or(0);
            let Some(number) = last.checked_add(1) else { return Err(keys::unreadable(last)) };
            let record = Record::new(call, newest.now);
            let put = Change::put(key_of(number)?, Expect::Absent, encode(&record)?).with_ttl(KEPT);
            let Some(version) = put.version() else { continue };
            let mut changes = vec![put];
            for place in 0..PURGED {
                if let Some(old) = number.checked_sub(MAX_ENTRIES + place).filter(|old| *old > 0) {
                    changes.push(Change::delete(key_of(old)?, Expect::Any));
                }
            }
            let applied = self.store.apply_all(changes).await?.value;
            if applied.first().is_some_and(Applied::is_done) {
                return Ok(Begun { number, version, record });
            }
        }
        let text = "others enter calls into the audit trail all the time: try again";
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    /// Enters what came of a call. One that is not there any more is left so.
    ///
    /// # Errors
    /// The server's. Then the entry may still say that the call has begun.
    pub async fn end(&self, begun: Begun, outcome: &Outcome) -> Result<()> {
        let value = encode(&begun.record.ended(outcome))?;
        let change = Change::put(key_of(begun.number)?, Expect::Version(begun.version), value);
        let _ = self.store.apply(change.with_ttl(KEPT)).await?;
        Ok(())
    }

    /// The entries below this number, or the newest: at most so many, and at most 100.
    ///
    /// # Errors
    /// The server's.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<AuditPage> {
        let limit = limit.clamp(1, MAX_CONTROL_CHANGES);
        let after = before.map(key_of).transpose()?;
        let found = self.store.list(AUDIT, Page::of(limit).after(after)).await?.value;
        let mut page = AuditPage::default();
        if found.len() == limit {
            page.next = found.last().map(|entry| number_of(&entry.key)).transpose()?;
        }
        for entry in &found {
            match Record::of(entry).and_then(|record| Ok(record.entry(number_of(&entry.key)?))) {
                Ok(entry) => page.entries.push(entry),
                Err(error) => page.unreadable.push((entry.key.to_string(), error)),
            }
        }
        Ok(page)
    }
}
