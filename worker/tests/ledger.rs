//! What the ledger has of the tasks that a worker ran.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::{Forward, Settlement, Storage, async_trait};
use anyqueue::{
    CancelOutcome, Error, ErrorKind, Keep, MAX_RESULT_BYTES, ManualClock, MessageId, Queue, SettleOutcome,
    Task, TaskFilter, TaskState,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{
    BatchContext, Failure, Partition, Retry, TaskContext, TaskError, TaskResult, Worker, WorkerBuilder, task,
};
use futures_util::TryStreamExt as _;
use tokio::sync::mpsc;

/// No run here takes as long; one that does never ends.
const PATIENCE: Duration = Duration::from_mins(1);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A worker named `w` of `jobs`, whose tasks of the kind `k` this handler runs.
fn harness<F, Fut>(retry: Retry, handler: F) -> Harness
where
    F: Fn(u32, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = TaskResult> + Send + 'static,
{
    let build = |worker: WorkerBuilder| {
        worker.name("w").partition(Partition::new("jobs").retry(retry)).handler("k", handler)
    };
    Harness::new(build).unwrap()
}

fn steady() -> Retry {
    Retry::exponential(secs(10)).jitter(0.0)
}

async fn found(harness: &Harness, id: MessageId) -> Task {
    harness.queue().task("jobs", id).await.unwrap().unwrap()
}

fn errors(task: &Task) -> Vec<(u32, String)> {
    let errors: Vec<Failure> = serde_json::from_str(task.errors.as_deref().unwrap_or("[]")).unwrap();
    errors.into_iter().map(|failure| (failure.attempt, failure.error)).collect()
}

#[tokio::test]
async fn the_last_result_is_kept_with_what_is_known_of_the_run() {
    let harness = harness(steady(), |number, task| async move {
        task.set_result("not the last")?;
        task.set_result(vec![number, number + 1])?;
        task.clock().sleep(secs(3)).await;
        Ok(())
    });
    let id = harness.push("jobs", "k", &7_u32).await.unwrap();
    harness.advance(secs(5)).await;
    let (ran, ()) = tokio::join!(harness.run(), harness.advance(secs(3)));
    assert_eq!(ran.unwrap().processed, 1);
    let task = found(&harness, id).await;
    assert_eq!((task.state, task.result.as_deref()), (TaskState::Succeeded, Some(&b"[7,8]"[..])));
    assert_eq!((task.attempt, task.worker.as_deref(), task.kind.as_deref()), (1, Some("w"), Some("k")));
    assert_eq!((task.waited, task.ran), (Some(secs(5)), Some(secs(3))));
    assert_eq!((task.reason, task.errors), (None, None));
}

#[tokio::test]
async fn bytes_are_a_result_as_they_are_and_a_handler_that_sets_none_has_none() {
    let harness = harness(steady(), |number, task| async move {
        if number == 0 {
            task.set_result_bytes(&b"\xff\x00"[..])?;
        }
        Ok(())
    });
    let with = harness.push("jobs", "k", &0_u32).await.unwrap();
    let without = harness.push("jobs", "k", &1_u32).await.unwrap();
    harness.run().await.unwrap();
    assert_eq!(found(&harness, with).await.result.as_deref(), Some(&b"\xff\x00"[..]));
    assert_eq!(found(&harness, without).await.result, None);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_an_error_to_the_handler_and_the_task_goes_on() {
    let harness = harness(steady(), |_, task| async move {
        task.set_result_bytes(vec![b'x'; MAX_RESULT_BYTES])?;
        let refused = task.set_result("y".repeat(MAX_RESULT_BYTES)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        Ok(())
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    assert_eq!(harness.run().await.unwrap().processed, 1);
    let task = found(&harness, id).await;
    assert_eq!(task.state, TaskState::Succeeded);
    assert_eq!(task.result.map(|result| result.len()), Some(MAX_RESULT_BYTES), "what was set before stays");
}

#[tokio::test]
async fn a_task_that_failed_before_it_succeeded_tells_of_both_and_only_of_the_last_result() {
    let harness = harness(steady().max(5), |_, task| async move {
        if task.attempt() == 1 {
            task.set_result("of the failure")?;
            return Err(TaskError::retry("not yet"));
        }
        Ok(())
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    assert_eq!(harness.run().await.unwrap().retried, 1);
    assert_eq!(found(&harness, id).await.state, TaskState::Scheduled, "a retry is no end");
    harness.advance(secs(10)).await;
    assert_eq!(harness.run().await.unwrap().processed, 1);
    let task = found(&harness, id).await;
    assert_eq!((task.state, task.attempt, &task.result), (TaskState::Succeeded, 2, &None));
    assert_eq!(errors(&task), [(1, "not yet".to_owned())]);
}

#[tokio::test]
async fn what_a_handler_noted_is_kept_with_its_end_and_not_what_an_attempt_before_it_noted() {
    let harness = harness(steady().max(5), |_, task| async move {
        if task.attempt() == 1 {
            task.log("of the failure");
            task.set_progress("1 of 12");
            return Err(TaskError::retry("not yet"));
        }
        task.log("begun");
        task.clock().sleep(secs(3)).await;
        task.log(format!("read {} rows\nwrote them", 12));
        Ok(())
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    assert_eq!(harness.run().await.unwrap().retried, 1);
    assert_eq!(found(&harness, id).await.log, None);
    harness.advance(secs(10)).await;
    let (ran, ()) = tokio::join!(harness.run(), harness.advance(secs(3)));
    assert_eq!(ran.unwrap().processed, 1);
    let log = "+0.000s begun\n+3.000s read 12 rows\n+3.000s wrote them\n";
    let kept = found(&harness, id).await;
    assert_eq!((kept.log.as_deref(), kept.progress), (Some(log), None));
    let listed: Vec<_> =
        harness.queue().tasks("jobs", TaskFilter::new()).unwrap().try_collect().await.unwrap();
    assert_eq!(listed.iter().map(|task| (task.id, &task.log)).collect::<Vec<_>>(), [(id, &None)]);
}

#[tokio::test]
async fn a_dead_task_has_failed_and_so_has_one_that_panicked_or_took_too_long_at_last() {
    let harness = harness(Retry::never(), |number, task| async move {
        match number {
            0 => Err(TaskError::retry("no luck")),
            1 => panic!("as the test wants"),
            _ => {
                task.cancelled().await;
                Err(TaskError::retry("stopped"))
            }
        }
    });
    for number in 0..3_u32 {
        let message = task("k", &number).unwrap().with_max_duration(secs(20));
        harness.push_message("jobs", message).await.unwrap();
    }
    let (ran, ()) = tokio::join!(harness.run(), harness.advance(secs(21)));
    assert_eq!(ran.unwrap().dead, 3);
    for (letter, word) in harness.dead("jobs").await.unwrap().iter().zip(["no luck", "panicked", "timed_out"])
    {
        let task = found(&harness, letter.message.id()).await;
        assert_eq!((task.state, task.result), (TaskState::Failed, None));
        assert!(task.reason.as_deref().unwrap().contains(word), "{:?}", task.reason);
        // The first two end at once, the last when its time is over.
        let least = if word == "timed_out" { secs(20) } else { Duration::ZERO };
        assert!(task.worker.as_deref() == Some("w") && task.ran >= Some(least), "{:?}", task.ran);
    }
}

#[tokio::test]
async fn what_is_cancelled_while_it_runs_has_ended_as_cancelled() {
    let harness = harness(steady(), |_, task| async move {
        task.set_result("in vain")?;
        task.log("not in vain");
        task.set_progress("8 of 9");
        task.cancelled().await;
        Err(TaskError::retry("stopped"))
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    let cancel = async {
        harness.advance(secs(1)).await;
        let answers = harness.queue().request_cancel("jobs", &[id]).await.unwrap();
        assert_eq!(*answers[0].as_ref().unwrap(), CancelOutcome::Requested);
        harness.advance(secs(30)).await;
    };
    let (ran, ()) = tokio::join!(harness.run(), cancel);
    assert_eq!(ran.unwrap().cancelled, 1);
    let task = found(&harness, id).await;
    assert_eq!((task.state, task.attempt, &task.result), (TaskState::Cancelled, 1, &None));
    assert_eq!((task.reason.as_deref(), task.worker.as_deref()), (Some("cancelled while it ran"), Some("w")));
    let notes = (task.log.as_deref(), task.progress.as_deref());
    assert_eq!(notes, (Some("+0.000s not in vain\n"), Some("8 of 9")));
}

#[tokio::test]
async fn an_attempt_that_is_retried_as_a_new_message_has_failed_and_the_retry_has_an_end_of_its_own() {
    let harness = harness(steady().as_new_message(), |_, task| async move {
        task.set_result(task.attempt())?;
        if task.attempt() == 1 { Err(TaskError::retry("once")) } else { Ok(()) }
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    harness.run().await.unwrap();
    harness.advance(secs(10)).await;
    assert_eq!(harness.run().await.unwrap().processed, 1);

    let first = found(&harness, id).await;
    assert_eq!((first.state, first.attempt, &first.result), (TaskState::Failed, 1, &None));
    assert_eq!(errors(&first), [(1, "once".to_owned())], "this attempt is among them");
    let reason = first.reason.as_deref().unwrap();
    let (why, retry) = reason.split_once("; retried as ").unwrap();
    assert_eq!(why, "failed in attempt 1: once");

    let second = found(&harness, retry.parse().unwrap()).await;
    assert_eq!((second.state, second.attempt), (TaskState::Succeeded, 2));
    assert_eq!((second.result.as_deref(), errors(&second).len()), (Some(&b"2"[..]), 1));
}

#[tokio::test]
async fn an_attempt_that_took_too_long_and_is_retried_as_a_new_message_has_timed_out() {
    let build = |worker: WorkerBuilder| {
        let partition = Partition::new("jobs").retry(steady().as_new_message()).timeout(secs(20));
        worker.partition(partition).retry_timeouts(true).handler(
            "k",
            |_: u32, task: TaskContext| async move {
                task.cancelled().await;
                Err(TaskError::retry("stopped"))
            },
        )
    };
    let harness = Harness::new(build).unwrap();
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    let (ran, ()) = tokio::join!(harness.run(), harness.advance(secs(21)));
    assert_eq!(ran.unwrap().retried, 1);
    assert_eq!(found(&harness, id).await.state, TaskState::TimedOut);
}

#[tokio::test]
async fn each_task_of_a_batch_has_its_own_result() {
    let build = |worker: WorkerBuilder| {
        let handler = |tasks: Vec<anyqueue_worker::Task<u32>>, _: BatchContext| async move {
            let mut results = Vec::new();
            for task in tasks {
                task.context.set_result(task.payload * 10).unwrap();
                results.push(if task.payload == 1 { Err(TaskError::permanent("odd")) } else { Ok(()) });
            }
            results
        };
        worker.name("w").partition(Partition::new("jobs").whole_groups(9)).batch_handler("k", handler)
    };
    let harness = Harness::new(build).unwrap();
    let mut ids = Vec::new();
    for number in 0..3_u32 {
        let message = task("k", &number).unwrap().with_group("g");
        ids.push(harness.push_message("jobs", message).await.unwrap());
    }
    harness.run().await.unwrap();
    let mut ends = Vec::new();
    for id in ids {
        let task = found(&harness, id).await;
        assert_eq!(task.attempt, 1);
        ends.push((task.state, task.result.map(|result| String::from_utf8(result.to_vec()).unwrap())));
    }
    let succeeded = |result: &str| (TaskState::Succeeded, Some(result.to_owned()));
    assert_eq!(ends, [succeeded("0"), (TaskState::Failed, None), succeeded("20")]);
}

#[tokio::test]
async fn a_run_whose_lease_was_lost_stores_no_end() {
    let (say, mut said) = mpsc::channel(9);
    let harness = harness(steady(), move |_, task| {
        let say = say.clone();
        async move {
            let is_first = task.delivery_count() == Some(1);
            task.set_result(if is_first { "lost" } else { "kept" })?;
            say.send(is_first).await?;
            if is_first {
                task.cancelled().await;
            }
            Ok(())
        }
    });
    let id = harness.push("jobs", "k", &0_u32).await.unwrap();
    let watch = async {
        assert_eq!(said.recv().await, Some(true));
        harness.stall(secs(31));
        assert_eq!(said.recv().await, Some(false));
    };
    let (ran, ()) = tokio::join!(harness.run(), watch);
    let ran = ran.unwrap();
    assert_eq!((ran.lost, ran.processed), (1, 1));
    let task = found(&harness, id).await;
    assert_eq!((task.result.as_deref(), task.attempt), (Some(&br#""kept""#[..]), 1));
}

#[tokio::test]
async fn each_end_names_the_worker_that_ran_the_task() {
    let queue = Queue::builder(MemoryQueue::new()).ledger(Keep::default()).build().unwrap();
    let first = task("k", &1_u32).unwrap();
    let second = task("k", &2_u32).unwrap();
    let ids = [first.id(), second.id()];
    for (name, message) in [("one", first), ("two", second)] {
        queue.push("jobs", message).await.unwrap();
        let worker = Worker::builder(queue.clone())
            .name(name)
            .partition(Partition::new("jobs"))
            .handler("k", |_: u32, _: TaskContext| async { Ok(()) })
            .build()
            .unwrap();
        assert_eq!(worker.name(), name);
        worker.run_once().await.unwrap();
    }
    for (id, name) in ids.into_iter().zip(["one", "two"]) {
        let task = queue.task("jobs", id).await.unwrap().unwrap();
        assert_eq!(task.worker.as_deref(), Some(name));
    }
}

#[tokio::test]
async fn a_worker_has_a_name_of_its_own_and_none_that_cannot_be_kept() {
    let build = |name: Option<String>| {
        let queue = Queue::new(MemoryQueue::new()).unwrap();
        let builder = Worker::builder(queue).partition(Partition::new("jobs"));
        let builder = builder.handler("k", |_: u32, _: TaskContext| async { Ok(()) });
        match name {
            Some(name) => builder.name(name).build(),
            None => builder.build(),
        }
    };
    let own = build(None).unwrap();
    assert!(own.name().ends_with(&format!("-{}", std::process::id())), "{}", own.name());
    assert_eq!(build(Some("n".repeat(256))).unwrap().name().len(), 256);
    for name in [String::new(), "n".repeat(257)] {
        assert_eq!(build(Some(name)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_handler_knows_how_often_its_task_is_retried_after_this_attempt() {
    let (say, mut said) = mpsc::channel(9);
    let harness = harness(steady().max(2), move |_, task| {
        let say = say.clone();
        async move {
            say.send(task.retries_left()).await?;
            Err(TaskError::retry("always"))
        }
    });
    harness.push("jobs", "k", &0_u32).await.unwrap();
    for left in [2, 1, 0] {
        harness.run().await.unwrap();
        assert_eq!(said.try_recv(), Ok(left));
        harness.advance(secs(20)).await;
    }
    assert_eq!(harness.dead("jobs").await.unwrap().len(), 1);
    let message = task("k", &0_u32).unwrap().with_max_retries(7);
    harness.push_message("jobs", message).await.unwrap();
    harness.run().await.unwrap();
    assert_eq!(said.try_recv(), Ok(7), "the message's own number goes before");
}

#[tokio::test]
async fn without_a_ledger_a_result_is_checked_and_forgotten() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let message = task("k", &0_u32).unwrap();
    let id = message.id();
    queue.push("jobs", message).await.unwrap();
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("jobs"))
        .handler("k", |_: u32, task: TaskContext| async move {
            task.set_result(1)?;
            let refused = task.set_result_bytes(vec![0; MAX_RESULT_BYTES + 1]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TooLarge);
            Ok(())
        })
        .build()
        .unwrap();
    assert_eq!(worker.run_once().await.unwrap().processed, 1);
    assert!(queue.task("jobs", id).await.unwrap().is_none());
}

/// A backend that has no room for results.
#[derive(Debug)]
struct Cramped(MemoryQueue, Arc<AtomicBool>);

#[async_trait]
impl Forward for Cramped {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<anyqueue::Result<SettleOutcome>> {
        let has_result =
            |settlement: &Settlement| settlement.end.as_ref().is_some_and(|end| end.result.is_some());
        if settlements.iter().any(has_result) {
            self.1.store(true, SeqCst);
            let full = Error::new(ErrorKind::TooLarge, "no room");
            return vec![Err(full); settlements.len()];
        }
        self.inner().settle(settlements).await
    }
}

#[tokio::test]
async fn a_task_whose_result_the_backend_refuses_is_done_without_it() {
    let refused = Arc::new(AtomicBool::new(false));
    let storage = Cramped(MemoryQueue::new(), refused.clone());
    let queue = Queue::builder(storage).ledger(Keep::default()).build().unwrap();
    let message = task("k", &0_u32).unwrap();
    let id = message.id();
    queue.push("jobs", message).await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("jobs"))
        .handler("k", move |_: u32, task: TaskContext| {
            count.fetch_add(1, SeqCst);
            async move {
                task.set_result("large")?;
                Ok(())
            }
        })
        .build()
        .unwrap();
    let ran = tokio::time::timeout(PATIENCE, worker.run_once()).await.expect("it runs forever");
    assert_eq!(ran.unwrap().processed, 1);
    assert!(refused.load(SeqCst), "it was tried");
    let task = queue.task("jobs", id).await.unwrap().unwrap();
    assert_eq!((task.state, task.result, runs.load(SeqCst)), (TaskState::Succeeded, None, 1));
    assert!(task.reason.as_deref().unwrap().contains("no room"), "{:?}", task.reason);
}

/// A queue whose ends lapse after a second, a worker on it, and their clock.
fn forgetful() -> (ManualClock, Queue, Worker) {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let keep = Keep::all(Some(secs(1)));
    let queue = Queue::builder(storage).clock(time.clock()).ledger(keep).build().unwrap();
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("jobs"))
        .handler("k", |_: u32, _: TaskContext| async { Ok(()) })
        .build()
        .unwrap();
    (time, queue, worker)
}

async fn run_some(queue: &Queue, worker: &Worker) {
    for number in 0..5_u32 {
        queue.push("jobs", task("k", &number).unwrap()).await.unwrap();
    }
    assert_eq!(worker.run_once().await.unwrap().processed, 5);
}

async fn pass(time: &ManualClock, seconds: u64) {
    for _ in 0..seconds / 5 {
        time.advance(secs(5));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_worker_frees_the_place_of_ends_that_have_lapsed() {
    let (time, queue, worker) = forgetful();
    run_some(&queue, &worker).await;
    let watch = async {
        pass(&time, 150).await;
        assert_eq!(queue.purge_ended(100).await.unwrap(), 0, "nothing is left to free");
        worker.shutdown();
    };
    let (ran, ()) = tokio::join!(worker.run_until(std::future::pending()), watch);
    ran.unwrap();
}

#[tokio::test]
async fn a_worker_that_has_stopped_frees_nothing_any_more() {
    let (time, queue, worker) = forgetful();
    run_some(&queue, &worker).await;
    pass(&time, 600).await;
    assert_eq!(queue.purge_ended(100).await.unwrap(), 5);
}
