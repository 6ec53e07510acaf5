//! Batch handlers over whole groups: what comes together, what each result does, and that nobody overtakes anybody.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::{Delivery, MessageData, MessageId};
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{
    BatchContext, CancelReason, Kind, Partition, Retry, Task, TaskContext, TaskError, TaskResult,
    WorkerBuilder, task,
};
use tokio::sync::{Semaphore, mpsc};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The numbers of each batch that began, in order.
type Begun = Arc<Mutex<Vec<Vec<u32>>>>;

fn numbers(tasks: &[Task<u32>]) -> Vec<u32> {
    tasks.iter().map(|task| task.payload).collect()
}

fn groups(members: usize) -> Partition {
    Partition::new("p").whole_groups(members).retry(Retry::exponential(secs(20)).jitter(0.5).max(2))
}

/// A worker of `p` whose handler of kind `k` notes each batch and returns what `results` says of it.
fn noting(
    refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    results: impl Fn(&[Task<u32>]) -> Vec<TaskResult> + Send + Sync + 'static,
) -> (Harness, Begun) {
    let begun = Begun::default();
    let notes = begun.clone();
    let build = |worker: WorkerBuilder| {
        refine(worker).batch_handler("k", move |tasks: Vec<Task<u32>>, _: BatchContext| {
            notes.lock().unwrap().push(numbers(&tasks));
            let results = results(&tasks);
            async move { results }
        })
    };
    (Harness::new(build).unwrap(), begun)
}

fn fine(tasks: &[Task<u32>]) -> Vec<TaskResult> {
    tasks.iter().map(|_| Ok(())).collect()
}

/// A batch that began, and how it goes on.
type Entered = (Vec<Task<u32>>, BatchContext);

/// A worker of `p` whose batches wait to be let go, and stop when they are asked to.
fn gated(
    refine: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
) -> (Harness, Arc<Semaphore>, mpsc::Receiver<Entered>) {
    let (begun, begins) = mpsc::channel(100);
    let open = Arc::new(Semaphore::new(0));
    let gate = open.clone();
    let handler = move |tasks: Vec<Task<u32>>, batch: BatchContext| {
        let (begun, gate) = (begun.clone(), gate.clone());
        async move {
            begun.send((tasks, batch.clone())).await?;
            tokio::select! {
                permit = gate.acquire() => { permit?.forget(); Ok(()) }
                reason = batch.cancelled() => Err(TaskError::retry(reason.as_str())),
            }
        }
    };
    (Harness::new(|worker| refine(worker).batch_handler("k", handler)).unwrap(), open, begins)
}

fn member(kind: &str, number: u32, group: &str) -> MessageData {
    task(kind, &number).unwrap().with_group(group)
}

async fn push(harness: &Harness, group: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in numbers {
        ids.push(harness.push_message("p", member("k", number, group)).await.unwrap());
    }
    ids
}

/// Lets everybody do what there is to do.
async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn begun(notes: &Begun) -> Vec<Vec<u32>> {
    notes.lock().unwrap().clone()
}

#[tokio::test]
async fn one_call_gets_all_members_in_order_and_the_next_call_those_behind() {
    let (harness, notes) = noting(|worker| worker.partition(groups(3)), fine);
    push(&harness, "a", 0..5).await;
    push(&harness, "b", 10..12).await;
    harness.push("p", "k", &20).await.unwrap();
    assert_eq!(harness.run().await.unwrap().processed, 8);
    let mut batches = begun(&notes);
    batches.sort();
    assert_eq!(batches, [vec![0, 1, 2], vec![3, 4], vec![10, 11], vec![20]]);
}

#[tokio::test]
async fn one_free_slot_is_enough_for_a_whole_group() {
    let (harness, notes) = noting(|worker| worker.partition(groups(10)).slots(1), fine);
    push(&harness, "a", 0..10).await;
    push(&harness, "b", 10..15).await;
    harness.run().await.unwrap();
    assert_eq!(begun(&notes), [(0..10).collect::<Vec<_>>(), (10..15).collect()]);
}

