//! Ends in a cluster: everything of a partition is in its slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::adapter::{
    Action, EndedQuery, InspectQueueStorage, LedgerQueueStorage, PullQueueStorage, PullRequest, QueueStorage,
};
use anyqueue::{MessageData, MessageId, Page, PartitionId};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Redis, RedisCluster};
use redis::Value;

use crate::common::{command, messages, part, pull, push};
use crate::ledger::{done, find, record, settle_all, with_end};
use crate::resharding::{move_slot, partition_of_first};
use crate::successors::{all, bring};
use crate::successors_across_slots::Beds;

const MOMENT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn ends_go_with_removals_whose_successors_are_in_other_slots() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let [p, q, r] = beds.names();
    let queue = beds.open().await;
    assert!(queue.capabilities().ledger.is_some());
    push(&queue, &part(p), &messages(&["1", "2", "3"])).await;
    let held = pull(&queue, &part(p), 3).await;
    let ended = |name, child| {
        let held = if child == "a" { &held[0] } else { &held[1] };
        bring(held, Action::Remove, [(name, MessageData::new(child))])
            .with_end(Some(Arc::new(done().with_result(child))))
    };
    let settlements = [ended(q, "a"), ended(p, "b"), with_end(&held[2], done())];
    settle_all(&queue, &settlements).await;
    assert_eq!((all(&queue, q).await, all(&queue, p).await), (vec!["a".into()], vec!["b".into()]));
    for (held, result) in held.iter().zip([Some("a"), Some("b"), None]) {
        let ended = find(&queue, &part(p), held.lease.id).await.unwrap();
        assert_eq!(ended.end.result.as_deref(), result.map(str::as_bytes));
    }
    let listed = queue.ended(&part(p), &EndedQuery::default(), Page::of(9)).await.unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(queue.count_ended(&part(r), &EndedQuery::default(), 9).await.unwrap(), 0);
}

#[tokio::test]
async fn a_purge_reaches_the_partitions_of_all_servers() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let queue = beds.open().await;
    let ids: Vec<_> = (0..300).map(|_| MessageId::new()).collect();
    for name in beds.names() {
        record(&queue, &part(name), &ids, &done().with_keep(Some(MOMENT))).await;
    }
    record(&queue, &part(beds.names()[0]), &[MessageId::new()], &done()).await;
    tokio::time::sleep(2 * MOMENT).await;
    let other = beds.open().await;
    assert_eq!(other.purge_ended(500).await.unwrap(), 500);
    assert_eq!(other.purge_ended(500).await.unwrap(), 400);
    assert_eq!(other.purge_ended(500).await.unwrap(), 0);
    assert_eq!(queue.count_ended(&part(beds.names()[0]), &EndedQuery::default(), 9).await.unwrap(), 1);
    // One that is empty stays listed for those who rely on that, and is not lost to the next purge.
    record(&queue, &part(beds.names()[1]), &ids, &done().with_keep(Some(MOMENT))).await;
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(other.purge_ended(500).await.unwrap(), 300);
    // When that is long ago it is not.
    let mut listing = 0;
    for node in &beds.cluster.nodes()[..3] {
        let Value::Array(keys) = command(node, "KEYS anyqueue:ended").await else { panic!() };
        if keys.is_empty() {
            continue;
        }
        for name in beds.names() {
            command(node, &format!("ZADD anyqueue:ended 1 {name}")).await;
        }
        other.purge_ended(500).await.unwrap();
        assert_eq!(command(node, "ZCARD anyqueue:ended").await, Value::Int(1));
        listing += 1;
    }
    assert_eq!(listing, 1);
    let left: usize = count_keys(&beds).await;
    assert_eq!(left, 3, "of the one end that is kept: itself, its list, and when it lapses");
}

/// Takes and ends messages until none is left. Returns how many calls failed meanwhile.
async fn end_all(queue: &RedisQueue, p: &PartitionId, left: &AtomicUsize) -> usize {
    let mut failed = 0;
    while left.load(Ordering::Relaxed) > 0 {
        let request = PullRequest::new(10, Duration::from_secs(1), Duration::from_secs(3));
        let Ok(held) = queue.pull(p, request).await else {
            failed += 1;
            continue;
        };
        let ends: Vec<_> = held.iter().map(|held| with_end(held, done())).collect();
        for outcome in queue.settle(&ends).await {
            failed += usize::from(outcome.is_err());
        }
        if let Ok(counts) = queue.counts(p).await {
            let there = counts.ready.unwrap() + counts.leased.unwrap();
            left.store(usize::try_from(there).unwrap(), Ordering::Relaxed);
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_goes_without_its_end_while_a_slot_is_moved() {
    const MESSAGES: usize = 3000;
    let redis = Redis::new().setting("cluster-node-timeout", "30000");
    let Some(cluster) = RedisCluster::start_if_installed(redis).await.unwrap() else { return };
    let (name, slot) = partition_of_first(&cluster).await;
    let (queue, p) = (RedisQueue::open(cluster.url()).await.unwrap(), part(&name));
    let sent: Vec<_> = (0..MESSAGES).map(|_| MessageData::new("x")).collect();
    for some in sent.chunks(1000) {
        push(&queue, &p, some).await;
    }
    let left = AtomicUsize::new(MESSAGES);
    let (first, second) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let moving = async {
        let mut moved_under_load = 0;
        for (from, to) in [(first, second), (second, first)] {
            move_slot(&cluster, slot, from, to).await;
            moved_under_load += usize::from(left.load(Ordering::Relaxed) > 0);
        }
        moved_under_load
    };
    let (failed, moved) = tokio::join!(end_all(&queue, &p, &left), moving);
    println!("{failed} calls failed; {moved} moves ended before all messages had");
    assert!(moved > 0, "all was over before the slot was moved");
    let ids: Vec<_> = sent.iter().map(MessageData::id).collect();
    let found = queue.find_ended(&p, &ids).await;
    assert_eq!(found.into_iter().filter(|ended| ended.as_ref().unwrap().is_some()).count(), MESSAGES);
    assert_eq!(queue.count_ended(&p, &EndedQuery::default(), 10_000).await.unwrap(), MESSAGES as u64);
}

/// How many keys of ends the masters have.
async fn count_keys(beds: &Beds) -> usize {
    let mut count = 0;
    for node in &beds.cluster.nodes()[..3] {
        let Value::Array(keys) = command(node, "KEYS anyqueue:{*}:ended*").await else { panic!() };
        count += keys.len();
    }
    count
}
