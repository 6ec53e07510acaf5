//! Limits that all processes of an application share: how many tasks run at once, and how fast they start.
//!
//! Each limit is one entry of the [control store](anyqueue::control), `limit/<name>`. A *cap* sets how many
//! tasks run at once: each process takes a block of permits, renews it with each beat, and releases what it
//! does not need. Blocks expire, so nothing leaks when a process dies, and the valid blocks together never
//! exceed the cap. A *rate* sets how fast tasks start, with a burst after a pause.
//!
//! A limit of a partition acts before a pull: a worker pulls no more tasks than it has permits for, so it
//! does not hold tasks that another worker could run. A limit of a kind, or of each value of a header, acts
//! once the message has been pulled: a message that may not start is postponed, uncounted, and those behind
//! it continue.
//!
//! - **A worker that cannot renew** its block starts nothing in the last third of the block's validity. A
//!   sixth of the validity before the end, its tasks are asked to stop; they are released, uncounted. So a
//!   cap also holds for a process that is cut off. Only a frozen process can exceed it, until it wakes up.
//! - **Lowering a cap** below the number of running tasks interrupts nothing. Nothing starts until enough
//!   tasks have ended.
//! - **While others want permits** and none are free, each process keeps its fair share, and what the others
//!   do not want.
//! - **A rate** counts from the moment at which the store grants a start. The task starts within a tenth of a
//!   second of that moment, or it loses its turn.

mod gate;
mod gcra;
mod held;
mod holders;
mod info;
mod keeper;
mod keys;
mod limit;
mod permits;
mod plan;
mod record;
mod share;
mod stock;

use std::sync::Arc;

use anyqueue::control::{Change, ControlStore, Entry, MAX_CONTROL_CHANGES};
use anyqueue::{Error, ErrorKind, Page, Result};

pub use holders::MAX_HOLDERS;
pub use info::{Holder, KeyInfo, LimitInfo, MAX_KEYS};
pub use keys::MAX_LIMITS;
pub use limit::{Limit, Rate, Scope};
pub use permits::{LimitPermits, PermitOptions};

use crate::entry::{decode, encode, unchanged, update, update_at};
use crate::precondition::{Deleted, Precondition};
use gate::PlaceRecord;
use keeper::Keeper;
use keys::{LIMITS, PLACES, key_of, name_of};
use plan::Me;
use record::Record;

/// How many values of headers are read at most to show limits.
const MAX_SEEN_PLACES: usize = 10_000;

/// The limits in a control store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::Queue;
/// use anyqueue_control::limits::{Limit, Limits, PermitOptions};
/// use anyqueue_worker::{Partition, TaskContext, Worker, task};
///
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push("mail", task("send_mail", &"a@example.org")?).await?;
/// let limits = Limits::new(queue.control()?);
/// limits.put("smtp server", &Limit::partition("mail")?.cap(5).rate(10.0, 20)).await?;
///
/// let worker = Worker::builder(queue)
///     .partition(Partition::new("mail"))
///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
///     .permits(limits.permits(PermitOptions::default())?)
///     .build()?;
/// assert_eq!(worker.run_once().await?.processed, 1);
/// assert_eq!(limits.get("smtp server").await?.unwrap().held, 0);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    store: ControlStore,
}

/// All limits whose entries can be read, and the names of the others.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LimitList {
    /// In the order of their names.
    pub limits: Vec<LimitInfo>,
    /// The names of limits whose entries cannot be read, and why. These limits have no effect.
    pub unreadable: Vec<(String, Error)>,
}

impl Limits {
    /// Returns the limits of a store.
    #[must_use]
    pub const fn new(store: ControlStore) -> Self {
        Self { store }
    }

    /// Sets a limit, or changes it. Workers follow it from their next beat on, within seconds. Processes that
    /// hold permits of the limit keep them. If there are several limits for one partition, all of them apply.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a bad name or limit, [`Full`](ErrorKind::Full) if there
    /// are [`MAX_LIMITS`], or an error of the server.
    pub async fn put(&self, name: &str, limit: &Limit) -> Result<()> {
        self.put_if(name, limit, &Precondition::Anything).await.map(drop)
    }

    /// Sets a limit like [`put`](Self::put), if what is there is as expected. Returns the limit that it
    /// wrote, even if somebody else has changed it since; `None` if what was there was not as expected, and
    /// nothing was changed.
    ///
    /// # Errors
    /// As [`put`](Self::put). After an error of the server the limit may have been set; then the same
    /// precondition may no longer hold.
    pub async fn put_if(
        &self,
        name: &str,
        limit: &Limit,
        expected: &Precondition,
    ) -> Result<Option<LimitInfo>> {
        limit.check()?;
        let key = key_of(name)?;
        if self.store.get(&key).await?.value.is_none() {
            self.check_count().await?;
        }
        // Looked at first, so that a failure leaves everything as it is.
        let places = self.places_of(name, limit.of()).await?;
        update_at(&self.store, &key, |there| {
            let entry = there.value.as_ref();
            let before = entry.map(read_or_replace).transpose()?.flatten();
            let tag = before.as_ref().map(Record::tag);
            if !expected.holds(entry.is_some(), tag.as_deref()) {
                return Ok((None, None));
            }
            let mut record = Record::put(limit, before);
            let change = Change::put(key.clone(), unchanged(entry), encode(&record)?);
            record.holders.lapse(there.now);
            Ok((Some(change), Some(LimitInfo::new(name, record, &places, there.now))))
        })
        .await
    }

