//! Amendments beside everything else that changes messages: always one order or another of both, and nobody is locked out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::OnDuplicate::{Earlier, Replace};
use anyqueue::adapter::{
    Action, AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage,
};
use anyqueue::{
    Amend, AmendOutcome, DeleteOutcome, ErrorKind, MessageData, Page, PartitionId, Result, RetryClass,
    SettleOutcome,
};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::amend::{DAY, amend, amend_one, seen};
use crate::common::{Bed, LEASE, SOON, part, pull, pull_wait, push, remove, run, texts};
use crate::locks::until_locked;
use crate::successors::drain;

fn member(text: &str, group: &str) -> MessageData {
    MessageData::new(text).with_group(group)
}

/// A pull of another process waits, and no notification is late.
#[tokio::test]
async fn amendments_wake_pulls_that_wait_here_and_elsewhere() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other, p) = (bed.open().await, bed.open().await, part("p"));
    let [delayed, disabled] = ["delayed", "disabled"].map(|text| MessageData::new(text).with_delay(DAY));
    let leader = member("head", "g");
    queue.push(&p, &[delayed.clone(), disabled.clone(), leader.clone(), member("next", "g")]).await;
    amend_one(&queue, &p, &disabled, Amend::new().disable().now()).await;
    let held = pull(&queue, &p, 1).await;
    assert_eq!(texts(&held), ["head"]);
    let release = anyqueue::adapter::Settlement::new(
        held[0].lease.clone(),
        Action::Postpone { delay: DAY, headers: None },
    );
    queue.settle(&[release]).await.remove(0).unwrap();
    for (puller, message, change, expected) in [
        (&queue, &delayed, Amend::new().now(), "delayed"),
        (&other, &disabled, Amend::new().enable(), "disabled"),
        (&other, &leader, Amend::new().without_group().due_in(DAY), "next"),
        (&queue, &leader, Amend::new().due_in(Duration::from_millis(300)), "head"),
    ] {
        let waiting = tokio::spawn({
            let (puller, p) = (puller.clone(), p.clone());
            async move { pull_wait(&puller, &p, 1).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await; // so that it waits, most likely
        amend_one(&queue, &p, message, change).await;
        let held = waiting.await.unwrap();
        assert_eq!(texts(&held), [expected]);
        assert_eq!(remove(puller, &held[0].lease).await, SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn what_somebody_has_locked_is_waited_for_and_nothing_else_is_kept_locked_meanwhile() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let messages = ["locked", "free"].map(MessageData::new);
    queue.push(&p, &messages).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(
        &mut tx,
        format!("SELECT FROM {schema}.message WHERE position('locked'::bytea IN body) > 0 FOR UPDATE"),
    )
    .await;
    let amending = tokio::spawn({
        let (queue, p, messages) = (queue.clone(), p.clone(), messages.clone());
        async move { amend(&queue, &p, &[&messages[0], &messages[1]], Amend::new().with_priority(1)).await }
    });
    // The free one is changed and given out, while the other is still locked.
    while seen(&queue, &p, &messages[1]).await.message.options().priority == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["free"]);
    tx.rollback().await.unwrap();
    assert_eq!(amending.await.unwrap(), [AmendOutcome::Amended; 2]);
    assert_eq!(drain(&queue, &p).await, ["locked"]);

    let impatient = PostgresQueue::builder(&bed.url()).unwrap().call_timeout(Duration::from_secs(3));
    let impatient = impatient.open().await.unwrap();
    let locked = MessageData::new("locked");
    queue.push(&p, std::slice::from_ref(&locked)).await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, format!("SELECT FROM {schema}.message FOR UPDATE")).await;
    let unknown = MessageData::new("unknown").id();
    let mut outcomes = impatient.amend(&p, &[locked.id(), unknown], &Amend::new().disable()).await;
    assert_eq!(outcomes.pop().unwrap().unwrap(), AmendOutcome::NotFound);
    let error = outcomes.pop().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{error}");
    tx.rollback().await.unwrap();
}

/// The group is locked until both wait, with the member that the amendment takes away still in it.
#[tokio::test]
async fn deleting_and_purging_a_member_that_joins_another_group_meanwhile_leave_both_groups_a_head() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    for purges in [false, true] {
        let [first, moving, third] = ["first", "moving", "third"].map(|text| member(text, "g"));
        queue.push(&p, &[first, moving.clone(), third, member("other", "h")]).await;
        let held = pull(&queue, &p, 9).await;
        let mut conn = bed.connect().await;
        let mut tx = conn.begin().await.unwrap();
        run(&mut tx, format!("SELECT FROM {schema}.message_group WHERE name = 'g' FOR UPDATE")).await;
        let amending = tokio::spawn({
            let (queue, p, moving) = (queue.clone(), p.clone(), moving.clone());
            async move { amend(&queue, &p, &[&moving], Amend::new().with_group("h")).await }
        });
        until_locked(&bed, 1).await;
        let removing = tokio::spawn({
            let (queue, p, id) = (queue.clone(), p.clone(), moving.id());
            async move {
                if purges {
                    assert_eq!(queue.purge(&p, 9).await.unwrap(), 2);
                } else {
                    let deleted = queue.delete(&p, &[id]).await.remove(0).unwrap();
                    assert_eq!(deleted, DeleteOutcome::Deleted);
                }
            }
        });
        until_locked(&bed, 2).await;
        tx.rollback().await.unwrap();
        assert_eq!(amending.await.unwrap(), [AmendOutcome::Amended]);
        removing.await.unwrap();
        for held in held {
            remove(&queue, &held.lease).await;
        }
        assert_eq!(drain(&queue, &p).await, if purges { &[][..] } else { &["third"] });
        assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
    }
    let left = format!("SELECT 1 / (count(*) = 0)::integer FROM {schema}.message_group");
    bed.run(left).await; // no group is remembered that has no members
}

/// Whether the server ended a call in favour of another, so that it has to be made again. Counts how often.
fn is_ended<T>(ended: &AtomicUsize, outcomes: Vec<Result<T>>) -> bool {
    let Some(error) = outcomes.into_iter().find_map(Result::err) else { return false };
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{error}");
    ended.fetch_add(1, Ordering::Relaxed);
    true
}

const TASKS: usize = 6;
const ROUNDS: usize = 50;

/// Pushes, pulls, ends, deletes and amends, in orders that differ.
async fn work(bed: &Bed, p: PartitionId, task: usize, ended: Arc<AtomicUsize>) -> PostgresQueue {
    let queue = bed.open().await;
    for round in 0..ROUNDS {
        let message = |n: usize| {
            let message = MessageData::new("m").with_priority(u8::try_from(n % 3).unwrap());
            match (n + round) % 5 {
                0 => message.with_group(format!("g{}", (n + task) % 3)),
                1 => message.with_group("g0").with_delay(Duration::from_millis(5)),
                2 => message.with_dedup_key(format!("k{n}")).with_on_duplicate(Replace),
                3 => message.with_dedup_key(format!("k{n}")).with_on_duplicate(Earlier),
                _ => message.with_urgent_after(Duration::from_millis(3)),
            }
        };
        let batch: Vec<_> = (0..6).map(message).collect();
        while is_ended(&ended, queue.push(&p, &batch).await) {}
        let page = queue.browse(&p, Page::of(1000)).await.unwrap();
        let mut ids: Vec<_> = page.iter().skip(round % 5).step_by(3).map(|seen| seen.message.id()).collect();
        if task.is_multiple_of(2) {
            ids.reverse();
        }
        let change = match (task + round) % 7 {
            0 => Amend::new().disable(),
            1 => Amend::new().enable().with_priority(8),
            2 => Amend::new().with_group("g1"),
            3 => Amend::new().without_group().now(),
            4 => Amend::new().due_in(Duration::from_millis(4)),
            5 => Amend::new().with_group(format!("g{}", round % 3)).with_priority(1).disable(),
            _ => Amend::new().enable().now(),
        };
        while is_ended(&ended, queue.amend(&p, &ids, &change).await) {}
        let held = queue.pull(&p, PullRequest::new(5, Duration::ZERO, LEASE)).await.unwrap();
        let (back, done) = held.split_at(held.len() / 2);
        for held in back {
            let release = anyqueue::adapter::Settlement::new(held.lease.clone(), Action::Release);
            while is_ended(&ended, queue.settle(std::slice::from_ref(&release)).await) {}
        }
        let ends: Vec<_> = done.iter().map(|held| crate::successors::removal(held, &[])).collect();
        while is_ended(&ended, queue.settle(&ends).await) {}
        while is_ended(&ended, queue.delete(&p, ids.get(..3).unwrap_or(&ids)).await) {}
    }
    queue
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_amend_beside_all_others_hardly_ever_lock_one_out_and_leave_every_group_a_head() {
    const MOST: usize = 4;
    let Some(bed) = Bed::find().await else { return };
    let (bed, p, ended) = (Arc::new(bed), part("p"), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (bed, p, ended) = (Arc::clone(&bed), p.clone(), Arc::clone(&ended));
        tasks.spawn(async move { work(&bed, p, task, ended).await });
    }
    let queues = tokio::time::timeout(SOON * 3, tasks.join_all()).await.expect("nobody waits forever");
    let ended = ended.load(Ordering::Relaxed);
    assert!(ended <= MOST, "{ended} calls were ended");
    let queue = &queues[0];
    let ids: Vec<_> =
        queue.browse(&p, Page::of(1000)).await.unwrap().iter().map(|seen| seen.message.id()).collect();
    for outcome in queue.amend(&p, &ids, &Amend::new().enable().now()).await {
        assert_eq!(outcome.unwrap(), AmendOutcome::Amended);
    }
    assert_eq!(drain(queue, &p).await.len(), ids.len(), "what waits can be pulled");
    let left = format!("SELECT 1 / (count(*) = 0)::integer FROM {}.message_group", bed.schema);
    bed.run(left).await;
}

/// Everybody pulls; what `amend` has answered that it disabled nobody may get any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_disabled_by_the_answer_is_never_delivered() {
    const MESSAGES: usize = 1000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let messages: Vec<_> = (0..MESSAGES)
        .map(|n| if n % 2 == 0 { MessageData::new("m") } else { member("m", &format!("g{}", n % 50)) })
        .collect();
    for pushed in queue.push(&p, &messages).await {
        pushed.unwrap();
    }
    let pulling = (0..3).map(|_| {
        let (queue, p) = (queue.clone(), p.clone());
        tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let held = pull(&queue, &p, 7).await;
                if held.is_empty() {
                    return got;
                }
                for held in &held {
                    remove(&queue, &held.lease).await;
                }
                got.extend(held.iter().map(|held| held.lease.id));
            }
        })
    });
    let pulling: Vec<_> = pulling.collect();
    let mut disabled = Vec::new();
    for some in messages.rchunks(40) {
        let ids: Vec<_> = some.iter().map(MessageData::id).collect();
        for (id, outcome) in ids.iter().zip(queue.amend(&p, &ids, &Amend::new().disable()).await) {
            if outcome.unwrap() == AmendOutcome::Amended {
                disabled.push(*id);
            }
        }
    }
    let mut got = Vec::new();
    for pulling in pulling {
        got.extend(pulling.await.unwrap());
    }
    assert!(!disabled.is_empty() && !got.is_empty());
    assert!(disabled.iter().all(|id| !got.contains(id)));
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(u64::try_from(disabled.len()).unwrap()));
    assert_eq!(got.len() + disabled.len() + drain(&queue, &p).await.len(), MESSAGES);
    push(&queue, &p, &["goes on"]).await;
    assert_eq!(drain(&queue, &p).await, ["goes on"]);
}
