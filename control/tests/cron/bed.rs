//! What the tests share: a store whose time they turn, nodes that run its schedules, and somebody who does the tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::Storage;
use anyqueue::{
    CancellationToken, ClockSetter, ManualClock, MessageId, PartitionId, Queue, QueueMessageStatus,
};
use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use tokio::task::JoinHandle;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);
/// Where the tasks of these tests go.
pub(crate) const TASKS: &str = "tasks";

pub(crate) struct Bed {
    pub(crate) time: ManualClock,
    /// Sets the server's time of day.
    pub(crate) server: ClockSetter,
    pub(crate) memory: MemoryQueue,
    pub(crate) queue: Queue,
    pub(crate) scheduler: Scheduler,
}

/// One process that runs schedules.
pub(crate) struct Node {
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Bed {
    /// At 2026-01-01 00:00 UTC.
    pub(crate) fn new() -> Self {
        // Pauses that are drawn are the same each time, so that a call of some number is the same one.
        fastrand::seed(1);
        let time = ManualClock::new();
        let (clock, server) = time.clock().settable();
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock));
        let queue = Queue::builder(memory.client()).clock(time.clock()).build().unwrap();
        let scheduler = Scheduler::new(&queue).unwrap();
        Self { time, server, memory, queue, scheduler }
    }

    /// A queue of another process, over this storage.
    pub(crate) fn queue_over(&self, storage: Arc<dyn Storage>) -> Queue {
        // A process that is frozen notices no time-out.
        Queue::builder(storage).clock(self.time.clock()).call_timeout(24 * HOUR).build().unwrap()
    }

    pub(crate) fn node(&self) -> Node {
        let queue = self.queue_over(Arc::new(self.memory.client()));
        Node::start(Scheduler::new(&queue).unwrap())
    }

    /// Lets time pass, in steps that let everybody come to their turn.
    pub(crate) async fn pass(&self, time: Duration) {
        self.pass_in(SECOND, time).await;
    }

    async fn pass_in(&self, step: Duration, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            self.time.advance(left.min(step));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    /// The time since the start of the test at which each task that waits was due, and its id; they are done by this.
    pub(crate) async fn done(&self) -> Vec<(u64, MessageId)> {
        done(&self.queue).await
    }

    /// Lets time pass while tasks are done as they come. Returns when they were due, in order, in seconds since the start of the test.
    pub(crate) async fn work_for(&self, time: Duration) -> Vec<u64> {
        self.work_in(SECOND, time).await
    }

    /// The same in longer steps, which take less of the machine.
    pub(crate) async fn work_in(&self, step: Duration, time: Duration) -> Vec<u64> {
        let mut done = Vec::new();
        let mut left = time;
        while !left.is_zero() {
            self.pass_in(step, step.min(left)).await;
            left = left.saturating_sub(step);
            done.extend(self.done().await.into_iter().map(|(due, _)| due));
        }
        done
    }
}

impl Node {
    pub(crate) fn start(scheduler: Scheduler) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { scheduler.run(stopped.cancelled()).await });
        Self { stop, running }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }

    /// As the death of its process.
    pub(crate) async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

/// Lets everybody come to their turn.
pub(crate) async fn settle() {
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn done(queue: &Queue) -> Vec<(u64, MessageId)> {
    let mut all = Vec::new();
    for mut task in queue.pull(TASKS).max(1000).await.unwrap() {
        all.push((due(&task.headers()["cron-at"]), task.id()));
        task.settle(QueueMessageStatus::Processed).await.unwrap();
    }
    all
}

/// In seconds since the start of the test.
fn due(text: &str) -> u64 {
    let start = Duration::from_hours(20_454 * 24);
    let due = humantime::parse_rfc3339(text).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    due.saturating_sub(start).as_secs()
}

pub(crate) fn timetable(spec: &str) -> Timetable {
    Timetable::new(spec.parse().unwrap(), Zone::utc())
}

pub(crate) fn schedule(spec: &str) -> Schedule {
    Schedule::new("a", timetable(spec), PartitionId::new(TASKS).unwrap())
}

/// The full minutes of these.
pub(crate) fn minutes(minutes: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    minutes.map(|minute| minute * 60).collect()
}

/// How often each is there.
pub(crate) fn counts(all: &[u64]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(*one).or_default() += 1;
    }
    counts
}
