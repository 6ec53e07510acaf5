//! An audit trail of the calls that manage a service: who asked for what, when, from where, and with what
//! outcome.
//!
//! Each call is one entry of the [control store](anyqueue::control), `audit/<number>`, which is written
//! *before* anything is done, and completed with the outcome afterwards. A number is taken only if there is
//! no entry under it yet, so instances that write at the same time lose no entry. The keys count down, so
//! that the newest entries come first. Whoever takes a number deletes the entry [`MAX_ENTRIES`] below it, so
//! there are never more entries than that; and each entry expires after [`KEPT`]. Calls that arrive at the
//! same time are entered together.

mod begun;
mod call;
mod keys;
mod record;
mod together;

use std::sync::Arc;

use anyqueue::control::{Change, ControlStore, Expect, MAX_CONTROL_CHANGES};
use anyqueue::{Error, Page, Result};

pub use begun::{Begun, KEPT, MAX_ENTRIES};
pub use call::{Call, MAX_DETAIL_BYTES, MAX_DETAILS, MAX_PATH_BYTES, MAX_QUEUES, Outcome};
pub use record::AuditEntry;

use crate::entry::encode;
use keys::{AUDIT, key_of, number_of};
use record::Record;
use together::Together;

/// The audit trail in a control store.
#[derive(Clone, Debug)]
pub struct Audit {
    store: ControlStore,
    together: Arc<Together>,
}

/// A page of the audit trail.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditPage {
    /// The entries, newest first.
    pub entries: Vec<AuditEntry>,
    /// The keys of entries that cannot be read, and why.
    pub unreadable: Vec<(String, Error)>,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<u64>,
}

impl Audit {
    /// Returns the audit trail of a store.
    #[must_use]
    pub fn new(store: ControlStore) -> Self {
        Self { store, together: Arc::default() }
    }

    /// Enters a call that is about to be made. Calls that arrive while others are being entered are entered
    /// together, with one call of the store.
    ///
    /// # Errors
    /// [`Unavailable`](anyqueue::ErrorKind::Unavailable) if others take each number first, or an error of the
    /// server. The call may have been entered all the same.
    ///
    /// # Cancellation
    /// If the future is dropped, the call may be entered or not, and calls that were being entered together
    /// with it may be entered twice.
    pub async fn begin(&self, call: &Call) -> Result<Begun> {
        self.together.begin(&self.store, call).await
    }

    /// Enters the outcome of a call. Does nothing if the entry is no longer there.
    ///
    /// # Errors
    /// Errors of the server. Then the entry may still say that the call has only begun.
    pub async fn end(&self, begun: Begun, outcome: &Outcome) -> Result<()> {
        let value = encode(&begun.record.ended(outcome))?;
        let change = Change::put(key_of(begun.number)?, Expect::Version(begun.version), value);
        let _ = self.store.apply(change.with_ttl(KEPT)).await?;
        Ok(())
    }

    /// Returns a page of the entries, newest first, at most 100 of them. The next one begins after the
    /// [`next`](AuditPage::next) of this one.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn list(&self, page: Page<u64>) -> Result<AuditPage> {
        let limit = page.limit.clamp(1, MAX_CONTROL_CHANGES);
        let after = page.after.map(key_of).transpose()?;
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
