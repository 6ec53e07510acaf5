//! What the tests share: a store whose time they turn, and processes that hold permits.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::control::ControlStore;
use anyqueue::{CancellationToken, Clock, ClockSetter, ManualClock, PartitionId, Queue, RetryPolicy};
use anyqueue_control::limits::{LimitInfo, LimitPermits, Limits, PermitOptions};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::Permits;
use tokio::task::JoinHandle;

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn mail() -> PartitionId {
    PartitionId::new("mail").unwrap()
}

/// The longest until one process has what another has just stopped using: one beat to give it back, another to see that.
pub(crate) const BEAT_OF_EACH: Duration = Duration::from_secs(11);

/// A control store, by a clock that a test turns.
pub(crate) struct Bed {
    pub(crate) time: Arc<ManualClock>,
    /// Sets the server's time of day.
    pub(crate) server: ClockSetter,
    pub(crate) memory: MemoryQueue,
    pub(crate) store: ControlStore,
    pub(crate) limits: Limits,
}

/// A process that has permits, without the worker that would use them.
pub(crate) struct Process {
    pub(crate) permits: Arc<LimitPermits>,
    who: String,
    keeping: JoinHandle<()>,
    clock: Clock,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let time = Arc::new(ManualClock::new());
        let (clock, server) = time.clock().settable();
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        let store = store_over(Arc::new(memory.client()), &time);
        Self { time, server, memory, limits: Limits::new(store.clone()), store }
    }

    /// A process that has looked at the limits.
    pub(crate) async fn process(&self, who: &str) -> Process {
        self.process_over(&self.limits, who).await
    }

    pub(crate) async fn process_over(&self, limits: &Limits, who: &str) -> Process {
        self.process_by(limits, who, self.time.clock()).await
    }

    /// One whose time of day is that of this clock.
    pub(crate) async fn process_skewed(&self, who: &str, clock: Clock) -> Process {
        let store = store_by(Arc::new(self.memory.client()), clock.clone());
        self.process_by(&Limits::new(store), who, clock).await
    }

    async fn process_by(&self, limits: &Limits, who: &str, clock: Clock) -> Process {
        let permits = Arc::new(limits.permits(PermitOptions::default()).unwrap());
        let process = Process { keeping: keep(&permits, who, &clock), who: who.to_owned(), permits, clock };
        self.turns().await;
        process
    }

    /// Lets time pass, in steps that let everybody come to their turn.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(millis(250));
            self.time.advance(step);
            left -= step;
            self.turns().await;
        }
    }

    pub(crate) async fn turns(&self) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn info(&self) -> LimitInfo {
        self.limits.get("l").await.unwrap().unwrap()
    }
}

fn keep(permits: &Arc<LimitPermits>, who: &str, clock: &Clock) -> JoinHandle<()> {
    let (permits, clock, who) = (permits.clone(), clock.clone(), who.to_owned());
    tokio::spawn(async move { permits.keep(&who, &[mail()], &clock).await })
}

/// The control store of a client.
pub(crate) fn store_over(storage: Arc<dyn Storage>, time: &ManualClock) -> ControlStore {
    store_by(storage, time.clock())
}

fn store_by(storage: Arc<dyn Storage>, clock: Clock) -> ControlStore {
    let queue = Queue::builder(storage).clock(clock).retry(RetryPolicy::NEVER).build().unwrap();
    queue.control().unwrap()
}

impl Process {
    /// Asks for permits, and takes those that are there.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        self.permits.room(&mail(), wanted);
        self.permits.take(&mail(), wanted)
    }

    /// Asks, waits a moment, and takes.
    pub(crate) async fn get(&self, bed: &Bed, wanted: usize) -> usize {
        self.permits.room(&mail(), wanted);
        bed.turns().await;
        self.permits.take(&mail(), wanted)
    }

    /// Starts a task that has a permit.
    pub(crate) fn start(&self) -> Option<CancellationToken> {
        self.permits.start(&mail(), 1).map(|revoked| (*revoked).clone())
    }

    /// So many tasks that had started have ended.
    pub(crate) fn end(&self, tasks: usize) {
        self.permits.release(&mail(), tasks, true);
    }

    /// So many permits were not needed.
    pub(crate) fn release(&self, permits: usize) {
        self.permits.release(&mail(), permits, false);
    }

    /// It does nothing any more, as if it had been killed or frozen.
    pub(crate) async fn freeze(&mut self) {
        self.keeping.abort();
        while !self.keeping.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn wake(&mut self) {
        self.keeping = keep(&self.permits, &self.who, &self.clock);
    }

    pub(crate) async fn leave(&mut self) {
        self.freeze().await;
        self.permits.leave().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}
