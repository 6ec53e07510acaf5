//! Slots, holding, cancellation, leases: what a worker does with what it runs, seen with time that the test turns.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::{CancelOutcome, Delivery, MessageId};
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{
    CancelReason, Governor, Kind, Partition, Room, Sharing, TaskContext, TaskError, TaskResult,
    WorkerBuilder, task,
};
use tokio::sync::{Semaphore, mpsc};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A handler that tells when it begins, and ends when it is let go.
#[derive(Clone)]
struct Gate {
    begun: mpsc::Sender<TaskContext>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> (Self, mpsc::Receiver<TaskContext>) {
        let (begun, begins) = mpsc::channel(1000);
        (Self { begun, open: Arc::new(Semaphore::new(0)) }, begins)
    }

    /// Awaits its turn; stops when it is asked to.
    async fn pass(self, task: TaskContext) -> TaskResult {
        self.begun.send(task.clone()).await?;
        tokio::select! {
            permit = self.open.acquire() => { permit?.forget(); Ok(()) }
            reason = task.cancelled() => Err(TaskError::retry(reason.as_str())),
        }
    }
}

/// A worker of partition `p` whose handler of kind `k` waits at the gate.
fn gated(
    refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> (Harness, Gate, mpsc::Receiver<TaskContext>) {
    let (gate, begins) = Gate::new();
    let at = gate.clone();
    let build = |worker: WorkerBuilder| {
        refine(worker.partition(Partition::new("p"))).handler("k", move |_: u32, task| at.clone().pass(task))
    };
    (Harness::new(build).unwrap(), gate, begins)
}

async fn push(harness: &Harness, count: u32) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(harness.push("p", "k", &number).await.unwrap());
    }
    ids
}

async fn leased(harness: &Harness) -> u64 {
    harness.counts("p").await.unwrap().leased.unwrap()
}

/// Lets everybody do what there is to do.
async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_claimed_without_a_slot() {
    let (harness, gate, mut begins) = gated(|worker| worker.slots(2));
    push(&harness, 5).await;
    let watch = async {
        for left in [5, 4, 3, 2, 1] {
            // Each that ends makes room for one more.
            settle_down().await;
            assert_eq!(leased(&harness).await, left.min(2));
            begins.recv().await.unwrap();
            gate.open.add_permits(1);
        }
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 5);
}

#[tokio::test]
async fn what_is_prefetched_is_released_if_no_slot_frees_and_not_fetched_again_before_one_does() {
    let (harness, gate, mut begins) = gated(|worker| worker.slots(1).prefetch(3).prefetch_ttl(secs(10)));
    push(&harness, 5).await;
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 4);
        harness.advance(secs(11)).await;
        assert_eq!(leased(&harness).await, 1);
        let other = harness.queue().pull("p").max(9).await.unwrap();
        assert_eq!(other.iter().map(Delivery::delivery_count).collect::<Vec<_>>(), [Some(1); 4]);
        drop(other);
        gate.open.add_permits(1);
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 4);
        gate.open.add_permits(9);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 5);
}