#[tokio::test]
async fn a_result_for_each_ends_each_in_its_own_way() {
    let (harness, notes) = noting(
        |worker| worker.partition(groups(9)),
        |tasks| {
            let result = |task: &Task<u32>| match (task.payload, task.context.attempt()) {
                (1, 1) => Err(TaskError::retry("not now")),
                (2, _) => Err(TaskError::permanent("never")),
                _ => Ok(()),
            };
            tasks.iter().map(result).collect()
        },
    );
    push(&harness, "a", 0..4).await;
    let summary = harness.run().await.unwrap();
    assert_eq!((summary.processed, summary.retried, summary.dead), (2, 1, 1));
    push(&harness, "a", [4]).await;
    assert_eq!(harness.run().await.unwrap().processed, 0, "the one to be retried holds its group");
    harness.advance(secs(31)).await;
    assert_eq!(harness.run().await.unwrap().processed, 2);
    assert_eq!(begun(&notes), [vec![0, 1, 2, 3], vec![1, 4]]);
    assert_eq!(
        harness.dead("p").await.unwrap()[0].reason.clone().unwrap(),
        "failed permanently in attempt 1: never"
    );
}

#[tokio::test]
async fn a_batch_that_fails_comes_again_in_order_and_each_task_has_its_own_count() {
    let (begun, mut begins) = mpsc::channel(9);
    let harness = Harness::new(|worker| {
        worker.partition(groups(9)).batch_handler("k", move |tasks: Vec<Task<u32>>, _| {
            let begun = begun.clone();
            async move {
                let told: Vec<_> = tasks.iter().map(|task| (task.payload, task.context.attempt())).collect();
                begun.send(told).await?;
                Err::<(), _>(TaskError::retry("not now"))
            }
        })
    })
    .unwrap();
    harness.push_message("p", member("k", 0, "a").with_max_retries(1)).await.unwrap();
    push(&harness, "a", 1..3).await;
    assert_eq!(harness.run().await.unwrap().retried, 3);
    push(&harness, "a", [3]).await;
    harness.advance(secs(31)).await;
    let second = harness.run().await.unwrap();
    assert_eq!((second.retried, second.dead), (3, 1), "the first had one retry only");
    harness.advance(secs(61)).await;
    let third = harness.run().await.unwrap();
    assert_eq!((third.retried, third.dead), (1, 2));
    assert_eq!(begins.recv().await.unwrap(), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(begins.recv().await.unwrap(), [(0, 2), (1, 2), (2, 2), (3, 1)]);
    assert_eq!(begins.recv().await.unwrap(), [(1, 3), (2, 3), (3, 2)]);
}

#[tokio::test]
async fn a_wrong_number_of_results_is_a_failure_of_all_that_says_so() {
    let (harness, _) =
        noting(|worker| worker.partition(groups(9).retry(Retry::never())), |_| vec![Ok(()); 2]);
    push(&harness, "a", 0..3).await;
    assert_eq!(harness.run().await.unwrap().dead, 3);
    for dead in harness.dead("p").await.unwrap() {
        let reason = dead.reason.clone().unwrap();
        assert!(reason.contains("returned 2 results for 3 tasks"), "{reason}");
    }
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_of_all_and_the_slot_is_free() {
    let (harness, notes) = noting(
        |worker| worker.partition(groups(9)).slots(1),
        |tasks| {
            assert!(tasks[0].context.attempt() > 1, "as the test wants");
            fine(tasks)
        },
    );
    push(&harness, "a", 0..3).await;
    assert_eq!(harness.run().await.unwrap().retried, 3);
    harness.advance(secs(31)).await;
    assert_eq!(harness.run().await.unwrap().processed, 3);
    assert_eq!(begun(&notes), [[0, 1, 2], [0, 1, 2]]);
}

#[tokio::test]
async fn the_shortest_limit_of_its_tasks_is_that_of_the_batch() {
    let (harness, _, mut begins) = gated(|worker| worker.partition(groups(9)).timeout(secs(300)));
    push(&harness, "a", [0]).await;
    let hasty = member("k", 1, "a").with_max_duration(secs(20));
    harness.push_message("p", hasty).await.unwrap();
    let watch = async {
        let (tasks, batch) = begins.recv().await.unwrap();
        assert_eq!(batch.remaining(), Some(secs(20)));
        harness.advance(secs(21)).await;
        assert_eq!(batch.cancel_reason(), Some(CancelReason::Timeout));
        assert!(tasks.iter().all(|task| task.context.cancel_reason() == Some(CancelReason::Timeout)));
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().dead, 2, "time-outs are not retried by default");
}

#[tokio::test]
async fn a_shutdown_interrupts_the_batch_and_releases_what_has_not_started() {
    let (harness, _, mut begins) =
        gated(|worker| worker.partition(groups(3)).slots(1).prefetch(1).drain(secs(1), secs(1)));
    push(&harness, "a", 0..5).await;
    push(&harness, "b", 10..12).await;
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        harness.worker().shutdown();
        harness.advance(secs(20)).await;
    };
    let (summary, ()) = tokio::join!(harness.worker().run_until(std::future::pending()), watch);
    let summary = summary.unwrap();
    assert_eq!((summary.interrupted, summary.released, summary.abandoned), (3, 2, 0));
    let back = harness.queue().pull("p").max(9).whole_groups(9).await.unwrap();
    let members = back.iter().map(|group| group.members().iter().map(Delivery::payload).collect::<Vec<_>>());
    assert_eq!(members.collect::<Vec<_>>(), [vec![&b"0"[..], b"1", b"2", b"3", b"4"], vec![b"10", b"11"]]);
    let counts = back.iter().flat_map(anyqueue::GroupDelivery::members).map(Delivery::delivery_count);
    assert!(counts.into_iter().all(|count| count == Some(1)), "uncounted");
}

#[tokio::test]
async fn kinds_do_not_mix_and_what_has_no_batch_handler_runs_alone() {
    let order = Begun::default();
    let notes = [order.clone(), order.clone(), order.clone()];
    let [k, l, m] = notes;
    let note = |notes: Begun| {
        move |tasks: Vec<Task<u32>>, _: BatchContext| {
            notes.lock().unwrap().push(numbers(&tasks));
            async { Ok(()) }
        }
    };
    let harness = Harness::new(|worker| {
        let worker = worker.partition(groups(9)).batch_handler("k", note(k)).batch_handler("l", note(l));
        worker.handler("m", move |number: u32, task: TaskContext| {
            m.lock().unwrap().push(vec![number]);
            async move {
                assert_eq!(task.delivery_count(), Some(1), "what was released is not counted");
                Ok(())
            }
        })
    })
    .unwrap();
    for (number, kind) in ["k", "k", "l", "l", "m", "m", "k"].into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        harness.push_message("p", member(kind, number, "a")).await.unwrap();
    }
    assert_eq!(harness.run().await.unwrap().processed, 7);
    assert_eq!(begun(&order), [vec![0, 1], vec![2, 3], vec![4], vec![5], vec![6]]);
}

