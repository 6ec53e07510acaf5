//! Sets too large to enqueue, worked through by a few messages.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::{ErrorKind, PartitionOptions, Queue, QueueMessageStatus};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{
    MAX_WIDTH, Part, Partition, Retry, TaskContext, TaskError, TaskResult, WorkSet, WorkSource, Worker,
    header,
};

/// The numbers below this.
struct Numbers(u64);

impl WorkSource for Numbers {
    type Item = u64;

    async fn next(
        &self,
        part: Part,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, u64)>, TaskError> {
        let first = match after {
            Some(cursor) => cursor.parse::<u64>()? + part.of as u64,
            None => part.number as u64,
        };
        Ok((first..self.0).step_by(part.of).take(max).map(|number| (number.to_string(), number)).collect())
    }
}

/// How often each number was done.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Done {
    fn note(&self, number: u64) {
        *self.0.lock().unwrap().entry(number).or_default() += 1;
    }

    fn times(&self) -> BTreeMap<u64, u32> {
        self.0.lock().unwrap().clone()
    }

    fn each_once(&self, count: u64) {
        let times = self.times();
        assert_eq!(times.len() as u64, count);
        assert!(times.values().all(|times| *times == 1), "{times:?}");
    }
}

fn set(width: usize, count: u64) -> WorkSet<Numbers> {
    WorkSet::new("numbers", width, Numbers(count)).unwrap().chunk(7)
}

fn worker<F, Fut>(queue: &Queue, set: WorkSet<Numbers>, handler: F) -> Worker
where
    F: Fn(u64, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = TaskResult> + Send + 'static,
{
    let retry = Retry::exponential(Duration::from_millis(1)).max(3);
    let builder = Worker::builder(queue.clone()).partition(Partition::new("sets")).retry(retry);
    builder.work_set(set, handler).build().unwrap()
}

async fn left(queue: &Queue) -> u64 {
    let counts = queue.counts("sets").await.unwrap();
    [counts.ready, counts.delayed, counts.leased].into_iter().flatten().sum()
}

#[tokio::test]
async fn each_item_is_done_once_by_no_more_messages_than_parts() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let (done, most) = (Done::default(), Arc::new(AtomicU64::new(0)));
    assert_eq!(set(3, 500).start(&queue, "sets").await.unwrap(), 3);
    let (noted, seen, counted) = (done.clone(), most.clone(), queue.clone());
    let handler = move |number, _: TaskContext| {
        let (noted, seen, counted) = (noted.clone(), seen.clone(), counted.clone());
        async move {
            noted.note(number);
            seen.fetch_max(left(&counted).await, SeqCst);
            Ok(())
        }
    };
    worker(&queue, set(3, 500), handler).run_once().await.unwrap();
    done.each_once(500);
    assert_eq!((most.load(SeqCst), left(&queue).await), (3, 0));
}

#[tokio::test]
async fn what_is_under_way_is_not_started_twice() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    assert_eq!(set(4, 100).start(&queue, "sets").await.unwrap(), 4);
    assert_eq!(set(4, 100).start(&queue, "sets").await.unwrap(), 0);
    let done = Done::default();
    let noted = done.clone();
    let handler = move |number, _: TaskContext| {
        noted.note(number);
        async { Ok(()) }
    };
    worker(&queue, set(4, 100), handler).run_once().await.unwrap();
    done.each_once(100);
    assert_eq!(set(4, 100).start(&queue, "sets").await.unwrap(), 4, "a part that has ended begins again");
}