#[tokio::test]
async fn a_prefetched_message_that_expires_does_not_start() {
    let (harness, gate, mut begins) = gated(|worker| worker.slots(1).prefetch(1));
    push(&harness, 1).await;
    let mortal = task("k", &1).unwrap().with_time_to_live(secs(5));
    harness.push_message("p", mortal).await.unwrap();
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 2);
        harness.advance(secs(6)).await;
        gate.open.add_permits(2);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 1);
    assert!(begins.try_recv().is_err(), "it started");
    assert_eq!(harness.counts("p").await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn caps_of_partition_and_kind_hold() {
    let most = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let now = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let harness = Harness::new(|worker| {
        let worker = worker.slots(8).kind(Kind::new("a").concurrency(2));
        let worker = worker.partition(Partition::new("p")).partition(Partition::new("q").concurrency(3));
        ["a", "b"].into_iter().fold(worker, |worker, kind| {
            let (most, now) = (most.clone(), now.clone());
            worker.handler(kind, move |which: usize, _| {
                let (most, now) = (most.clone(), now.clone());
                async move {
                    most[which].fetch_max(now[which].fetch_add(1, SeqCst) + 1, SeqCst);
                    settle_down().await;
                    now[which].fetch_sub(1, SeqCst);
                    Ok(())
                }
            })
        })
    })
    .unwrap();
    for _ in 0..20 {
        harness.push("p", "a", &0).await.unwrap();
        harness.push("q", "b", &1).await.unwrap();
    }
    assert_eq!(harness.run().await.unwrap().processed, 40);
    assert_eq!((most[0].load(SeqCst), most[1].load(SeqCst)), (2, 3));
}

#[tokio::test]
async fn a_running_task_is_cancelled_by_its_id_and_a_waiting_one_removed() {
    let (harness, gate, mut begins) = gated(|worker| worker.slots(1));
    let ids = push(&harness, 3).await;
    let watch = async {
        let task = begins.recv().await.unwrap();
        assert_eq!(task.id(), ids[0]);
        let answers = harness.queue().request_cancel("p", &ids[..2]).await.unwrap();
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [CancelOutcome::Requested, CancelOutcome::Removed]);
        harness.advance(secs(11)).await;
        assert_eq!(task.cancel_reason(), Some(CancelReason::CancelRequested));
        gate.open.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    let summary = summary.unwrap();
    assert_eq!((summary.cancelled, summary.processed), (1, 1));
    assert_eq!(harness.counts("p").await.unwrap().dead, Some(0));
}

#[tokio::test]
async fn a_lost_lease_cancels_the_handler_settles_nothing_and_burns_no_attempt() {
    let (harness, gate, mut begins) = gated(|worker| worker);
    push(&harness, 1).await;
    let watch = async {
        let first = begins.recv().await.unwrap();
        harness.stall(secs(31));
        assert_eq!(first.cancelled().await, CancelReason::LeaseLost);
        let second = begins.recv().await.unwrap();
        assert_eq!((second.id(), second.attempt()), (first.id(), 1));
        gate.open.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    let summary = summary.unwrap();
    assert_eq!((summary.lost, summary.processed, summary.retried), (1, 1, 0));
}

#[tokio::test]
async fn a_task_never_runs_twice_at_once_in_one_worker() {
    let (begun, mut begins) = mpsc::channel(9);
    let open = Arc::new(Semaphore::new(0));
    let gate = open.clone();
    let harness = Harness::new(|worker| {
        let deaf = move |_: u32, _: TaskContext| {
            let (begun, gate) = (begun.clone(), gate.clone());
            async move {
                begun.send(()).await?;
                gate.acquire().await?.forget();
                Ok(())
            }
        };
        worker.partition(Partition::new("p")).drain(secs(25), secs(3600)).handler("k", deaf)
    })
    .unwrap();
    push(&harness, 1).await;
    let worker = harness.worker().clone();
    let run = tokio::spawn(async move { worker.run_until(std::future::pending()).await });
    begins.recv().await.unwrap();
    harness.stall(secs(31));
    // It comes again, and is deferred, as long as the first run has not ended.
    while harness.counts("p").await.unwrap().delayed != Some(1) {
        tokio::task::yield_now().await;
    }
    assert!(begins.try_recv().is_err());
    open.add_permits(2);
    settle_down().await;
    harness.advance(secs(2)).await;
    begins.recv().await.unwrap();
    settle_down().await;
    harness.worker().shutdown();
    let summary = run.await.unwrap().unwrap();
    assert_eq!((summary.lost, summary.deferred, summary.processed), (1, 1, 1));
}

#[tokio::test]
async fn a_handler_that_outlives_its_lease_runs_once() {
    let (harness, gate, mut begins) = gated(|worker| worker);
    push(&harness, 1).await;
    let watch = async {
        begins.recv().await.unwrap();
        harness.advance(secs(95)).await;
        gate.open.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    let summary = summary.unwrap();
    assert_eq!((summary.processed, summary.lost), (1, 0));
    assert!(begins.try_recv().is_err(), "it ran twice");
}

#[tokio::test]
async fn a_worker_that_stands_still_is_not_live_and_one_that_goes_on_is() {
    let (harness, gate, mut begins) = gated(|worker| worker);
    push(&harness, 1).await;
    let watch = async {
        begins.recv().await.unwrap();
        harness.advance(secs(300)).await;
        assert!(harness.worker().health().since_tick <= secs(5), "{:?}", harness.worker().health());
        gate.open.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 1);
    assert!(harness.worker().health().is_live(secs(60)));
    harness.stall(secs(61));
    assert!(!harness.worker().health().is_live(secs(60)));
}

#[tokio::test]
async fn a_paused_partition_starts_nothing_until_it_is_resumed() {
    let (harness, gate, _begins) = gated(|worker| worker);
    gate.open.add_permits(9);
    push(&harness, 3).await;
    harness.worker().pause("p").unwrap();
    assert_eq!(harness.run().await.unwrap().processed, 0);
    harness.worker().resume("p").unwrap();
    assert_eq!(harness.run().await.unwrap().processed, 3);
    assert!(harness.worker().pause("elsewhere").is_err());
}

#[tokio::test]
async fn pausing_while_it_runs_releases_what_has_not_started() {
    let (harness, gate, mut begins) = gated(|worker| worker.slots(1).prefetch(2));
    push(&harness, 4).await;
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 3);
        harness.worker().pause("p").unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 1);
        gate.open.add_permits(1);
        settle_down().await;
        assert!(begins.try_recv().is_err());
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 1);
}

