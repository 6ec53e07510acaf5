//! Ends in a cluster: everything of a partition is in its slot.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, EndedQuery, LedgerQueueStorage, QueueStorage};
use anyqueue::{MessageData, MessageId, Page};
use redis::Value;

use crate::common::{command, messages, part, pull, push};
use crate::ledger::{done, find, record, settle_all, with_end};
use crate::successors::{all, bring};
use crate::successors_across_slots::Beds;

const MOMENT: Duration = Duration::from_millis(1);

#[tokio::test]
async fn ends_go_with_removals_whose_successors_are_in_other_slots() {
    let Some(beds) = Beds::with(anyqueue_testkit::Redis::new()).await else { return };
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
    let Some(beds) = Beds::with(anyqueue_testkit::Redis::new()).await else { return };
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

/// How many keys of ends the masters have.
async fn count_keys(beds: &Beds) -> usize {
    let mut count = 0;
    for node in &beds.cluster.nodes()[..3] {
        let Value::Array(keys) = command(node, "KEYS anyqueue:{*}:ended*").await else { panic!() };
        count += keys.len();
    }
    count
}
