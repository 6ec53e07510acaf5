//! What a ledger, or a registry and a limit, cost: a worker drains the same queue with and without them. Only
//! our side is measured: no hand-written client has any of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{Beside, Keep, MessageData, PartitionOptions, Queue, TaskFilter, TaskState};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_worker::{Partition, Worker, WorkerBuilder, header};
use tokio::sync::Notify;

use super::ROUND_AT_MOST;
use super::load::{FILL, expect, number, payloads};
use super::size::{Size, TASKS, per_second};
use crate::client::{LEASE, Result};
use crate::ours::{PARTITION, left_in};

/// The kind of all tasks.
const KIND: &str = "noop";
/// The name of the limit.
const LIMIT: &str = "bench";
/// More than ever run at once.
const CAP: u64 = 1000;
/// The time between two beats of the registry and of the limit: a tenth of the default, so that some fall
/// into a round.
const BEAT: Duration = Duration::from_millis(500);

/// What a worker drains with, in addition to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// A ledger, which keeps the end of each task.
    Ledger,
    /// A registry in which the worker reports itself, and a cap that is not reached.
    Control,
}

/// Drains the queue at this URL with what was added, and returns messages per second. A ledger with its own
/// URL is beside the queue.
pub(crate) async fn drained(
    url: &str,
    ledger_url: Option<&str>,
    added: Option<Added>,
    size: Size,
) -> Result<f64> {
    let queue = open(url, ledger_url, added).await?;
    let took = tokio::time::timeout(ROUND_AT_MOST, drain(&queue, added, size))
        .await
        .map_err(|_| format!("not done after {ROUND_AT_MOST:?}: is a message missing?"))??;
    queue.close().await?;
    Ok(per_second(size.messages, took))
}

async fn open(url: &str, ledger_url: Option<&str>, added: Option<Added>) -> Result<Queue> {
    let mut storage: Arc<dyn Storage> = anyqueue_backends::open(url).await?;
    if let Some(ledger_url) = ledger_url {
        storage = Arc::new(Beside::new(storage, anyqueue_backends::open(ledger_url).await?)?);
    }
    let builder = Queue::builder(storage).defaults(PartitionOptions::default().with_lease(LEASE));
    let builder = if added == Some(Added::Ledger) { builder.ledger(Keep::default()) } else { builder };
    let queue = builder.build()?;
    queue.init().await?;
    Ok(queue)
}

/// Fills the queue, drains it, and checks that each task was handled once, that no message is left, and,
/// where ends are kept, that each task has its end.
async fn drain(queue: &Queue, added: Option<Added>, size: Size) -> Result<Duration> {
    fill(queue, size).await?;
    let tally = Arc::new(Tally::new(size));
    let worker = Worker::builder(queue.clone()).partition(Partition::new(PARTITION)).slots(TASKS);
    let worker = worker.raw_handler(KIND, {
        let tally = tally.clone();
        move |payload, _| {
            tally.handle(&payload);
            async { Ok(()) }
        }
    });
    let took = match added {
        Some(Added::Control) => controlled(queue, worker, &tally).await?,
        Some(Added::Ledger) | None => tally.drained_by(&worker.build()?).await?,
    };
    expect("messages in the queue", usize::try_from(left_in(queue).await?)?, 0)?;
    if added == Some(Added::Ledger) {
        let filter = TaskFilter::new().in_state(TaskState::Succeeded);
        let ended = queue.count_tasks(PARTITION, &filter, size.messages as u64 + 1).await?;
        expect("ends kept", usize::try_from(ended.value)?, size.messages)?;
    }
    Ok(took)
}

async fn controlled(queue: &Queue, worker: WorkerBuilder, tally: &Tally) -> Result<Duration> {
    let limits = Limits::new(queue.control()?);
    limits.put(LIMIT, &Limit::partition(PARTITION)?.cap(CAP)).await?;
    let worker = worker.permits(limits.permits(PermitOptions::default().with_every(BEAT))?).build()?;
    let registry = Registry::new(queue.control()?);
    let member = registry.join(&worker, MemberOptions::default().with_every(BEAT)).await?;
    expect("workers in the registry", registry.list().await?.workers.len(), 1)?;
    let (took, _) = member.during(tally.drained_by(&worker)).await;
    let limit = limits.get(LIMIT).await?.ok_or("the limit is gone")?;
    expect("permits held at the end", usize::try_from(limit.held)?, 0)?;
    took
}

async fn fill(queue: &Queue, size: Size) -> Result<()> {
    let task = |payload| MessageData::from_bytes(payload).with_header(header::KIND, KIND);
    for first in (0..size.messages).step_by(FILL) {
        let payloads = payloads(first, FILL.min(size.messages - first), size.payload_bytes);
        for stored in queue.push_many(PARTITION, payloads.into_iter().map(task).collect()).await? {
            stored?;
        }
    }
    Ok(())
}

/// Which tasks were handled.
struct Tally {
    handled: Vec<AtomicBool>,
    payload_bytes: usize,
    left: AtomicUsize,
    all: Notify,
    /// Tasks that came again, or with a payload that is not theirs.
    wrong: AtomicUsize,
}

impl Tally {
    fn new(size: Size) -> Self {
        Self {
            handled: (0..size.messages).map(|_| AtomicBool::new(false)).collect(),
            payload_bytes: size.payload_bytes,
            left: AtomicUsize::new(size.messages),
            all: Notify::new(),
            wrong: AtomicUsize::new(0),
        }
    }

    fn handle(&self, payload: &[u8]) {
        let index = number(payload).ok().and_then(|number| usize::try_from(number).ok());
        let handled = index.and_then(|index| self.handled.get(index));
        let is_new = handled.is_some_and(|handled| !handled.swap(true, Ordering::Relaxed));
        if !is_new || payload.len() != self.payload_bytes {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        if is_new && self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.notify_one();
        }
    }

    /// Returns the time from the start of the worker until all is settled.
    async fn drained_by(&self, worker: &Worker) -> Result<Duration> {
        let start = Instant::now();
        let summary = worker.run_until(self.all.notified()).await?;
        let took = start.elapsed();
        expect("tasks processed", usize::try_from(summary.processed)?, self.handled.len())?;
        expect("tasks that came wrong or again", self.wrong.load(Ordering::Relaxed), 0)?;
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::payload;
    use super::*;

    const SIZE: Size = Size { messages: 300, payload_bytes: 64 };

    #[tokio::test]
    async fn each_way_drains_all_and_keeps_what_it_is_to_keep() {
        for added in [None, Some(Added::Ledger), Some(Added::Control)] {
            assert!(drained("memory:", None, added, SIZE).await.unwrap() > 0.0, "{added:?}");
        }
        assert!(
            drained("memory:", Some("memory:"), Some(Added::Ledger), SIZE).await.unwrap() > 0.0,
            "beside"
        );
    }

    #[test]
    fn a_task_that_comes_again_and_one_that_was_changed_are_noticed() {
        let tally = Tally::new(SIZE);
        let [first, second, third] = [0, 1, 300].map(|number| payload(number, SIZE.payload_bytes));
        tally.handle(&first);
        assert_eq!(tally.wrong.load(Ordering::Relaxed), 0);
        for wrong in [&first[..], &second[..63], &third[..], b"short"] {
            let before = tally.wrong.load(Ordering::Relaxed);
            tally.handle(wrong);
            assert_eq!(tally.wrong.load(Ordering::Relaxed), before + 1);
        }
        assert_eq!(tally.left.load(Ordering::Relaxed), 298);
    }
}
