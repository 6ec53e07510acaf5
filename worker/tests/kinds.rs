//! Limits of kinds and partitions: what waits behind them, and what that costs.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Kind, Partition, Summary, TaskContext, WorkerBuilder};

const RUN: Duration = Duration::from_millis(500);
const SLOTS: usize = 16;

/// The tasks that began, in order.
type Begun = Arc<Mutex<Vec<(String, u32)>>>;

/// A worker of `p` whose handlers of the kinds `a` and `b`, as far as named, take half a second.
fn harness(kinds: &[&str], refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> (Harness, Begun) {
    let begun = Begun::default();
    let build = |worker: WorkerBuilder| {
        kinds.iter().fold(refine(worker.slots(SLOTS)), |worker, kind| {
            let begun = begun.clone();
            worker.handler(kind, move |number: u32, task: TaskContext| {
                begun.lock().unwrap().push((task.kind().to_owned(), number));
                async move {
                    task.clock().sleep(RUN).await;
                    Ok(())
                }
            })
        })
    };
    (Harness::new(build).unwrap(), begun)
}

/// Runs the worker while this much time passes, in small steps.
async fn run_for(harness: &Harness, time: Duration) -> Summary {
    let step = Duration::from_millis(25);
    let watch = async {
        let mut left = time;
        while !left.is_zero() {
            harness.advance(step.min(left)).await;
            left -= step.min(left);
        }
        harness.worker().shutdown();
        harness.advance(Duration::from_mins(1)).await;
    };
    let (summary, ()) = tokio::join!(harness.worker().run_until(std::future::pending()), watch);
    summary.unwrap()
}

#[tokio::test]
async fn while_every_kind_is_full_nothing_is_pulled_and_the_order_stays() {
    let (harness, begun) =
        harness(&["a"], |worker| worker.partition(Partition::new("p")).kind(Kind::new("a").concurrency(2)));
    for number in 0..300_u32 {
        harness.push("p", "a", &number).await.unwrap();
    }
    let summary = run_for(&harness, Duration::from_secs(10)).await;
    let begun: Vec<u64> = begun.lock().unwrap().iter().map(|(_, number)| u64::from(*number)).collect();
    assert_eq!(begun, (0..summary.processed).collect::<Vec<_>>(), "in the order of the pushes");
    assert!(summary.processed >= 38, "both places stay taken: {summary:?}");
    assert_eq!((summary.deferred, summary.released), (0, 0));
}

#[tokio::test]
async fn what_stands_behind_a_full_kind_is_found_and_not_at_any_price() {
    let (harness, begun) = harness(&["a", "b"], |worker| {
        worker.partition(Partition::new("p")).kind(Kind::new("a").concurrency(1))
    });
    for number in 0..300_u32 {
        harness.push("p", "a", &number).await.unwrap();
    }
    harness.push("p", "b", &0).await.unwrap();
    let summary = run_for(&harness, Duration::from_secs(10)).await;
    let begun = begun.lock().unwrap();
    let place = begun.iter().position(|(kind, _)| kind == "b").unwrap();
    assert!(place < 15, "it waited until {place} others had begun");
    // Four times a second as many as there are slots; every message every second would be three thousand.
    assert!(summary.deferred < 10 * 4 * SLOTS as u64 + 100, "{summary:?}");
    assert!(summary.processed >= 19, "{summary:?}");
}

#[tokio::test]
async fn limits_of_a_kind_that_are_set_twice_are_refused() {
    let refused = Harness::new(|worker| {
        let worker = worker.partition(Partition::new("p")).kind(Kind::new("a").concurrency(1));
        let worker = worker.kind(Kind::new("a").timeout(RUN));
        worker.handler("a", |_: u32, _: TaskContext| async { Ok(()) })
    });
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("the kind \"a\" is named twice"), "{text}");
}

#[tokio::test]
async fn a_worker_that_is_at_its_limits_is_live() {
    let long = Duration::from_mins(5);
    let one = |worker: WorkerBuilder| worker.partition(Partition::new("p").concurrency(1));
    let kind =
        |worker: WorkerBuilder| worker.partition(Partition::new("p")).kind(Kind::new("a").concurrency(1));
    let limits: [&dyn Fn(WorkerBuilder) -> WorkerBuilder; 2] = [&one, &kind];
    for limit in limits {
        let harness = Harness::new(|worker| {
            limit(worker).handler("a", move |_: u32, task: TaskContext| async move {
                task.clock().sleep(long).await;
                Ok(())
            })
        })
        .unwrap();
        for number in 0..2_u32 {
            harness.push("p", "a", &number).await.unwrap();
        }
        let watch = async {
            harness.advance(long / 2).await;
            let health = harness.worker().health();
            assert!(health.is_live(Duration::from_mins(1)), "{health:?}");
            harness.advance(2 * long).await;
        };
        tokio::join!(harness.run(), watch).0.unwrap();
    }
}
