//! What becomes of tasks that fail, time out, panic, or that nobody knows.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::{MessageData, QueueMessageStatus};
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{
    FailureKind, Partition, Retry, TaskContext, TaskError, TaskResult, WorkerBuilder, history, task,
};

const C: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A worker of partition `p` whose one handler, of kind `k`, does what `handler` does.
fn harness<F, Fut>(retry: Retry, refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder, handler: F) -> Harness
where
    F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = TaskResult> + Send + 'static,
{
    Harness::new(|worker| {
        let worker = worker.partition(Partition::new("p")).retry(retry);
        refine(worker).handler("k", move |_: u32, task| handler(task))
    })
    .unwrap()
}

fn exact() -> Retry {
    Retry::exponential(C).jitter(0.0)
}

/// The one dead letter's reason.
async fn reason(harness: &Harness) -> String {
    let dead = harness.dead("p").await.unwrap();
    assert_eq!(dead.len(), 1, "{dead:?}");
    dead[0].reason.clone().unwrap()
}

#[tokio::test]
async fn a_failed_task_comes_back_after_c_times_two_to_the_n_then_dies_with_its_history() {
    let attempts: Arc<Mutex<Vec<(u32, usize)>>> = Arc::default();
    let seen = attempts.clone();
    let harness = harness(
        exact().max(3),
        |worker| worker,
        move |task| {
            seen.lock().unwrap().push((task.attempt(), task.history().len()));
            async move { Err(TaskError::retry(format!("no luck {}", task.attempt()))) }
        },
    );
    harness.push("p", "k", &1).await.unwrap();
    assert_eq!(harness.run().await.unwrap().retried, 1);
    for delay in [20, 40, 80] {
        harness.advance(secs(delay - 1)).await;
        let early = harness.run().await.unwrap();
        assert_eq!((early.retried, early.dead), (0, 0), "before {delay} s");
        harness.advance(secs(1)).await;
        let due = harness.run().await.unwrap();
        assert_eq!(due.retried + due.dead, 1, "after {delay} s");
    }
    assert_eq!(*attempts.lock().unwrap(), [(1, 0), (2, 1), (3, 2), (4, 3)]);
    assert_eq!(reason(&harness).await, "failed in attempt 4: no luck 4");
    let dead = harness.dead("p").await.unwrap();
    let failures = history(dead[0].message.headers());
    let texts: Vec<_> = failures.iter().map(|f| (f.attempt, f.kind, f.error.as_str())).collect();
    let failed = FailureKind::Failed;
    assert_eq!(texts, [(1, failed, "no luck 1"), (2, failed, "no luck 2"), (3, failed, "no luck 3")]);
}

#[tokio::test]
async fn no_retries_are_none_and_a_message_may_ask_for_its_own() {
    let harness = harness(Retry::never(), |worker| worker, |_| async { Err(TaskError::retry("no")) });
    harness.push("p", "k", &1).await.unwrap();
    assert_eq!(harness.run().await.unwrap().dead, 1);
    harness.push_message("p", task("k", &1).unwrap().with_max_retries(1)).await.unwrap();
    assert_eq!(harness.run().await.unwrap().retried, 1);
    harness.advance(secs(30)).await;
    assert_eq!(harness.run().await.unwrap().dead, 1);
}

#[tokio::test]
async fn a_permanent_error_is_not_tried_again() {
    let harness = harness(exact(), |worker| worker, |_| async { Err(TaskError::permanent("bad address")) });
    harness.push("p", "k", &1).await.unwrap();
    assert_eq!(harness.run().await.unwrap().dead, 1);
    assert_eq!(reason(&harness).await, "failed permanently in attempt 1: bad address");
}

#[tokio::test]
async fn an_error_can_say_when_to_try_again() {
    let harness = harness(
        exact(),
        |worker| worker,
        |task| async move { if task.attempt() == 1 { Err(TaskError::after(secs(7), "busy")) } else { Ok(()) } },
    );
    harness.push("p", "k", &1).await.unwrap();
    assert_eq!(harness.run().await.unwrap().retried, 1);
    harness.advance(secs(6)).await;
    assert_eq!(harness.run().await.unwrap().processed, 0);
    harness.advance(secs(1)).await;
    assert_eq!(harness.run().await.unwrap().processed, 1);
}

#[tokio::test]
async fn a_time_out_is_told_apart_and_by_default_not_tried_again() {
    let harness = harness(exact(), |worker| worker.timeout(secs(60)), |_| std::future::pending());
    harness.push("p", "k", &1).await.unwrap();
    // A minute until it is asked to stop, five seconds until it is dropped.
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(66)));
    assert_eq!(summary.unwrap().dead, 1);
    assert_eq!(reason(&harness).await, "timed_out in attempt 1: it ran longer than it may");
}

#[tokio::test]
async fn a_time_out_can_be_tried_again_and_a_message_may_have_its_own_limit() {
    let harness = harness(
        exact(),
        |worker| worker.retry_timeouts(true),
        |task| async move {
            if task.attempt() > 1 {
                assert_eq!(task.history()[0].kind, FailureKind::TimedOut);
                return Ok(());
            }
            assert_eq!(task.remaining(), Some(secs(10)));
            Err(TaskError::retry(format!("stopped by {}", task.cancelled().await)))
        },
    );
    harness.push_message("p", task("k", &1).unwrap().with_max_duration(secs(10))).await.unwrap();
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(11)));
    assert_eq!(summary.unwrap().retried, 1);
    harness.advance(secs(20)).await;
    assert_eq!(harness.run().await.unwrap().processed, 1);
}

