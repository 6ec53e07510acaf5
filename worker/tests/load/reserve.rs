//! Slots that are reserved for a partition.

use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Kind, Partition, Sharing, WorkerBuilder};

use crate::meter::{Meter, beside, millis, pass, pulled, push};

type Refine = fn(WorkerBuilder) -> WorkerBuilder;

/// A worker of `p`, and of `alerts`, for which one of four slots is reserved.
fn harness(reserve: usize, refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> (Harness, Meter) {
    let meter = Meter::default();
    let build = |worker: WorkerBuilder| {
        let worker = refine(worker.slots(4)).partition(Partition::new("p"));
        let worker = worker.partition(Partition::new("alerts").reserve(reserve));
        meter.handler(meter.handler(worker, "k", 1), "alert", 1)
    };
    (Harness::new(build).unwrap(), meter)
}

/// Pushes an alert while tasks of a day run and wait; returns whether it starts within three seconds.
async fn starts_beside_blocked_ones(harness: &Harness, meter: &Meter) -> bool {
    push(harness, "p", "k", 24 * 3_600_000, 20).await;
    let mut is_soon = false;
    let watch = async {
        pass(harness, Duration::from_secs(30)).await;
        push(harness, "alerts", "alert", 100, 1).await;
        pass(harness, Duration::from_secs(3)).await;
        is_soon = meter.count("alert") == 1;
    };
    beside(harness, watch).await;
    is_soon
}

#[tokio::test]
async fn a_light_job_starts_within_three_seconds_beside_blocked_others() {
    let prefetching = |worker: WorkerBuilder| worker.prefetch(8).prefetch_ttl(Duration::from_hours(1));
    let refinements: [(&str, Refine); 3] = [
        ("plain", |worker| worker),
        ("prefetching", prefetching),
        ("strict", |worker| worker.sharing(Sharing::Strict)),
    ];
    for (name, refine) in refinements {
        let (harness, meter) = self::harness(1, refine);
        assert!(starts_beside_blocked_ones(&harness, &meter).await, "{name}");
        assert_eq!(meter.count("k"), 3, "{name}");
    }
}

#[tokio::test]
async fn without_a_reserve_it_does_not() {
    let (harness, meter) = harness(0, |worker| worker);
    assert!(!starts_beside_blocked_ones(&harness, &meter).await);
    assert_eq!(meter.count("k"), 4);
}

#[tokio::test]
async fn a_heavy_task_that_waits_for_slots_does_not_hold_up_what_has_its_own() {
    let (harness, meter) = harness(1, |worker| worker.kind(Kind::new("k").slots(3)));
    push(&harness, "p", "k", 60_000, 5).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        push(&harness, "alerts", "alert", 100, 20).await;
        pass(&harness, Duration::from_secs(4)).await;
        assert_eq!((meter.count("k"), meter.count("alert")), (1, 20));
    };
    beside(&harness, watch).await;
}

#[tokio::test]
async fn a_partition_takes_more_than_its_reserve_where_others_leave_it() {
    let (harness, meter) = harness(1, |worker| worker);
    push(&harness, "alerts", "alert", 1000, 8).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        assert_eq!(meter.count("alert"), 4);
        pass(&harness, Duration::from_secs(3)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 8);
}

#[test]
fn a_reserve_that_nobody_needs_costs_no_pulls() {
    let pulled = pulled(async {
        let (harness, meter) = harness(2, |worker| worker);
        push(&harness, "p", "k", 500, 100).await;
        let summary = beside(&harness, pass(&harness, Duration::from_secs(40))).await;
        assert_eq!((summary.processed, meter.most()), (100, 2));
    });
    assert_eq!(pulled, 100, "each once");
}

#[tokio::test]
async fn nothing_is_reserved_while_slots_are_too_few() {
    let (harness, meter) = harness(3, |worker| worker);
    harness.worker().set_slots(2).unwrap();
    push(&harness, "p", "k", 500, 4).await;
    let watch = async {
        pass(&harness, Duration::from_secs(2)).await;
        assert_eq!(meter.count("k"), 4);
        harness.worker().set_slots(4).unwrap();
        pass(&harness, Duration::from_secs(2)).await;
        meter.most();
        push(&harness, "p", "k", 500, 4).await;
        pass(&harness, Duration::from_secs(5)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 8);
    assert_eq!(meter.most(), 1, "three are reserved again");
}

#[tokio::test]
async fn a_burst_ends_beside_a_reserve() {
    let (harness, meter) = harness(3, |worker| worker);
    push(&harness, "p", "k", 0, 5).await;
    push(&harness, "alerts", "alert", 0, 5).await;
    assert_eq!(harness.run().await.unwrap().processed, 10);
    assert_eq!(meter.in_use(), 0);
}

#[tokio::test]
async fn reserves_that_cannot_be_kept_are_refused() {
    let refused = Harness::new(|worker| {
        let worker = worker.slots(8).kind(Kind::new("k").slots(4));
        let worker = worker.partition(Partition::new("p").reserve(5).concurrency(4));
        worker.partition(Partition::new("q").reserve(4)).handler("k", |_: u64, _| async { Ok(()) })
    });
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("9 slots are reserved, and there are 8: reserve at most 8"), "{text}");
    assert!(text.contains("the partition p reserves 5 slots, and may run only 4 tasks"), "{text}");
    let refused = Harness::new(|worker| {
        let worker = worker.slots(8).kind(Kind::new("k").slots(6)).partition(Partition::new("p"));
        worker.partition(Partition::new("q").reserve(3)).handler("k", |_: u64, _| async { Ok(()) })
    });
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("takes 6 slots, and the worker has 5 that others do not reserve"), "{text}");
}
