//! Ids in line whose records are not there, as where a cluster lost sight of a part of its keys: nothing is dropped in silence.

use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, QueueStorage, Settlement};
use anyqueue::{MessageData, Page, SettleOutcome};
use anyqueue_redis::RedisQueue;
use redis::Value;

use crate::common::{Bed, messages, part, pull, push, settle, texts};

/// Takes the record of a message away, behind the queue's back.
async fn take_record(bed: &Bed, message: &MessageData) -> Vec<u8> {
    let (key, id) = (format!("{}:{{p}}:messages", bed.prefix), message.id());
    let mut conn = bed.connect().await;
    let record: Vec<u8> =
        redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
    let gone: u64 = redis::cmd("HDEL").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
    assert_eq!(gone, 1);
    record
}

async fn put_record(bed: &Bed, message: &MessageData, record: Vec<u8>) {
    let (key, id) = (format!("{}:{{p}}:messages", bed.prefix), message.id());
    let mut put = redis::cmd("HSET");
    put.arg(&key).arg(id.as_bytes()).arg(record);
    let _: u64 = put.query_async(&mut bed.connect().await).await.unwrap();
}

async fn warnings(queue: &RedisQueue) -> Vec<String> {
    queue.check().await.unwrap().warnings
}

#[tokio::test]
async fn an_id_without_a_record_is_kept_told_and_delivered_when_its_record_is_back() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["lost", "there"]);
    push(&queue, &p, &all).await;
    let record = take_record(&bed, &all[0]).await;
    assert_eq!(texts(&pull(&queue, &p, 10).await), ["there"]);
    assert!(pull(&queue, &p, 10).await.is_empty());
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1), "it was acknowledged, and not done");
    let told = warnings(&queue).await;
    assert!(told.len() == 1 && told[0].contains("1 messages of p "), "{told:?}");
    put_record(&bed, &all[0], record).await;
    assert_eq!(queue.browse(&p, Page::of(10)).await.unwrap().len(), 2);
    let held = pull(&queue, &p, 10).await;
    assert_eq!(texts(&held), ["lost"]);
    assert!(warnings(&queue).await.is_empty());
    settle(&queue, &held, Action::Remove).await;
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(0), Some(1)));
}

#[tokio::test]
async fn an_id_that_is_aside_and_pushed_again_or_deleted_comes_no_second_time() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["pushed again", "deleted"]);
    push(&queue, &p, &all).await;
    take_record(&bed, &all[0]).await;
    let record = take_record(&bed, &all[1]).await;
    assert!(pull(&queue, &p, 10).await.is_empty());
    put_record(&bed, &all[1], record).await;
    assert!(queue.delete(&p, &[all[1].id()]).await.remove(0).is_ok());
    push(&queue, &p, &all[..1]).await;
    assert_eq!(texts(&pull(&queue, &p, 10).await), ["pushed again"]);
    assert!(pull(&queue, &p, 10).await.is_empty());
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn what_is_held_or_delayed_without_a_record_stops_nobody() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all: Vec<_> =
        messages(&["held", "next"]).into_iter().map(|message| message.with_group("g")).collect();
    push(&queue, &p, &all).await;
    let delayed =
        MessageData::new("delayed").with_group("other").with_delay(std::time::Duration::from_millis(1));
    push(&queue, &p, std::slice::from_ref(&delayed)).await;
    let held = pull(&queue, &p, 1).await;
    let record = take_record(&bed, &all[0]).await;
    take_record(&bed, &delayed).await;
    let dead = Action::Move { to: p.dead_letters(), headers: None };
    let settlement = Settlement::new(held[0].lease.clone(), dead);
    assert_eq!(queue.settle(&[settlement]).await.remove(0).unwrap(), SettleOutcome::Lost);
    push(&queue, &p, &messages(&["plain"])).await;
    assert_eq!(texts(&pull(&queue, &p, 10).await), ["plain"]);
    put_record(&bed, &all[0], record).await;
    let held = pull(&queue, &p, 10).await;
    assert_eq!(texts(&held), ["held"], "its group went on without it");
    settle(&queue, &held, Action::Remove).await;
    assert_eq!(texts(&pull(&queue, &p, 10).await), ["next"]);
    // A purge forgets what has no record.
    assert_eq!(queue.purge(&p, 100).await.unwrap(), 1);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
    assert_eq!(bed.run(&format!("EXISTS {}:{{p}}:astray", bed.prefix)).await, Value::Int(0));
}
