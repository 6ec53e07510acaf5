//! The registry of workers: workers report to it, receive orders from it, and are noticed when they fall
//! silent.
//!
//! Each worker has one entry of the [control store](anyqueue::control), `worker/<name>`, and rewrites it with
//! each beat, in one round trip however many tasks it has. An order is written into that entry: the next beat
//! then finds a content that it does not expect, and so the worker receives the order.

mod admit;
mod external;
mod host;
mod keep;
mod kept;
mod member;
mod nodes;
mod record;
mod secret;
mod sweep;
mod usage;
mod watch;

use std::time::{Duration, SystemTime};

use anyqueue::control::{Change, ControlStore, Entry, Key};
use anyqueue::{Error, ErrorKind, MessageId, Result};

pub use admit::Admission;
pub use external::{Beat, External, Heard};
pub use host::host_name;
pub use kept::Kept;
pub use member::{Ended, Member, MemberOptions};
pub use nodes::{MAX_APPLICATION_BYTES, MAX_NODES, Node};
pub use record::{HeldTask, Order, WorkerInfo, WorkerState};
pub use sweep::LostWorker;

use crate::entry::{decode, encode, unchanged, update};
use record::Record;

pub(crate) const WORKERS: &str = "worker/";
/// How much longer than it is valid a beat is kept, at least, so that others can see what the worker held.
const KEPT: Duration = Duration::from_mins(5);

/// The largest number of workers that one list returns.
pub const MAX_WORKERS: usize = 10_000;
/// The largest number of cancellations that wait for one worker.
pub const MAX_CANCELLATIONS: usize = 512;

/// The workers that share a control store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::Queue;
/// use anyqueue_control::registry::{Ended, MemberOptions, Registry};
/// use anyqueue_worker::{Partition, TaskContext, Worker};
///
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let worker = Worker::builder(queue.clone())
///     .partition(Partition::new("mail"))
///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
///     .name("host 7")
///     .build()?;
///
/// let registry = Registry::new(queue.control()?);
/// let member = registry.join(&worker, MemberOptions::default()).await?;
/// assert_eq!(registry.list().await?.workers[0].name, "host 7");
///
/// let (summary, ended) = member.during(worker.run_once()).await; // or `worker.run()`
/// assert_eq!((summary?.processed, ended), (0, Ended::Unasked));
/// assert!(registry.list().await?.workers.is_empty());
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    store: ControlStore,
}

/// All workers whose entries can be read, and the names of the others.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Workers {
    /// The workers, in the order of their names. Some may be [lost](WorkerInfo::is_lost).
    pub workers: Vec<WorkerInfo>,
    /// The names of workers whose entries cannot be read, and why.
    pub unreadable: Vec<(String, Error)>,
    /// The time, by the server's clock.
    pub now: Option<SystemTime>,
}

/// Returns the key of a worker's entry.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for a name that is empty or too long.
pub(crate) fn key_of(name: &str) -> Result<Key> {
    if name.is_empty() || name.len() > anyqueue::MAX_KEY_BYTES {
        let most = anyqueue::MAX_KEY_BYTES;
        return Err(Error::invalid(format!("a worker's name of {} bytes: give it 1 to {most}", name.len())));
    }
    Key::new(format!("{WORKERS}{name}"))
}

/// How much longer than it is valid a beat is kept.
fn kept_for(valid: Duration) -> Duration {
    KEPT.max(valid.saturating_mul(4))
}

pub(crate) fn name_of(key: &Key) -> &str {
    key.as_str().strip_prefix(WORKERS).unwrap_or_else(|| key.as_str())
}

impl Registry {
    /// Returns the registry of a store.
    #[must_use]
    pub const fn new(store: ControlStore) -> Self {
        Self { store }
    }

    #[cfg(all(unix, feature = "supervisor"))]
    pub(crate) const fn store(&self) -> &ControlStore {
        &self.store
    }

    /// Returns all workers, up to [`MAX_WORKERS`].
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more, or an error of the server.
    pub async fn list(&self) -> Result<Workers> {
        let found = self.store.list_all(WORKERS, MAX_WORKERS).await?;
        let mut all = Workers { now: Some(found.now), ..Workers::default() };
        for entry in &found.value {
            let name = name_of(&entry.key);
            match WorkerInfo::of(name, entry) {
                Ok(worker) => all.workers.push(worker),
                Err(error) => all.unreadable.push((name.to_owned(), error)),
            }
        }
        Ok(all)
    }

    /// Returns one worker by its name.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn get(&self, name: &str) -> Result<Option<WorkerInfo>> {
        let found = self.store.get(&key_of(name)?).await?.value;
        found.map(|entry| WorkerInfo::of(name, &entry)).transpose()
    }

    /// Gives a worker an order. The worker receives it with its next beat, within seconds. If there are
    /// several orders, the last one counts. Returns whether there is such a worker.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn order(&self, name: &str, order: Order) -> Result<bool> {
        self.tell(name, |record| {
            record.order = Some(order);
            Ok(())
        })
        .await
    }

    /// Tells a worker to ask the handler of a task to stop, with its next beat. A task that this worker is
    /// not running then is not affected. Where the backend supports [requests for
    /// cancellation](anyqueue::Queue::request_cancel), those need no worker's name. Returns whether there is
    /// such a worker.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if [`MAX_CANCELLATIONS`] are waiting for the worker; if its entry cannot be
    /// read, or an error of the server.
    pub async fn cancel(&self, name: &str, id: MessageId) -> Result<bool> {
        self.tell(name, |record| {
            let id = id.to_string();
            if record.cancel.len() >= MAX_CANCELLATIONS && !record.cancel.contains(&id) {
                let text = format!(
                    "{MAX_CANCELLATIONS} cancellations wait for {name}: try again after its next beat"
                );
                return Err(Error::new(ErrorKind::Full, text));
            }
            if !record.cancel.contains(&id) {
                record.cancel.push(id);
            }
            Ok(())
        })
        .await
    }

    /// Removes the entry of a worker. A living worker registers again with its next beat. Returns whether
    /// there was an entry.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn forget(&self, name: &str) -> Result<bool> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let change = there.map(|entry| Change::delete(key.clone(), unchanged(Some(entry))));
            let was_there = change.is_some();
            Ok((change, was_there))
        })
        .await
    }

    async fn tell(&self, name: &str, mut say: impl FnMut(&mut Record) -> Result<()>) -> Result<bool> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let Some(entry) = there else { return Ok((None, false)) };
            let mut record: Record = decode(entry)?;
            say(&mut record)?;
            Ok((Some(said(&key, entry, record)?), true))
        })
        .await
    }
}

/// The entry with an order or request for its worker, which is not a sign of the worker's life.
fn said(key: &Key, entry: &Entry, mut record: Record) -> Result<Change> {
    let seen = record.seen_at(entry).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    record.seen_ms = Some(u64::try_from(seen.as_millis()).unwrap_or(u64::MAX));
    let ttl = record.ttl();
    Ok(Change::put(key.clone(), unchanged(Some(entry)), encode(&record)?).with_ttl(ttl))
}
