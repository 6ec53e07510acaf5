//! No call becomes slower because more messages wait, are held, or are delayed; and what a message takes.

use std::time::Duration;

use anyqueue::adapter::{
    Action, AmendQueueStorage, Extension, InspectQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, Settlement,
};
use anyqueue::{Amend, MessageData, MessageId, OnDuplicate};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::Redis;

use crate::common::{Bed, LEASE, fill, part, pull, push};

const BACKLOG: usize = 100_000;
/// What a busy machine may add, in microseconds.
const NOISE_US: f64 = 150.0;

fn keyed(key: &str, on_duplicate: OnDuplicate) -> MessageData {
    MessageData::new("x").with_dedup_key(key).with_on_duplicate(on_duplicate)
}

/// One call of each kind.
async fn do_call(queue: &RedisQueue, kind: &str) {
    let p = part("p");
    let one = |message: MessageData| async move {
        assert!(queue.push(&part("p"), &[message]).await.remove(0).is_ok());
    };
    let held = |action: Action| async move {
        let held = pull(queue, &part("p"), 1).await;
        let settlement = Settlement::new(held[0].lease.clone(), action);
        queue.settle(&[settlement]).await.remove(0).unwrap();
    };
    match kind {
        "push" => one(MessageData::new("x")).await,
        "keyed push" => {
            let key = fastrand::u64(..).to_string();
            one(MessageData::new("x").with_group("g").with_dedup_key(key)).await;
        }
        "replacing push" => one(keyed("k", OnDuplicate::Replace)).await,
        "earlier push" => {
            let key = fastrand::u64(..).to_string();
            one(keyed(&key, OnDuplicate::Keep).with_delay(20 * LEASE)).await;
            one(keyed(&key, OnDuplicate::Earlier).with_delay(LEASE)).await;
        }
        "delayed push" => one(MessageData::new("x").with_delay(LEASE)).await,
        "remove" => held(Action::Remove).await,
        "release" => held(Action::Release).await,
        "retry" => held(Action::Retry).await,
        "postpone" => held(Action::Postpone { delay: LEASE, headers: None }).await,
        "die" => held(Action::Move { to: p.dead_letters(), headers: None }).await,
        "extend" => {
            let held = pull(queue, &p, 2).await;
            let extension = Extension { lease: held[0].lease.clone(), duration: 2 * LEASE };
            queue.extend(&[extension]).await.remove(0).unwrap();
        }
        "delete" => {
            let message = MessageData::new("x");
            one(message.clone()).await;
            queue.delete(&p, &[message.id()]).await.remove(0).unwrap();
        }
        "amend" => {
            let message = MessageData::new("x");
            one(message.clone()).await;
            let change = Amend::new().with_priority(3).with_group("other");
            queue.amend(&p, &[message.id()], &change).await.remove(0).unwrap();
        }
        "disable and enable" => {
            let message = MessageData::new("x");
            one(message.clone()).await;
            for change in [Amend::new().disable(), Amend::new().enable()] {
                queue.amend(&p, &[message.id()], &change).await.remove(0).unwrap();
            }
        }
        "purge" => drop(queue.purge(&p, 5).await.unwrap()),
        "counts" => drop(queue.counts(&p).await.unwrap()),
        _ => drop(queue.pull(&p, PullRequest::new(5, Duration::ZERO, LEASE)).await.unwrap()),
    }
}

const KINDS: [&str; 17] = [
    "amend",
    "disable and enable",
    "push",
    "keyed push",
    "replacing push",
    "earlier push",
    "delayed push",
    "remove",
    "release",
    "retry",
    "postpone",
    "die",
    "extend",
    "delete",
    "purge",
    "counts",
    "pull",
];

/// The least time that the server spends on such a call, in microseconds.
async fn least_us(bed: &Bed, queue: &RedisQueue, kind: &str) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..30 {
        bed.run("CONFIG RESETSTAT").await;
        do_call(queue, kind).await;
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha")).unwrap();
        let used = line.split("usec=").nth(1).unwrap().split(',').next().unwrap();
        least = least.min(used.parse().unwrap());
    }
    least
}

#[tokio::test]
async fn no_call_becomes_slower_behind_a_backlog() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    fill(&queue, &p, 2000, |message| message).await;
    let mut small = Vec::new();
    for kind in KINDS {
        small.push(least_us(&bed, &queue, kind).await);
    }
    // Of every state: held in large and small claims, delayed, behind others of a group, and ready.
    fill(&queue, &p, BACKLOG / 4, |message| message.with_priority(1)).await;
    for _ in 0..BACKLOG / 4 / 1000 {
        pull(&queue, &p, 1000).await;
    }
    for _ in 0..1000 {
        pull(&queue, &p, 1).await;
    }
    fill(&queue, &p, BACKLOG / 4, |message| message.with_delay(10 * LEASE)).await;
    fill(&queue, &p, BACKLOG / 4, |message| message.with_group("other")).await;
    fill(&queue, &p, BACKLOG / 4, |message| message).await;
    for (kind, small) in KINDS.into_iter().zip(small) {
        let large = least_us(&bed, &queue, kind).await;
        assert!(large <= 2.0 * small + NOISE_US, "{kind} takes {large} us, {small} us without a backlog");
    }
}

#[tokio::test]
async fn a_ready_message_takes_at_most_two_hundred_bytes_beside_its_payload() {
    let Some(bed) = Bed::with(Redis::new().setting("appendonly", "no")).await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    fill(&queue, &p, 1000, |message| message).await;
    let before = bed.info("used_memory").await;
    fill(&queue, &p, BACKLOG, |message| message).await;
    let used = bed.info("used_memory").await.saturating_sub(before);
    let each = used / BACKLOG as u64 - 100;
    assert!(each <= 200, "{each} bytes");
}

/// Of each such moment there is one message, or not many.
#[tokio::test]
async fn messages_that_come_alone_take_no_more() {
    const MESSAGES: u64 = 20_000;
    for at_once in [1, 15, 16] {
        let Some(bed) = Bed::with(Redis::new().setting("appendonly", "no")).await else { return };
        let (queue, p) = (bed.open().await, part("p"));
        fill(&queue, &p, 1000, |message| message).await;
        let before = bed.info("used_memory").await;
        let ids: Vec<_> = (0..MESSAGES).map(|number| id_at(16 * (number / at_once), number)).collect();
        for ids in ids.chunks(960) {
            let message = |id: &MessageId| MessageData::with_id(*id, vec![b'.'; 100]);
            push(&queue, &p, &ids.iter().map(message).collect::<Vec<_>>()).await;
        }
        let each = bed.info("used_memory").await.saturating_sub(before) / MESSAGES - 100;
        assert!(each <= 200, "{each} bytes where {at_once} come at once");
    }
}

/// An id of this time, in milliseconds.
fn id_at(milliseconds: u64, number: u64) -> MessageId {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    id[6] = 0x70;
    id[8..].copy_from_slice(&number.to_be_bytes());
    MessageId::from_bytes(id)
}