#[tokio::test]
async fn what_stands_behind_a_run_is_released_while_it_runs() {
    let (harness, gate, mut begins) = gated(|worker| {
        worker.partition(groups(9)).batch_handler("l", |_: Vec<Task<u32>>, _| async { Ok(()) })
    });
    push(&harness, "a", 0..2).await;
    harness.push_message("p", member("l", 2, "a")).await.unwrap();
    let watch = async {
        begins.recv().await.unwrap();
        settle_down().await;
        assert_eq!(harness.counts("p").await.unwrap().leased, Some(2));
        gate.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 3);
}

#[tokio::test]
async fn no_two_batches_of_a_group_run_at_once_and_what_is_pushed_meanwhile_comes_next() {
    let (harness, gate, mut begins) = gated(|worker| worker.partition(groups(2)).slots(4));
    push(&harness, "a", 0..4).await;
    let watch = async {
        let (first, _) = begins.recv().await.unwrap();
        assert_eq!(numbers(&first), [0, 1]);
        push(&harness, "a", [4]).await;
        settle_down().await;
        assert!(begins.try_recv().is_err(), "another batch of the group runs");
        for expected in [vec![2, 3], vec![4]] {
            gate.add_permits(1);
            assert_eq!(numbers(&begins.recv().await.unwrap().0), expected);
        }
        gate.add_permits(1);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 5);
}

#[tokio::test]
async fn a_task_that_cannot_be_read_holds_its_group_and_is_overtaken_by_none() {
    let (harness, notes) = noting(|worker| worker.partition(groups(9)).unknown_tasks(1, secs(30)), fine);
    push(&harness, "a", [0]).await;
    harness.push_message("p", task("k", &"no number").unwrap().with_group("a")).await.unwrap();
    push(&harness, "a", [2]).await;
    let first = harness.run().await.unwrap();
    assert_eq!((first.processed, begun(&notes)), (1, vec![vec![0]]));
    harness.advance(secs(31)).await;
    let second = harness.run().await.unwrap();
    assert_eq!((second.dead, second.processed), (1, 1), "it is dead, and frees the next");
    assert_eq!(begun(&notes), [vec![0], vec![2]]);
}

