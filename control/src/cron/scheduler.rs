//! The handle, and what its parts share. It knows none of these parts.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::adapter::{Dedup, MoveGuarantee};
use anyqueue::control::ControlStore;
use anyqueue::{Error, ErrorKind, Queue, Result};

/// How many names of unreadable entries are remembered; beyond it there is no warning.
const MAX_WARNED: usize = 1000;

/// The schedules of a control store, and the loops that run them: see the [module](super).
///
/// Cheap to clone; clones are the same scheduler.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::{PartitionId, Queue};
/// use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
///
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let scheduler = Scheduler::new(&queue)?;
/// let timetable = Timetable::new("* * * * * *".parse()?, Zone::utc());
/// scheduler.put(&Schedule::new("beat", timetable, PartitionId::new("beats")?)).await?;
///
/// let stop = async { while queue.pull("beats").await.is_ok_and(|beats| beats.is_empty()) { tokio::task::yield_now().await } };
/// scheduler.run(stop).await; // any number of processes may do so
/// assert!(scheduler.get("beat").await?.unwrap().next_at.is_some());
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Scheduler(pub(super) Arc<Shared>);

/// What the parts of a scheduler share.
pub(super) struct Shared {
    /// The queue that holds the schedules and their ticks.
    pub(super) home: Queue,
    pub(super) store: ControlStore,
    /// The queue that tasks are pushed to.
    pub(super) tasks: Queue,
    /// Whether a task is stored in one step with the settlement of its tick.
    pub(super) in_one_step: bool,
    warned: Mutex<HashSet<String>>,
}

impl Scheduler {
    /// Makes a scheduler whose schedules are kept with the queue that their tasks are pushed to.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the backend keeps no control entries: see
    /// [`beside`](Self::beside).
    pub fn new(queue: &Queue) -> Result<Self> {
        let in_one_step = queue.capabilities().successors == Some(MoveGuarantee::Atomic);
        Self::of(queue, queue, in_one_step)
    }

    /// Makes a scheduler whose tasks are pushed to one queue, and whose schedules are kept with another one,
    /// `home`. All schedulers with the same `home` must push to the same queue.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the backend of `home` keeps no control entries.
    pub fn beside(queue: &Queue, home: &Queue) -> Result<Self> {
        Self::of(queue, home, false)
    }

    fn of(tasks: &Queue, home: &Queue, in_one_step: bool) -> Result<Self> {
        let store = home.control()?;
        let can = home.capabilities();
        if can.dedup != Dedup::WhileLive || can.push_delay.is_none() || can.successors.is_none() {
            let text = "schedules need deduplication keys, delays and successors where they are kept";
            return Err(Error::new(ErrorKind::Unsupported, text).with_backend(home.storage().name()));
        }
        let (home, tasks) = (home.clone(), tasks.clone());
        Ok(Self(Arc::new(Shared { home, store, tasks, in_one_step, warned: Mutex::default() })))
    }
}

impl Shared {
    /// Warns once of an entry that cannot be read.
    pub(super) fn warn_once(&self, name: &str, error: &Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MAX_WARNED && warned.insert(name.to_owned()) {
            tracing::warn!(schedule = name, %error, "a schedule cannot be read, and is left alone");
        }
    }

    /// Notes that an entry can be read, so that a later error causes a warning again.
    pub(super) fn can_be_read(&self, name: &str) {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { home, tasks, in_one_step, .. } = &*self.0;
        f.debug_struct("Scheduler")
            .field("home", home)
            .field("tasks", tasks)
            .field("in_one_step", in_one_step)
            .finish_non_exhaustive()
    }
}
