//! Tasks that take several slots.

use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{BatchContext, Kind, Partition, Task, WorkerBuilder, task};

use crate::meter::{Meter, beside, millis, pass, pulled, push};

/// A worker of `heavy` and `light`, with handlers of the kinds `heavy` and `light`.
fn harness(
    slots: usize,
    heavy: usize,
    refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> (Harness, Meter) {
    let meter = Meter::default();
    let build = |worker: WorkerBuilder| {
        let worker = refine(worker.slots(slots)).kind(Kind::new("heavy").slots(heavy));
        let worker = worker.partition(Partition::new("heavy")).partition(Partition::new("light"));
        let worker = meter.handler(worker, "heavy", heavy);
        meter.handler(worker, "light", 1)
    };
    (Harness::new(build).unwrap(), meter)
}

#[tokio::test]
async fn the_slots_in_use_never_exceed_the_slots_whatever_comes() {
    const SLOTS: usize = 6;
    for prefetch in [0, 1, 7] {
        let meter = Meter::default();
        let kinds = [("one", 1), ("two", 2), ("three", 3), ("five", 5), ("all", SLOTS)];
        let harness = Harness::new(|worker| {
            let worker = worker.slots(SLOTS).prefetch(prefetch);
            let worker = worker.partition(Partition::new("p")).partition(Partition::new("q").concurrency(2));
            kinds.into_iter().fold(worker, |worker, (kind, slots)| {
                meter.handler(worker.kind(Kind::new(kind).slots(slots)), kind, slots)
            })
        })
        .unwrap();
        let mut random = fastrand::Rng::with_seed(prefetch as u64);
        let watch = async {
            for _ in 0..30 {
                for _ in 0..10 {
                    let (kind, _) = kinds[random.usize(..kinds.len())];
                    push(&harness, ["p", "q"][random.usize(..2)], kind, random.u64(0..200), 1).await;
                }
                pass(&harness, millis(random.u64(0..1000))).await;
            }
            pass(&harness, Duration::from_mins(1)).await;
        };
        let summary = beside(&harness, watch).await;
        assert_eq!((summary.processed, summary.deferred), (300, 0), "with a prefetch of {prefetch}");
        assert_eq!((meter.most(), meter.in_use()), (SLOTS, 0), "with a prefetch of {prefetch}");
    }
}

#[tokio::test]
async fn a_flood_of_light_tasks_does_not_starve_a_heavy_one() {
    let (harness, meter) = harness(4, 4, |worker| worker);
    push(&harness, "light", "light", 100, 1000).await;
    let watch = async {
        // One after the other, so that the slots never free all at once by themselves.
        pass(&harness, millis(950)).await;
        let before = meter.count("light");
        push(&harness, "heavy", "heavy", 100, 1).await;
        while meter.count("heavy") == 0 {
            pass(&harness, millis(25)).await;
            let since = meter.count("light") - before;
            assert!(since <= 8, "{since} light ones began before the heavy one");
        }
        let served = meter.count("light");
        pass(&harness, millis(1000)).await;
        assert!(meter.count("light") >= served + 20, "the light ones have all slots again");
    };
    beside(&harness, watch).await;
    assert_eq!(meter.most(), 4);
}

#[tokio::test]
async fn others_wait_for_a_heavy_task_only_until_it_has_its_slots() {
    let (harness, meter) = harness(4, 3, |worker| worker);
    let watch = async {
        push(&harness, "light", "light", 2000, 2).await;
        pass(&harness, millis(100)).await;
        push(&harness, "heavy", "heavy", 5000, 1).await;
        pass(&harness, millis(100)).await;
        push(&harness, "light", "light", 100, 20).await;
        pass(&harness, millis(1700)).await;
        assert_eq!(meter.count("heavy"), 0, "two slots are free, and it takes three");
        assert_eq!(meter.count("light"), 2, "they would take the slots that are kept for it");
        pass(&harness, millis(300)).await;
        assert_eq!((meter.count("heavy"), meter.in_use()), (1, 4), "one is left for the light ones");
        pass(&harness, millis(3000)).await;
        assert_eq!(meter.count("light"), 22);
    };
    beside(&harness, watch).await;
}

#[tokio::test]
async fn slots_are_not_kept_for_a_partition_that_is_paused() {
    let (harness, meter) = harness(4, 4, |worker| worker);
    let watch = async {
        push(&harness, "light", "light", 60_000, 1).await;
        pass(&harness, millis(100)).await;
        push(&harness, "heavy", "heavy", 100, 1).await;
        pass(&harness, millis(100)).await;
        push(&harness, "light", "light", 100, 5).await;
        pass(&harness, Duration::from_secs(30)).await;
        assert_eq!(meter.count("light"), 1, "the slots are kept, however long it takes");
        harness.worker().pause("heavy").unwrap();
        pass(&harness, millis(500)).await;
        assert_eq!(meter.count("light"), 6);
        assert_eq!(harness.counts("heavy").await.unwrap().ready, Some(1), "it went back");
    };
    beside(&harness, watch).await;
}

#[test]
fn what_cannot_start_is_not_pulled_and_released_in_circles() {
    for prefetch in [0, 2] {
        let pulled = pulled(async {
            let (harness, meter) = harness(8, 4, |worker| worker.prefetch(prefetch));
            push(&harness, "heavy", "heavy", 3000, 40).await;
            push(&harness, "light", "light", 3000, 40).await;
            let summary = beside(&harness, pass(&harness, Duration::from_mins(3))).await;
            assert_eq!((summary.processed, meter.most()), (80, 8));
        });
        // Before the first pull nobody knows that they are heavy, and what is prefetched goes back after a while.
        assert!(pulled <= 80 + 20, "80 tasks were pulled {pulled} times with a prefetch of {prefetch}");
    }
}

#[tokio::test]
async fn a_batch_takes_the_slots_of_its_kind() {
    let meter = Meter::default();
    let notes = meter.clone();
    let harness = Harness::new(|worker| {
        let worker = worker.slots(4).partition(Partition::new("p").whole_groups(10));
        let worker = worker.partition(Partition::new("light")).kind(Kind::new("batch").slots(3));
        let worker = meter.handler(meter.handler(worker, "unused", 3), "light", 1);
        worker.batch_handler("batch", move |tasks: Vec<Task<u64>>, batch: BatchContext| {
            notes.begins("unused", 0);
            let notes = notes.clone();
            async move {
                assert_eq!(tasks.len(), 5);
                batch.queue().clock().sleep(millis(500)).await;
                notes.ends("unused");
                Ok(())
            }
        })
    })
    .unwrap();
    for group in ["a", "b", "c"] {
        for _ in 0..5 {
            harness.push_message("p", task("batch", &500).unwrap().with_group(group)).await.unwrap();
        }
    }
    push(&harness, "light", "light", 100, 10).await;
    let watch = async {
        pass(&harness, millis(50)).await;
        assert_eq!((harness.worker().health().running, meter.in_use()), (4, 4));
        pass(&harness, Duration::from_secs(5)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 25);
    assert_eq!((meter.most(), meter.in_use(), harness.worker().health().running), (4, 0, 0));
}

#[tokio::test]
async fn a_shutdown_releases_a_heavy_task_that_waits() {
    let (harness, meter) = harness(2, 2, |worker| worker);
    let watch = async {
        push(&harness, "light", "light", 5000, 1).await;
        pass(&harness, millis(100)).await;
        push(&harness, "heavy", "heavy", 100, 1).await;
        pass(&harness, Duration::from_secs(2)).await;
    };
    let summary = beside(&harness, watch).await;
    assert_eq!((summary.processed, summary.released), (1, 1));
    assert_eq!(meter.begun(), ["light"]);
}

#[tokio::test]
async fn more_slots_than_there_are_or_none_are_refused() {
    for (slots, named) in [(0, "takes 0 slots"), (5, "takes 5 slots, and the worker has 4 ")] {
        let refused = Harness::new(|worker| {
            let worker = worker.slots(4).partition(Partition::new("p")).kind(Kind::new("k").slots(slots));
            worker.handler("k", |_: u64, _| async { Ok(()) })
        });
        let text = refused.map(|_| ()).unwrap_err().to_string();
        assert!(text.contains(named), "{text}");
    }
}