#[tokio::test]
async fn a_cancelled_task_is_told_alone_and_the_batch_stops_when_all_are() {
    let (harness, _, mut begins) = gated(|worker| worker.partition(groups(9)));
    let ids = push(&harness, "a", 0..2).await;
    let watch = async {
        let (tasks, batch) = begins.recv().await.unwrap();
        for (cancelled, id) in ids.iter().enumerate() {
            assert_eq!(batch.cancel_reason(), None);
            harness.queue().request_cancel("p", &[*id]).await.unwrap().remove(0).unwrap();
            harness.advance(secs(11)).await;
            let told: Vec<_> = tasks.iter().filter(|task| task.context.cancel_reason().is_some()).collect();
            assert_eq!(told.len(), cancelled + 1);
        }
        assert_eq!(batch.cancel_reason(), Some(CancelReason::CancelRequested));
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().cancelled, 2);
}

#[tokio::test]
async fn lost_leases_stop_the_batch_and_burn_no_attempt() {
    let (harness, gate, mut begins) = gated(|worker| worker.partition(groups(9)));
    push(&harness, "a", 0..2).await;
    let watch = async {
        let (_, first) = begins.recv().await.unwrap();
        harness.stall(secs(31));
        assert_eq!(first.cancelled().await, CancelReason::LeaseLost);
        gate.add_permits(9);
        // They come again one by one: the worker cannot know that they were not lost with a process.
        for number in 0..2 {
            let (again, _) = begins.recv().await.unwrap();
            assert_eq!((numbers(&again), again[0].context.attempt()), (vec![number], 1));
        }
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    let summary = summary.unwrap();
    assert_eq!((summary.lost, summary.processed, summary.retried), (2, 2, 0));
}

#[tokio::test]
async fn a_batch_takes_one_slot_and_one_place_of_its_kind_and_every_task_of_it_is_running() {
    let (harness, gate, mut begins) =
        gated(|worker| worker.partition(groups(3)).slots(4).kind(Kind::new("k").concurrency(2)));
    for group in ["a", "b", "c"] {
        push(&harness, group, 0..3).await;
    }
    let watch = async {
        begins.recv().await.unwrap();
        begins.recv().await.unwrap();
        settle_down().await;
        assert!(begins.try_recv().is_err(), "more batches run than the kind may");
        assert_eq!(harness.worker().health().running, 2);
        assert_eq!(harness.worker().running().len(), 6);
        gate.add_permits(3);
    };
    let (summary, ()) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().processed, 9);
    assert_eq!((harness.worker().health().running, harness.worker().running().len()), (0, 0));
}

#[tokio::test]
async fn a_partition_that_is_not_pulled_in_groups_gives_batches_of_one() {
    let (harness, notes) = noting(|worker| worker.partition(Partition::new("p")), fine);
    push(&harness, "a", 0..3).await;
    assert_eq!(harness.run().await.unwrap().processed, 3);
    assert_eq!(begun(&notes), [[0], [1], [2]]);
}

#[tokio::test]
async fn what_a_task_adds_is_stored_with_its_own_end_only() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counts = ran.clone();
    let harness = Harness::new(|worker| {
        let worker = worker.partition(groups(9)).batch_handler("k", |tasks: Vec<Task<u32>>, _| async move {
            let mut results = Vec::new();
            for task in tasks {
                task.context.then("p", task.context.child("next", &task.payload)?)?;
                results.push(if task.payload == 0 { Ok(()) } else { Err(TaskError::retry("not now")) });
            }
            Ok::<_, TaskError>(results)
        });
        worker.handler("next", move |number: usize, _| {
            assert_eq!(number, 0);
            counts.fetch_add(1, SeqCst);
            async { Ok(()) }
        })
    })
    .unwrap();
    push(&harness, "a", 0..2).await;
    let summary = harness.run().await.unwrap();
    assert_eq!((summary.processed, summary.retried, ran.load(SeqCst)), (2, 1, 1));
}

#[tokio::test]
async fn whole_groups_that_make_no_sense_are_refused_with_the_reason() {
    let problem = |partition: Partition, batches: bool| {
        let built = Harness::new(|worker| {
            let worker = worker.partition(partition).handler("m", |_: u32, _| async { Ok(()) });
            if batches { worker.batch_handler("k", |_: Vec<Task<u32>>, _| async { Ok(()) }) } else { worker }
        });
        built.map(|_| ()).unwrap_err().to_string()
    };
    let dead = anyqueue::PartitionId::new("p").unwrap().dead_letters();
    let anew = groups(2).retry(Retry::default().as_new_message());
    for (partition, batches, expected) in [
        (groups(0), true, "groups of 0 members"),
        (groups(usize::MAX), true, "too many"),
        (groups(2), false, "no handler takes batches"),
        (anew, true, "leave out as_new_message()"),
        (Partition::new(dead).whole_groups(2), true, "dead letters know no groups"),
    ] {
        let text = problem(partition, batches);
        assert!(text.contains(expected), "{text}");
    }
}
