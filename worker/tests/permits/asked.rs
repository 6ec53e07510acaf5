//! Permits are asked for before a pull, and released however a task ends.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{
    BatchContext, CancelReason, Partition, Summary, Task, TaskContext, TaskError, TaskResult, WorkerBuilder,
    task,
};

use crate::fake::{Fake, secs};

/// Does what its payload says.
async fn behave(how: String, task: TaskContext) -> TaskResult {
    match &*how {
        "panics" => panic!("as it was told"),
        "fails" => Err(TaskError::permanent("as it was told")),
        "waits" => Err(TaskError::retry(task.cancelled().await.as_str())),
        "ignores" => std::future::pending().await,
        _ => {
            task.clock().sleep(secs(1)).await;
            Ok(())
        }
    }
}

fn harness(permits: &Fake, refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Harness {
    let build = |worker: WorkerBuilder| {
        let worker = worker.name("w").permits(permits.clone()).handler("k", behave);
        refine(worker.slots(10))
    };
    Harness::new(build).unwrap()
}

fn served(permits: &Fake) -> Harness {
    harness(permits, |worker| worker.partition(Partition::new("p")))
}

async fn push(harness: &Harness, how: &str, count: usize) {
    for _ in 0..count {
        harness.push("p", "k", &how).await.unwrap();
    }
}

/// Lets time pass in small steps.
async fn pass(harness: &Harness, time: Duration) {
    const STEP: Duration = Duration::from_millis(100);
    let mut left = time;
    while !left.is_zero() {
        harness.advance(STEP.min(left)).await;
        left -= STEP.min(left);
    }
}

/// Runs the worker while the future goes on, and then to its end.
async fn beside(harness: &Harness, watch: impl Future<Output = ()>) -> Summary {
    let watch = async {
        watch.await;
        harness.worker().shutdown();
        harness.advance(Duration::from_mins(1)).await;
    };
    let (summary, ()) = tokio::join!(harness.worker().run_until(std::future::pending()), watch);
    summary.unwrap()
}

#[tokio::test]
async fn a_worker_pulls_no_more_than_it_has_permits_for() {
    let permits = Fake::of(2);
    let harness = served(&permits);
    push(&harness, "sleeps", 7).await;
    let summary = beside(&harness, async {
        harness.advance(Duration::from_millis(100)).await;
        assert_eq!(harness.counts("p").await.unwrap().leased, Some(2));
        harness.advance(secs(20)).await;
        assert_eq!(permits.in_use(), (1, 0), "a pull that waits keeps one");
    })
    .await;
    assert_eq!((summary.processed, summary.released), (7, 0));
    assert_eq!((permits.most(), permits.in_use(), permits.left()), (2, (0, 0), 1));
}

#[tokio::test]
async fn permits_come_back_however_tasks_end() {
    let permits = Fake::of(3);
    let harness = harness(&permits, |worker| {
        worker.partition(Partition::new("p").timeout(secs(5))).max_crashes(0).unknown_tasks(0, secs(1))
    });
    for how in ["sleeps", "panics", "fails", "waits", "ignores"] {
        push(&harness, how, 4).await;
    }
    harness.push("p", "unknown", &0).await.unwrap();
    harness.push("p", "k", &0).await.unwrap();
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(200)));
    let summary = summary.unwrap();
    assert_eq!(summary.processed, 4);
    assert!(summary.dead >= 10, "{summary:?}");
    assert_eq!((permits.in_use(), permits.most()), ((0, 0), 3));
}

#[tokio::test]
async fn what_must_not_start_is_released_uncounted() {
    let permits = Fake::of(3);
    permits.state().is_closed = true;
    let harness = served(&permits);
    push(&harness, "sleeps", 2).await;
    let summary = beside(&harness, async {
        harness.advance(secs(3)).await;
        assert_eq!(permits.in_use().1, 0);
        permits.change(|state| state.is_closed = false);
        harness.advance(secs(10)).await;
    })
    .await;
    assert_eq!((summary.processed, permits.in_use()), (2, (0, 0)));
}

