//! Successors: stored in the statement that ends their delivery, or not at all.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, Lease, PullQueueStorage, PushQueueStorage, RawDelivery, Settlement,
    Successor,
};
use anyqueue::{ErrorKind, MessageData, PartitionId, Result, SettleOutcome};
use anyqueue_postgres::PostgresQueue;

use crate::common::{Bed, LEASE, SOON, part, pull, pull_wait, push, remove, texts};
use crate::older_release::{make_old, push_old};

/// A settlement that brings these messages.
pub(crate) fn with(lease: &Lease, action: Action, then: &[(&PartitionId, MessageData)]) -> Settlement {
    let successor = |(partition, message): &(&PartitionId, MessageData)| Successor {
        partition: (*partition).clone(),
        message: message.clone(),
    };
    Settlement::new(lease.clone(), action).with_then(then.iter().map(successor).collect())
}

pub(crate) fn removal(held: &RawDelivery, then: &[(&PartitionId, MessageData)]) -> Settlement {
    with(&held.lease, Action::Remove, then)
}

async fn settle_one(queue: &PostgresQueue, settlement: Settlement) -> Result<SettleOutcome> {
    queue.settle(&[settlement]).await.remove(0)
}

pub(crate) fn outcomes(
    results: &[Result<SettleOutcome>],
) -> Vec<std::result::Result<SettleOutcome, ErrorKind>> {
    results.iter().map(|result| result.as_ref().copied().map_err(anyqueue::Error::kind)).collect()
}

/// Pulls and removes all there is, and returns the texts in order.
pub(crate) async fn drain(queue: &PostgresQueue, partition: &PartitionId) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let held = pull(queue, partition, 9).await;
        if held.is_empty() {
            return all;
        }
        all.extend(texts(&held));
        for held in held {
            assert_eq!(remove(queue, &held.lease).await, SettleOutcome::Settled);
        }
    }
}

pub(crate) fn actions() -> [Action; 5] {
    let postpone = Action::Postpone { delay: LEASE, headers: None };
    let move_to = Action::Move { to: part("moved"), headers: None };
    [Action::Remove, Action::Release, Action::Retry, postpone, move_to]
}

#[tokio::test]
async fn every_end_stores_what_follows_it_in_order_and_makes_its_partition() {
    for prepared in [true, false] {
        let Some(bed) = Bed::find().await else { return };
        let builder = PostgresQueue::builder(&bed.url()).unwrap().notify(prepared).prepared(prepared);
        let (queue, p) = (builder.open().await.unwrap(), part("p"));
        for (number, action) in actions().into_iter().enumerate() {
            let next = part(&format!("next-{number}"));
            push(&queue, &p, &["m"]).await;
            let held = pull(&queue, &p, 1).await.remove(0);
            let then = [
                (&next, MessageData::new("b")),
                (&next, MessageData::new("late").with_delay(LEASE)),
                (&next, MessageData::new("urgent").with_priority(9)),
                (&next, MessageData::new("c")),
            ];
            let settled = settle_one(&queue, with(&held.lease, action.clone(), &then)).await;
            assert_eq!(settled.unwrap(), SettleOutcome::Settled, "{action:?}");
            assert_eq!(queue.counts(&next).await.unwrap().delayed, Some(1), "{action:?}");
            assert_eq!(drain(&queue, &next).await, ["urgent", "b", "c"], "{action:?}");
            queue.purge(&p, 9).await.unwrap();
        }
    }
}

#[tokio::test]
async fn successors_of_a_call_are_stored_in_its_order() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, next) = (bed.open().await, part("p"), part("next"));
    push(&queue, &p, &["m"; 5]).await;
    let mut held = pull(&queue, &p, 5).await;
    held.rotate_left(2);
    held.swap(0, 3);
    let ends: Vec<_> = (0..5)
        .zip(&held)
        .map(|(number, held)| removal(held, &[(&next, MessageData::new(format!("{number}")))]))
        .collect();
    assert_eq!(outcomes(&queue.settle(&ends).await), [Ok(SettleOutcome::Settled); 5]);
    assert_eq!(drain(&queue, &next).await, ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_successor_takes_over_what_its_delivery_had_and_a_duplicate_is_left_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let first = MessageData::new("1").with_dedup_key("k").with_group("g");
    queue.push(&p, &[first.clone(), MessageData::new("2").with_group("g")]).await;
    let held = pull(&queue, &p, 9).await.remove(0);
    let again = |text: &str| MessageData::with_id(first.id(), text.to_owned());
    let then = [
        (&p, again("3").with_dedup_key("k").with_group("g")),
        (&p, MessageData::new("same key").with_dedup_key("k")),
        (&p, again("same id")),
    ];
    assert_eq!(settle_one(&queue, removal(&held, &then)).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(drain(&queue, &p).await, ["2", "3"], "behind the group, one by one");

    // What stays in the partition keeps its id and its key.
    queue.push(&p, std::slice::from_ref(&first)).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let then = [(&p, MessageData::new("same key").with_dedup_key("k")), (&p, again("same id"))];
    let released = settle_one(&queue, with(&held.lease, Action::Release, &then)).await;
    assert_eq!(released.unwrap(), SettleOutcome::Settled);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1));

    // A dead letter keeps its id alone.
    let held = pull(&queue, &p, 1).await.remove(0);
    let then = [(&p, again("same id")), (&p, MessageData::new("key").with_dedup_key("k"))];
    let dead = Action::Move { to: p.dead_letters(), headers: None };
    assert_eq!(settle_one(&queue, with(&held.lease, dead, &then)).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(drain(&queue, &p).await, ["key"]);
}