#[tokio::test]
async fn a_panic_after_the_time_out_is_a_time_out() {
    let harness = harness(
        exact(),
        |worker| worker.timeout(secs(10)),
        |task| async move { panic!("stopped by {}", task.cancelled().await) },
    );
    harness.push("p", "k", &1).await.unwrap();
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(11)));
    assert_eq!(summary.unwrap().dead, 1);
    assert_eq!(reason(&harness).await, "timed_out in attempt 1: it panicked: stopped by timeout");
}

#[tokio::test]
async fn a_time_out_that_the_handler_calls_permanent_is_not_retried() {
    let harness = harness(
        exact(),
        |worker| worker.retry_timeouts(true).timeout(secs(10)),
        |task| async move { Err(TaskError::permanent(task.cancelled().await.to_string())) },
    );
    harness.push("p", "k", &1).await.unwrap();
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(11)));
    assert_eq!(summary.unwrap().dead, 1);
    assert_eq!(reason(&harness).await, "timed_out permanently in attempt 1: timeout");
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_takes_no_slot() {
    let harness = harness(
        exact().max(1),
        |worker| worker.slots(1),
        |task| async move {
            assert!(task.attempt() > 1, "as the test wants");
            Ok(())
        },
    );
    for _ in 0..10 {
        harness.push("p", "k", &1).await.unwrap();
    }
    assert_eq!(harness.run().await.unwrap().retried, 10);
    harness.advance(C).await;
    assert_eq!(harness.run().await.unwrap().processed, 10);
}

#[tokio::test]
async fn a_panic_before_the_first_await_is_caught_too() {
    let harness = Harness::new(|worker| {
        let explode = |_: u32, task: TaskContext| {
            assert!(task.attempt() > 9, "at once");
            async { Ok(()) }
        };
        worker.partition(Partition::new("p")).retry(Retry::never()).handler("k", explode)
    })
    .unwrap();
    harness.push("p", "k", &1).await.unwrap();
    assert_eq!(harness.run().await.unwrap().dead, 1);
    assert_eq!(reason(&harness).await, "panicked in attempt 1: at once");
}

#[tokio::test]
async fn an_unknown_kind_and_an_unreadable_payload_wait_for_a_worker_that_knows_them_then_die() {
    let harness = harness(exact(), |worker| worker.unknown_tasks(2, secs(30)), |_| async { Ok(()) });
    harness.push("p", "newer", &1).await.unwrap();
    harness.push("p", "k", &"no number").await.unwrap();
    harness.push_message("p", MessageData::new("from elsewhere")).await.unwrap();
    for _ in 0..2 {
        assert_eq!(harness.run().await.unwrap().deferred, 3);
        assert_eq!(harness.run().await.unwrap().deferred, 0, "not at once");
        harness.advance(secs(30)).await;
    }
    assert_eq!(harness.run().await.unwrap().dead, 3);
    let mut reasons: Vec<_> =
        harness.dead("p").await.unwrap().into_iter().filter_map(|dead| dead.reason).collect();
    reasons.sort();
    assert!(reasons[0].contains("its kind \"\" has no handler"), "{reasons:?}");
    assert!(reasons[1].contains("its kind \"newer\" has no handler"), "{reasons:?}");
    assert!(reasons[2].contains("its payload cannot be read"), "{reasons:?}");
}

#[tokio::test]
async fn a_task_that_takes_its_process_with_it_dies_before_it_runs_again() {
    let harness = harness(exact(), |worker| worker.max_crashes(2), |_| async { Ok(()) });
    harness.push("p", "k", &1).await.unwrap();
    // Three consumers that die: the message comes back when their leases end.
    for _ in 0..3 {
        let held = harness.queue().pull("p").keep_alive(false).await.unwrap();
        assert_eq!(held.len(), 1);
        harness.advance(secs(31)).await;
        drop(held);
    }
    let summary = harness.run().await.unwrap();
    assert_eq!((summary.processed, summary.dead), (0, 1));
    assert!(reason(&harness).await.contains("lost 3 times"));
}

#[tokio::test]
async fn releases_and_retries_are_no_crashes() {
    let harness = harness(
        exact().cap(secs(20)).max(20),
        |worker| worker.max_crashes(1),
        |task| async move { if task.attempt() <= 10 { Err(TaskError::retry("not yet")) } else { Ok(()) } },
    );
    harness.push("p", "k", &1).await.unwrap();
    for _ in 0..10 {
        for mut held in harness.queue().pull("p").await.unwrap() {
            held.settle(QueueMessageStatus::Waiting).await.unwrap();
        }
        assert_eq!(harness.run().await.unwrap().retried, 1);
        harness.advance(C).await;
    }
    assert_eq!(harness.run().await.unwrap().processed, 1);
}

#[tokio::test]
async fn a_redriven_task_has_all_its_attempts_again() {
    let harness = harness(exact().max(1), |worker| worker, |_| async { Err(TaskError::retry("no")) });
    harness.push("p", "k", &1).await.unwrap();
    for _ in 0..2 {
        assert_eq!(harness.run().await.unwrap().retried, 1);
        harness.advance(C).await;
        assert_eq!(harness.run().await.unwrap().dead, 1);
        assert_eq!(harness.queue().dead_letters("p").unwrap().redrive().await.unwrap().moved, 1);
    }
}
