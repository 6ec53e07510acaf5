//! How many at once, and how fast: limits that all processes of an application share.
//!
//! Each limit is one entry of the [control store](anyqueue::control), `limit/<name>`. A *cap* says how many tasks run at once: each process takes a block of
//! permits, renews it with its beat, and gives back what it does not need. Blocks end by themselves, so nothing leaks when a process dies, and the sum of
//! those that live is never more than the cap. A *rate* says how fast tasks start, with a burst after a pause.
//!
//! Limits of a partition act before a pull: a worker pulls no more than it has permits for. It cannot then hold what another could run. Limits of a kind, and of
//! each value of a header, act when the message is at hand: one that may not start is postponed, uncounted, and those behind it go on.
//!
//! - **A worker that cannot renew** its block starts nothing in the last third of its validity, and its tasks are asked to stop a sixth of it before the end.
//!   They are released, uncounted. So a cap also holds for a process that is cut off. Only one that is frozen can exceed it: until it wakes up.
//! - **A cap that is lowered** below what runs interrupts nothing. Nothing starts until enough have ended.
//! - **While others want permits** and there are none, each process keeps its fair share, and what the others do not want.
//! - **A rate** counts from the moment at which the store grants a start. The task starts within a tenth of a second of that, or its turn is forgone.

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

/// Values of headers that a look at limits reads, at most.
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

/// All limits, as far as their entries can be read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LimitList {
    /// In the order of their names.
    pub limits: Vec<LimitInfo>,
    /// The names of those whose entries cannot be read, and why. Nobody obeys them.
    pub unreadable: Vec<(String, Error)>,
}

impl Limits {
    /// The limits of a store.
    #[must_use]
    pub const fn new(store: ControlStore) -> Self {
        Self { store }
    }

    /// Sets a limit, or changes it. Workers obey it from their next beat on, within seconds. Who holds permits of it keeps them. Where several limits are
    /// for one partition, all of them hold.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a bad name or limit, [`Full`](ErrorKind::Full) if there are [`MAX_LIMITS`], or the server's.
    pub async fn put(&self, name: &str, limit: &Limit) -> Result<()> {
        self.put_if(name, limit, &Precondition::Anything).await.map(drop)
    }

    /// Sets a limit as [`put`](Self::put), if what is there is as expected. Returns what it wrote, also if somebody else has changed it since; `None` if it was not
    /// as expected, and nothing is changed.
    ///
    /// # Errors
    /// As [`put`](Self::put). Where the server's may have set it, the same precondition may not hold any more.
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
        // Looked at before, so that a failure leaves all as it is.
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

    /// Whether a limit could be put, as far as that can be told without the server.
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

    /// One limit, and who holds its permits.
    ///
    /// # Errors
    /// If its entry cannot be read, or the server's.
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

    /// The first of the places whose keys begin so. Those that cannot be read are left out.
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

    /// All limits.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more than [`MAX_LIMITS`], or the server's.
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

    /// Deletes a limit: workers see within seconds that there is none. Returns whether there was one.
    ///
    /// # Errors
    /// The server's.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        Ok(self.delete_if(name, &Precondition::Anything).await? == Deleted::Done)
    }

    /// Deletes a limit as [`delete`](Self::delete), if it is as expected.
    ///
    /// # Errors
    /// The server's.
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

    /// The permits of one worker, for [`WorkerBuilder::permits`](anyqueue_worker::WorkerBuilder::permits). They are shown under its name. Does no I/O. Each worker
    /// needs its own.
    ///
    /// Until the store has been reached once, the worker takes on nothing. If it cannot be reached later, the worker goes on with what it holds as long as that
    /// counts, and with what no limit is for.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for times that do not fit.
    pub fn permits(&self, options: PermitOptions) -> Result<LimitPermits> {
        options.check()?;
        let session = format!("{:016x}", fastrand::u64(..));
        let PermitOptions { every, valid_for } = options;
        let me = Me { session, every, valid_for };
        Ok(LimitPermits(Arc::new(Keeper::new(self.store.clone(), me))))
    }
}

/// What is there of a limit that is put. What nobody can read is replaced, but not what a newer release wrote.
fn read_or_replace(entry: &Entry) -> Result<Option<Record>> {
    match decode(entry) {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}
