//! Slots that change while the worker runs.

use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Kind, MAX_SLOTS, Partition, WorkerBuilder};

use crate::meter::{Meter, beside, millis, pass, push};

/// A worker of `p`, with handlers of the kinds `light` and `heavy`, which takes four slots.
fn harness(slots: usize, refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> (Harness, Meter) {
    let meter = Meter::default();
    let build = |worker: WorkerBuilder| {
        let worker = refine(worker.slots(slots)).partition(Partition::new("p"));
        meter.handler(meter.handler(worker, "light", 1), "heavy", 1)
    };
    (Harness::new(build).unwrap(), meter)
}

async fn leased(harness: &Harness) -> u64 {
    harness.counts("p").await.unwrap().leased.unwrap()
}

#[tokio::test]
async fn more_slots_are_used_at_once() {
    let (harness, meter) = harness(1, |worker| worker);
    push(&harness, "p", "light", 5000, 10).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        assert_eq!((meter.in_use(), harness.worker().slots()), (1, 1));
        harness.worker().set_slots(6).unwrap();
        pass(&harness, millis(25)).await;
        assert_eq!((meter.in_use(), harness.worker().slots()), (6, 6));
        pass(&harness, Duration::from_secs(15)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 10);
}

#[tokio::test]
async fn with_fewer_slots_what_runs_runs_on_and_what_was_prefetched_goes_back() {
    let (harness, meter) = harness(4, |worker| worker.prefetch(3).prefetch_ttl(Duration::from_mins(5)));
    push(&harness, "p", "light", 5000, 20).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        assert_eq!((meter.in_use(), leased(&harness).await), (4, 7));
        harness.worker().set_slots(1).unwrap();
        pass(&harness, millis(25)).await;
        assert_eq!((meter.in_use(), leased(&harness).await), (4, 4));
        pass(&harness, Duration::from_secs(5)).await;
        assert_eq!((meter.in_use(), leased(&harness).await), (1, 4), "one runs, three are prefetched");
        harness.worker().set_slots(2).unwrap();
        pass(&harness, millis(25)).await;
        assert_eq!(meter.in_use(), 2);
        meter.most();
        pass(&harness, Duration::from_mins(1)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 20);
    assert_eq!(meter.most(), 2);
}

#[tokio::test]
async fn with_no_slots_nothing_is_taken_on_and_the_worker_stays_live() {
    let (harness, meter) = harness(2, |worker| worker.prefetch(2));
    push(&harness, "p", "light", 1000, 10).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        harness.worker().set_slots(0).unwrap();
        pass(&harness, Duration::from_secs(2)).await;
        assert_eq!((meter.count("light"), leased(&harness).await), (2, 0));
        harness.advance(Duration::from_mins(5)).await;
        assert_eq!((meter.count("light"), leased(&harness).await), (2, 0));
        let health = harness.worker().health();
        assert!(health.is_live(Duration::from_mins(1)), "{health:?}");
        harness.worker().set_slots(2).unwrap();
        pass(&harness, Duration::from_secs(6)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 10);
}

#[tokio::test]
async fn a_heavy_task_gets_all_slots_where_fewer_are_left_than_it_takes() {
    let (harness, meter) = harness(4, |worker| worker.kind(Kind::new("heavy").slots(4)));
    harness.worker().set_slots(2).unwrap();
    push(&harness, "p", "heavy", 1000, 2).await;
    push(&harness, "p", "light", 1000, 2).await;
    let watch = async {
        pass(&harness, millis(100)).await;
        assert_eq!(
            (meter.in_use(), harness.worker().health().running),
            (1, 2),
            "it runs alone, in two slots"
        );
        pass(&harness, Duration::from_secs(4)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 4);
    assert_eq!(meter.begun(), ["heavy", "heavy", "light", "light"]);
}

#[tokio::test]
async fn slots_that_are_turned_up_and_down_are_kept_to() {
    let (harness, meter) = harness(8, |worker| worker.prefetch(2).kind(Kind::new("heavy").slots(3)));
    let mut random = fastrand::Rng::with_seed(7);
    push(&harness, "p", "light", 100, 300).await;
    push(&harness, "p", "heavy", 100, 30).await;
    let watch = async {
        for _ in 0..40 {
            let slots = random.usize(..12);
            harness.worker().set_slots(slots).unwrap();
            pass(&harness, millis(150)).await; // what ran has ended
            meter.most();
            pass(&harness, millis(100)).await;
            let most = meter.most();
            assert!(most <= slots, "{most} ran in {slots} slots");
        }
        harness.worker().set_slots(8).unwrap();
        pass(&harness, Duration::from_mins(1)).await;
    };
    assert_eq!(beside(&harness, watch).await.processed, 330);
}

#[tokio::test]
async fn too_many_slots_are_refused() {
    let (harness, _) = harness(1, |worker| worker);
    let refused = harness.worker().set_slots(MAX_SLOTS + 1).unwrap_err().to_string();
    assert!(refused.contains("1000001 slots are too many: set at most 1000000"), "{refused}");
    assert_eq!(harness.worker().slots(), 1);
}