/// One process: its own runtime, client and worker, which end in the middle of what they do.
fn process(store: &MemoryQueue, done: &Done, budget: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (noted, budget) = (done.clone(), Arc::new(AtomicU32::new(budget)));
    let (cut, at_the_cut) = tokio::sync::oneshot::channel::<()>();
    let cut = Arc::new(Mutex::new(Some(cut)));
    let handler = move |number, _: TaskContext| {
        let (noted, budget, cut) = (noted.clone(), budget.clone(), cut.clone());
        async move {
            if budget.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
                drop(cut.lock().unwrap().take());
                std::future::pending::<()>().await;
            }
            noted.note(number);
            Ok(())
        }
    };
    let options = PartitionOptions::default().with_lease(Duration::from_millis(100));
    runtime.block_on(async {
        let queue = Queue::builder(store.client()).defaults(options).build().unwrap();
        let builder = Worker::builder(queue.clone()).partition(Partition::new("sets")).max_crashes(1000);
        let worker = builder.work_set(set(4, 600), handler).build().unwrap();
        tokio::select! {
            _ = at_the_cut => {}
            // What the processes before it held is not there yet.
            ended = worker.run_once() => {
                ended.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    runtime.shutdown_background();
}

#[test]
fn a_process_that_is_cut_off_anywhere_skips_nothing() {
    let (store, done) = (MemoryQueue::new(), Done::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let queue = Queue::new(store.client()).unwrap();
        set(4, 600).start(&queue, "sets").await.unwrap();
        queue.close().await.unwrap();
    });
    let mut cuts = 0;
    while done.times().len() < 600 {
        process(&store, &done, fastrand::u32(1..60));
        cuts += 1;
        assert!(cuts < 1000, "it does not come to an end: {} of 600", done.times().len());
    }
    let again: u32 = done.times().values().map(|times| times - 1).sum();
    assert!(again <= cuts * 4 * 7, "{again} again after {cuts} cuts");
}

#[tokio::test]
async fn a_shutdown_stores_how_far_it_came() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let done = Done::default();
    set(2, 200).start(&queue, "sets").await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (noted, stop) = (done.clone(), Arc::new(Mutex::new(Some(stop))));
    let handler = move |number, _: TaskContext| {
        let (noted, stop) = (noted.clone(), stop.clone());
        async move {
            noted.note(number);
            tokio::time::sleep(Duration::from_millis(1)).await;
            if number == 61
                && let Some(stop) = stop.lock().unwrap().take()
            {
                stop.send(()).unwrap();
            }
            Ok(())
        }
    };
    let first = Worker::builder(queue.clone())
        .partition(Partition::new("sets"))
        .drain(Duration::ZERO, Duration::from_secs(5))
        .work_set(set(2, 200), handler)
        .build()
        .unwrap();
    first.run_until(async { drop(stopped.await) }).await.unwrap();
    assert!(done.times().len() < 200, "it was shut down in the middle");
    let noted = done.clone();
    let handler = move |number, _: TaskContext| {
        noted.note(number);
        async { Ok(()) }
    };
    worker(&queue, set(2, 200), handler).run_once().await.unwrap();
    done.each_once(200);
}

#[tokio::test]
async fn an_item_that_fails_is_tried_again_from_there() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let (done, failures) = (Done::default(), Arc::new(AtomicU32::new(0)));
    set(2, 100).start(&queue, "sets").await.unwrap();
    let (noted, failed) = (done.clone(), failures.clone());
    let handler = move |number, task: TaskContext| {
        let (noted, failed) = (noted.clone(), failed.clone());
        async move {
            // In a run that has come some way it fails once more than it is counted.
            if number == 24 && failed.fetch_add(1, SeqCst) < 3 {
                return Err(TaskError::retry("not yet"));
            }
            assert!(number != 24 || task.attempt() == 3);
            noted.note(number);
            Ok(())
        }
    };
    let worker = worker(&queue, set(2, 100), handler);
    let running = worker.run_until(async {
        while left(&queue).await > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    running.await.unwrap();
    done.each_once(100);
    assert_eq!(failures.load(SeqCst), 4);
}

#[tokio::test]
async fn a_part_that_dies_keeps_its_cursor_and_goes_on_after_a_redrive() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let (done, broken) = (Done::default(), Arc::new(AtomicU32::new(1)));
    set(2, 100).start(&queue, "sets").await.unwrap();
    let (noted, is_broken) = (done.clone(), broken.clone());
    let handler = move |number, _: TaskContext| {
        let (noted, is_broken) = (noted.clone(), is_broken.clone());
        async move {
            if number == 24 && is_broken.load(SeqCst) == 1 {
                return Err(TaskError::permanent("broken"));
            }
            noted.note(number);
            Ok(())
        }
    };
    let worker = worker(&queue, set(2, 100), handler);
    worker.run_once().await.unwrap();
    assert_eq!(done.times().len(), 50 + 12, "the other part is done, and this one up to what is broken");
    let dead: Vec<_> = queue.pull(anyqueue::PartitionId::new("sets").unwrap().dead_letters()).await.unwrap();
    assert_eq!(dead[0].headers()[header::CURSOR], "22");
    for mut letter in dead {
        letter.settle(QueueMessageStatus::Waiting).await.unwrap();
    }
    broken.store(0, SeqCst);
    queue.dead_letters("sets").unwrap().redrive().await.unwrap();
    worker.run_once().await.unwrap();
    done.each_once(100);
}

#[tokio::test]
async fn a_million_items_are_worked_through_by_eight_messages() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let (count, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let million = || WorkSet::new("million", 8, Numbers(1_000_000)).unwrap().chunk(1000);
    million().start(&queue, "sets").await.unwrap();
    let (counted, summed) = (count.clone(), sum.clone());
    let handler = move |number, _: TaskContext| {
        counted.fetch_add(1, SeqCst);
        summed.fetch_add(number, SeqCst);
        async { Ok(()) }
    };
    worker(&queue, million(), handler).run_once().await.unwrap();
    assert_eq!((count.load(SeqCst), sum.load(SeqCst)), (1_000_000, 999_999 * 500_000));
}

#[test]
fn bad_sets_are_refused_with_what_is_allowed() {
    for (name, width) in [("", 1), ("x", 0), ("x", MAX_WIDTH + 1)] {
        let error = WorkSet::new(name, width, Numbers(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("allowed"), "{error}");
    }
    assert!(WorkSet::new("x".repeat(129), 1, Numbers(1)).is_err());
}
