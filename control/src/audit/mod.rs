//! What was managed through a service: who asked for what, when, from where, and what came of it.
//!
//! Each call is one entry of the [control store](anyqueue::control), `audit/<number>`, written *before* anything is done, and completed with what came of it
//! after. A number is taken by whoever finds nothing under it, so that instances that write at once lose none. The keys count down, so that the newest come
//! first. Who takes a number deletes the one [`MAX_ENTRIES`] below it, so there are never more of them; and each ends by itself after [`KEPT`].
//! Calls that come at once are entered together.

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

/// The trail in a control store.
#[derive(Clone, Debug)]
pub struct Audit {
    store: ControlStore,
    together: Arc<Together>,
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
        Self { store, together: Arc::default() }
    }

    /// Enters a call that is about to be made. Those that come while others are being entered are entered together, in one call of the store.
    ///
    /// # Errors
    /// [`Unavailable`](anyqueue::ErrorKind::Unavailable) if others take each number first, or the server's. Then it may have been entered.
    ///
    /// # Cancellation
    /// A call whose future is dropped may be entered or not, and so may twice be those that were being entered together with it.
    pub async fn begin(&self, call: &Call) -> Result<Begun> {
        self.together.begin(&self.store, call).await
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