/// Says no while it is told to.
#[derive(Clone, Debug, Default)]
struct Switch(Arc<AtomicBool>);

impl Governor for Switch {
    fn check(&self) -> Room {
        if self.0.load(SeqCst) { Room::none("as the test wants") } else { Room::all() }
    }
}

#[tokio::test]
async fn the_governor_stops_the_pulling_and_releases_what_has_not_started() {
    let switch = Switch::default();
    let (harness, gate, mut begins) = gated(|worker| worker.slots(1).prefetch(2).governor(switch.clone()));
    push(&harness, 4).await;
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(leased(&harness).await, 3);
        switch.0.store(true, SeqCst);
        harness.advance(secs(2)).await;
        assert_eq!(leased(&harness).await, 1);
        assert_eq!(harness.worker().health().throttled.as_deref(), Some("as the test wants"));
        gate.open.add_permits(9);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 1);
    switch.0.store(false, SeqCst);
    assert_eq!(harness.run().await.unwrap().processed, 3);
    assert_eq!(harness.worker().health().throttled, None);
}

#[tokio::test]
async fn strict_order_serves_the_first_partition_first() {
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = order.clone();
    let harness = Harness::new(|worker| {
        let worker = worker.slots(1).sharing(Sharing::Strict);
        let worker = worker.partition(Partition::new("urgent")).partition(Partition::new("p"));
        worker.handler("k", move |_: u32, task: TaskContext| {
            seen.lock().unwrap().push(task.partition().to_string());
            async { Ok(()) }
        })
    })
    .unwrap();
    push(&harness, 3).await;
    for number in 0..3 {
        harness.push("urgent", "k", &number).await.unwrap();
    }
    assert_eq!(harness.run().await.unwrap().processed, 6);
    assert_eq!(*order.lock().unwrap(), ["urgent", "urgent", "urgent", "p", "p", "p"]);
}

#[tokio::test]
async fn tasks_that_push_tasks_are_worked_to_the_last() {
    let harness = Harness::new(|worker| {
        let worker = worker.partition(Partition::new("p")).partition(Partition::new("q"));
        worker.handler("k", |depth: u32, task: TaskContext| async move {
            for _ in 0..depth {
                let to = if task.partition().name() == "p" { "q" } else { "p" };
                task.queue().push(to, task.child("k", &(depth - 1))?).await?;
            }
            Ok(())
        })
    })
    .unwrap();
    harness.push("p", "k", &4).await.unwrap();
    // 1 + 4 + 4·3 + 4·3·2 + 4·3·2·1
    assert_eq!(harness.run().await.unwrap().processed, 65);
}

#[tokio::test]
async fn what_wraps_handlers_sees_their_results_and_may_change_them() {
    let (gate, _begins) = Gate::new();
    gate.open.add_permits(9);
    let harness = Harness::new(|worker| {
        worker
            .partition(Partition::new("p"))
            .handler("k", move |_: u32, task| gate.clone().pass(task))
            .wrap(|_, run| async move { run.await.and(Err(TaskError::permanent("inner"))) })
            .wrap(|_, run| async move {
                assert_eq!(run.await.unwrap_err().to_string(), "inner");
                Err(TaskError::permanent("outer"))
            })
    })
    .unwrap();
    push(&harness, 1).await;
    assert_eq!(harness.run().await.unwrap().dead, 1);
    let dead = harness.dead("p").await.unwrap();
    assert_eq!(dead[0].reason.as_deref(), Some("failed permanently in attempt 1: outer"));
}

#[tokio::test]
async fn what_cannot_be_a_worker_is_refused_with_every_fault() {
    let refused = Harness::new(|worker| {
        let worker = worker.slots(0).partition(Partition::new("p").weight(0)).partition(Partition::new("p"));
        worker.kind(Kind::new("unknown"))
    });
    let told = refused.unwrap_err().to_string();
    for fault in
        ["0 slots", "weight or concurrency 0", "named twice", "\"unknown\" has no handler", "no handler"]
    {
        assert!(told.contains(fault), "{fault:?} in {told}");
    }
    let none = Harness::new(|worker| worker).unwrap_err().to_string();
    assert!(none.contains("no partition"), "{none}");
}