#[tokio::test]
async fn tasks_whose_permits_are_revoked_stop_and_are_released_uncounted() {
    let permits = Fake::of(3);
    let harness = served(&permits);
    push(&harness, "waits", 1).await;
    push(&harness, "ignores", 1).await;
    let summary = beside(&harness, async {
        harness.advance(secs(1)).await;
        assert_eq!(permits.in_use(), (3, 2));
        let tasks = harness.worker().running();
        permits.change(|state| {
            state.is_closed = true;
            std::mem::take(&mut state.revoked).cancel();
        });
        harness.advance(Duration::from_millis(500)).await;
        assert!(tasks.iter().all(|task| task.cancel_reason() == Some(CancelReason::PermitLost)));
        assert_eq!(permits.in_use().1, 1, "one has stopped");
        harness.advance(secs(2)).await;
        assert_eq!(permits.in_use().1, 0, "the other was dropped after the grace of permits");
    })
    .await;
    assert_eq!((summary.interrupted, summary.retried, summary.dead), (2, 0, 0));
    assert_eq!(harness.counts("p").await.unwrap().ready, Some(2));
}

#[tokio::test]
async fn a_run_that_is_dropped_keeps_the_permits_of_its_tasks_until_they_end() {
    let permits = Fake::of(3);
    let harness = served(&permits);
    push(&harness, "sleeps", 2).await;
    let run = harness.worker().run_until(std::future::pending());
    tokio::select! { _ = run => {}, () = harness.advance(Duration::from_millis(500)) => {} }
    harness.advance(Duration::from_millis(200)).await;
    assert_eq!((permits.in_use(), permits.is_kept()), ((2, 2), true));
    pass(&harness, secs(5)).await;
    assert_eq!((permits.in_use(), permits.is_kept(), permits.left()), ((0, 0), false, 1));
}

#[tokio::test]
async fn where_nothing_is_limited_permits_only_count() {
    let permits = Fake::default();
    let harness = served(&permits);
    push(&harness, "sleeps", 30).await;
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(20)));
    assert_eq!(summary.unwrap().processed, 30);
    assert_eq!((permits.in_use(), permits.most() >= 10), ((0, 0), true));
}

#[tokio::test]
async fn a_limit_that_comes_while_settlements_bring_the_next_tasks_is_obeyed() {
    let permits = Fake::default();
    let harness = served(&permits);
    push(&harness, "sleeps", 60).await;
    let summary = beside(&harness, async {
        harness.advance(Duration::from_millis(2500)).await;
        permits.change(|state| state.cap = Some(2));
        harness.advance(secs(2)).await;
        permits.change(|state| state.most = 0);
        pass(&harness, secs(30)).await;
    })
    .await;
    assert_eq!(summary.processed, 60);
    assert!(permits.most() <= 2, "{}", permits.most());
}

#[tokio::test]
async fn each_task_of_a_batch_has_a_permit() {
    let permits = Fake::of(3);
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    let batch = move |tasks: Vec<Task<u32>>, _: BatchContext| {
        let seen = seen.clone();
        async move { seen.lock().unwrap().push(tasks.len()) }
    };
    let harness = harness(&permits, |worker| {
        worker.partition(Partition::new("p").whole_groups(10)).batch_handler("b", move |tasks, context| {
            let run = batch(tasks, context);
            async move {
                run.await;
                TaskResult::Ok(())
            }
        })
    });
    for n in 0..8 {
        harness.push_message("p", task("b", &n).unwrap().with_group("g")).await.unwrap();
    }
    let (summary, ()) = tokio::join!(harness.run(), harness.advance(secs(20)));
    assert_eq!((summary.unwrap().processed, permits.in_use()), (8, (0, 0)));
    assert_eq!(*sizes.lock().unwrap(), [3, 3, 2]);
}