    /// Checks whether a limit could be put, as far as that can be decided without the server.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a bad name or limit.
    pub fn check(&self, name: &str, limit: &Limit) -> Result<()> {
        limit.check()?;
        key_of(name).map(drop)
    }

    async fn check_count(&self) -> Result<()> {
        let count = self.store.list_all(LIMITS, MAX_LIMITS).await?.value.len();
        if count >= MAX_LIMITS {
            let text = format!("there are {count} limits: delete one first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        Ok(())
    }

    /// Returns a limit, and who holds its permits.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn get(&self, name: &str) -> Result<Option<LimitInfo>> {
        let found = self.store.get(&key_of(name)?).await?;
        let Some(entry) = found.value else { return Ok(None) };
        let record = Record::of(&entry, found.now)?;
        let places = self.places_of(name, &record.of).await?;
        Ok(Some(LimitInfo::new(name, record, &places, found.now)))
    }

    async fn places_of(&self, name: &str, of: &Scope) -> Result<Vec<PlaceRecord>> {
        match of {
            Scope::Partition(_) => Ok(Vec::new()),
            _ => self.places(&format!("{PLACES}{name}/")).await,
        }
    }

    /// The first places whose keys begin with `prefix`. Places that cannot be read are left out.
    async fn places(&self, prefix: &str) -> Result<Vec<PlaceRecord>> {
        let (mut places, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list(prefix, Page::of(MAX_CONTROL_CHANGES).after(after)).await?;
            places.extend(page.value.iter().filter_map(|entry| PlaceRecord::of(entry, page.now).ok()));
            after = page.value.last().map(|entry| entry.key.clone());
            if page.value.len() < MAX_CONTROL_CHANGES || places.len() >= MAX_SEEN_PLACES {
                return Ok(places);
            }
        }
    }

    /// Returns all limits.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more than [`MAX_LIMITS`], or an error of the server.
    pub async fn list(&self) -> Result<LimitList> {
        let found = self.store.list_all(LIMITS, MAX_LIMITS).await?;
        let mut all = LimitList::default();
        let places = self.places(PLACES).await?;
        for entry in &found.value {
            let name = name_of(&entry.key);
            match Record::of(entry, found.now) {
                Ok(record) => all.limits.push(LimitInfo::new(name, record, &places, found.now)),
                Err(error) => all.unreadable.push((name.to_owned(), error)),
            }
        }
        Ok(all)
    }

    /// Deletes a limit. Workers notice within seconds. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        Ok(self.delete_if(name, &Precondition::Anything).await? == Deleted::Done)
    }

    /// Deletes a limit like [`delete`](Self::delete), if it is as expected.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete_if(&self, name: &str, expected: &Precondition) -> Result<Deleted> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let tag = there.and_then(|entry| decode::<Record>(entry).ok()).map(|record| record.tag());
            let is_expected = expected.holds(there.is_some(), tag.as_deref());
            let deleted = Deleted::of(there.is_some(), is_expected);
            let doomed = there.filter(|_| deleted == Deleted::Done);
            Ok((doomed.map(|entry| Change::delete(key.clone(), unchanged(Some(entry)))), deleted))
        })
        .await
    }

    /// Makes the permits of one worker, for
    /// [`WorkerBuilder::permits`](anyqueue_worker::WorkerBuilder::permits). They are shown under the worker's
    /// name. Does no I/O. Each worker needs permits of its own.
    ///
    /// Until the store has been reached once, the worker takes on nothing. If the store cannot be reached
    /// later, the worker continues with the permits that it holds, for as long as they are valid, and with
    /// tasks that no limit applies to.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for times that do not fit together.
    pub fn permits(&self, options: PermitOptions) -> Result<LimitPermits> {
        options.check()?;
        let session = format!("{:016x}", fastrand::u64(..));
        let PermitOptions { every, valid_for } = options;
        let me = Me { session, every, valid_for };
        Ok(LimitPermits(Arc::new(Keeper::new(self.store.clone(), me))))
    }
}

/// The entry of a limit that is being put. A corrupt entry is replaced, but not one that a newer release
/// wrote.
fn read_or_replace(entry: &Entry) -> Result<Option<Record>> {
    match decode(entry) {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}