#[tokio::test]
async fn a_lost_lease_brings_nothing_and_neither_does_the_second_end_of_one() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, next) = (bed.open().await, part("p"), part("next"));
    for action in actions() {
        push(&queue, &p, &["kept", "lost"]).await;
        let held = pull(&queue, &p, 2).await;
        remove(&queue, &held[1].lease).await;
        let end = |held: &RawDelivery, text: &str| {
            with(&held.lease, action.clone(), &[(&next, MessageData::new(text))])
        };
        let ends = [end(&held[1], "late"), end(&held[0], "first"), end(&held[0], "second")];
        let settled = queue.settle(&ends).await;
        let (settled_once, lost) = (Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost));
        assert_eq!(outcomes(&settled), [lost, settled_once, lost], "{action:?}");
        let late = [with(&held[1].lease, action.clone(), &[(&part("new"), MessageData::new("late"))])];
        assert_eq!(outcomes(&queue.settle(&late).await), [lost], "{action:?}");
        assert_eq!(drain(&queue, &next).await, ["first"], "{action:?}");
        queue.purge(&p, 9).await.unwrap();
    }
    let partitions = queue.partitions(anyqueue::Page::of(9)).await.unwrap();
    assert!(!partitions.contains(&part("new")), "{partitions:?}");
}

#[tokio::test]
async fn a_successor_wakes_pulls_here_and_of_other_handles() {
    let Some(bed) = Bed::find().await else { return };
    let open = async || {
        let builder = PostgresQueue::builder(&bed.url()).unwrap().poll_interval(Duration::from_mins(1));
        builder.open().await.unwrap()
    };
    let (queue, other, p, next) = (open().await, open().await, part("p"), part("next"));
    for (delay, waiter) in [(0, &queue), (0, &other), (300, &queue), (300, &other)] {
        push(&queue, &p, &["m"]).await;
        let held = pull(&queue, &p, 1).await.remove(0);
        let waiting = tokio::spawn({
            let (waiter, next) = (waiter.clone(), next.clone());
            async move { pull_wait(&waiter, &next, 1).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await; // until it listens
        let message = MessageData::new("next").with_delay(Duration::from_millis(delay));
        settle_one(&queue, removal(&held, &[(&next, message)])).await.unwrap();
        let got = tokio::time::timeout(SOON / 2, waiting).await.expect("it is woken").unwrap();
        assert_eq!(texts(&got), ["next"]);
        remove(&queue, &got[0].lease).await;
    }
}

/// Groups cross each other, and keys are taken over, while others push the same.
#[tokio::test]
async fn ends_that_bring_members_of_each_others_groups_lock_nobody_out() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 60;
    let Some(bed) = Bed::find().await else { return };
    let links = [part("a"), part("b")];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (queue, links) = (bed.open().await, links.clone());
        tasks.spawn(async move {
            let member = |n: usize| MessageData::new("m").with_group(format!("g{}", n % 5));
            for round in 0..ROUNDS {
                let (from, to) = (&links[(task + round) % 2], &links[(task + round + 1) % 2]);
                let keyed = |n: usize| member(n).with_dedup_key(format!("k{}", n % 7));
                for pushed in queue.push(from, &[keyed(task + round), keyed(task * round)]).await {
                    pushed.unwrap();
                }
                let ends = pull(&queue, from, 5).await.into_iter().enumerate().map(|(n, held)| {
                    let action = match n % 3 {
                        0 => Action::Move { to: to.clone(), headers: None },
                        _ => Action::Remove,
                    };
                    match held.message.options().dedup_key.clone() {
                        Some(key) => with(&held.lease, action, &[(from, member(n).with_dedup_key(&*key))]),
                        None => with(&held.lease, action, &[(to, member(n + task))]),
                    }
                });
                for settled in queue.settle(&ends.collect::<Vec<_>>()).await {
                    settled.unwrap();
                }
            }
            queue
        });
    }
    let queues = tasks.join_all().await;
    // No group has lost its head.
    for link in &links {
        while queues[0].counts(link).await.unwrap().ready != Some(0) {
            assert!(!drain(&queues[0], link).await.is_empty(), "what waits can be pulled");
        }
    }
}

#[tokio::test]
async fn a_schema_of_an_older_release_learns_of_successors_and_keeps_what_is_in_it() {
    let Some(bed) = Bed::empty().await else { return };
    let (p, next) = (part("p"), part("next"));
    let mut conn = bed.connect().await;
    make_old(&mut conn, &bed.schema, 1).await;
    push_old(&mut conn, &bed.schema, &MessageData::new("kept")).await;
    let error = PostgresQueue::builder(&bed.url()).unwrap().create(false).open().await.unwrap_err();
    assert!(error.message().contains("older release"), "{error}");
    let queue = bed.open().await;
    let held = pull(&queue, &p, 1).await.remove(0);
    assert_eq!(held.message.payload(), &b"kept"[..]);
    settle_one(&queue, removal(&held, &[(&next, MessageData::new("next"))])).await.unwrap();
    assert_eq!(drain(&queue, &next).await, ["next"]);
}
