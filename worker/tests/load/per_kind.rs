//! Kinds with a partition of their own, against kinds that share one.

use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Kind, Partition, Sharing, Summary, TaskContext, WorkerBuilder, kind_partition};

use crate::meter::{Meter, beside, millis, pass, pulled, push};

const KINDS: [&str; 5] = ["a", "b", "mail/send", "c.d", "quick"];

/// Five thousand tasks of five kinds in turn, of each of which but the last two may run, and ten seconds; how that went.
fn run(is_per_kind: bool) -> (Summary, Meter, u64) {
    let (meter, mut summary) = (Meter::default(), Summary::default());
    let pulled = pulled(async {
        let partition = if is_per_kind { Partition::per_kind("jobs") } else { Partition::new("jobs") };
        let harness = Harness::new(|worker| {
            let worker = worker.slots(16).partition(partition);
            let worker =
                KINDS[..4].iter().fold(worker, |worker, kind| worker.kind(Kind::new(*kind).concurrency(2)));
            KINDS.iter().fold(worker, |worker, kind| meter.handler(worker, kind, 1))
        })
        .unwrap();
        for number in 0..5000 {
            let kind = KINDS[number % 5];
            let partition = kind_partition("jobs", kind).unwrap();
            // Payloads are the time that a task takes, each another one.
            let takes = 100_000 + number as u64;
            push(&harness, if is_per_kind { partition.name() } else { "jobs" }, kind, takes / 200, 1).await;
        }
        summary = beside(&harness, pass(&harness, Duration::from_secs(10))).await;
    });
    (summary, meter, pulled)
}

#[test]
fn kinds_with_partitions_of_their_own_postpone_nothing_and_keep_their_order() {
    let (shared, _, shared_pulls) = run(false);
    let (own, meter, own_pulls) = run(true);
    assert_eq!((own.deferred, own.released), (0, 0), "{own:?}");
    assert_eq!(own_pulls, own.processed, "each is pulled once");
    assert!(own.processed >= shared.processed, "{own:?} against {shared:?}");
    // About 320, and 0 in their own.
    assert!(shared.deferred > 100, "nothing is saved any more: {shared:?}, {shared_pulls} pulled");
    assert!(meter.most() <= 16 && KINDS.iter().all(|kind| meter.count(kind) >= 35), "{own:?}");
    for kind in KINDS {
        let takes = meter.payloads(kind);
        assert!(takes.is_sorted(), "{kind}: {takes:?}");
    }
}

fn noop(worker: WorkerBuilder, kind: &str) -> WorkerBuilder {
    worker.handler(kind, |_: u64, _: TaskContext| async { Ok(()) })
}

#[tokio::test]
async fn each_registered_kind_is_served_and_others_of_the_handler_for_any_if_they_are_named() {
    let harness = Harness::new(|worker| {
        let worker =
            worker.partition(Partition::per_kind("jobs").kinds(["other", "a"])).sharing(Sharing::Strict);
        noop(noop(worker, "a"), "b").any_handler(|_, _| async { Ok(()) })
    })
    .unwrap();
    for kind in ["a", "b", "other", "unknown"] {
        let partition = kind_partition("jobs", kind).unwrap();
        harness.push(partition.name(), kind, &0_u64).await.unwrap();
    }
    assert_eq!(harness.run().await.unwrap().processed, 3);
    assert_eq!(harness.counts("jobs.unknown").await.unwrap().ready, Some(1), "nobody serves it");
    harness.worker().pause("jobs.a").unwrap();
}

#[tokio::test]
async fn partitions_whose_kinds_are_not_known_are_refused() {
    let text = |build: &dyn Fn(WorkerBuilder) -> WorkerBuilder| {
        Harness::new(build).map(|_| ()).unwrap_err().to_string()
    };
    let any = text(&|worker| {
        let worker = worker.partition(Partition::per_kind("jobs"));
        noop(worker, "a").any_handler(|_, _| async { Ok(()) })
    });
    assert!(any.contains("name them by kinds()"), "{any}");
    let none = text(&|worker| noop(worker.partition(Partition::per_kind("jobs").kinds(["b"])), "a"));
    assert!(none.contains("the kind \"b\" of jobs has no handler"), "{none}");
    let long = text(&|worker| noop(worker.partition(Partition::per_kind("jobs")), &"k".repeat(100)));
    assert!(long.contains("takes 100 bytes in the name of a partition"), "{long}");
    let twice = text(&|worker| {
        noop(worker.partition(Partition::per_kind("jobs")).partition(Partition::new("jobs.a")), "a")
    });
    assert!(twice.contains("the partition jobs.a is named twice"), "{twice}");
}

#[tokio::test]
async fn a_backlog_of_one_kind_holds_up_no_other() {
    let meter = Meter::default();
    let harness = Harness::new(|worker| {
        let worker =
            worker.slots(4).partition(Partition::per_kind("jobs")).kind(Kind::new("slow").concurrency(2));
        meter.handler(meter.handler(worker, "slow", 1), "quick", 1)
    })
    .unwrap();
    push(&harness, "jobs.slow", "slow", 60_000, 500).await;
    let watch = async {
        pass(&harness, millis(500)).await;
        push(&harness, "jobs.quick", "quick", 100, 1).await;
        pass(&harness, millis(200)).await;
        assert_eq!((meter.count("slow"), meter.count("quick")), (2, 1));
    };
    beside(&harness, watch).await;
}
