//! Stored messages that cannot be read: what is damaged dies with its bytes, what a newer release wrote is left to newer consumers.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, InspectQueueStorage};
use anyqueue::{ErrorKind, MessageData, Page, PartitionId, Queue};
use anyqueue_redis::RedisQueue;
use redis::Value;

use crate::common::{Bed, messages, part, pull, push, settle, texts};

/// The flag, the time and the place.
const FRONT: usize = 10;
/// Where the envelope says its version, behind a mark of three bytes.
const VERSION_AT: usize = FRONT + 3;
const SOON: Duration = Duration::from_secs(20);

/// Changes the record of a message, behind the queue's back.
async fn change(bed: &Bed, hash: &str, message: &MessageData, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (key, id) = (format!("{}:{{p}}:{hash}", bed.prefix), message.id());
    let mut conn = bed.connect().await;
    let mut record: Vec<u8> =
        redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
    change(&mut record);
    let mut put = redis::cmd("HSET");
    put.arg(&key).arg(id.as_bytes()).arg(&record);
    let _: u64 = put.query_async(&mut conn).await.unwrap();
    record
}

async fn until_dead(queue: &RedisQueue, p: &PartitionId, count: u64) {
    let started = Instant::now();
    while queue.counts(p).await.unwrap().dead != Some(count) {
        assert!(started.elapsed() < SOON, "{:?}", queue.counts(p).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_damaged_message_dies_with_its_bytes_and_those_behind_it_come() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, p) = (bed.open().await, part("p"));
    let queue = Queue::new(storage.clone()).unwrap();
    let all = messages(&["cut", "good", "front", "short", "empty"]);
    let large = MessageData::new(vec![b'.'; 20_000]).with_group("g").with_dedup_key("k");
    push(&storage, &p, &all).await;
    push(&storage, &p, &[large.clone(), MessageData::new("next of the group").with_group("g")]).await;
    let cut = change(&bed, "messages", &all[0], |record| record.truncate(record.len() - 3)).await;
    let front = change(&bed, "messages", &all[2], |record| record[0] = 255).await;
    change(&bed, "messages", &all[3], |record| record.truncate(3)).await;
    change(&bed, "messages", &all[4], Vec::clear).await;
    change(&bed, "bulky", &large, |record| record.truncate(10_000)).await;
    let shown = storage.browse(&p, Page::of(10)).await.unwrap();
    let whys: Vec<_> =
        shown.iter().map(|shown| shown.unreadable.as_ref().map(anyqueue::Error::kind)).collect();
    let corrupt = Some(ErrorKind::Corrupt);
    assert_eq!(whys, [corrupt, None, corrupt, corrupt, corrupt, corrupt, None]);
    assert_eq!(shown[0].message.payload()[..], cut[FRONT..]);

    let mut good = Vec::new();
    while good.len() < 2 {
        for mut handler in queue.pull("p").max(1).wait(SOON).await.unwrap() {
            good.push(String::from_utf8(handler.payload().to_vec()).unwrap());
            handler.settle(anyqueue::QueueMessageStatus::Processed).await.unwrap();
        }
    }
    assert_eq!(good, ["good", "next of the group"]);
    until_dead(&storage, &p, 5).await;
    let letters = queue.dead_letters("p").unwrap().list(Page::of(10)).await.unwrap();
    assert_eq!(letters.len(), 5);
    for letter in &letters {
        assert!(letter.reason.as_ref().unwrap().starts_with("cannot be read: "), "{letter:?}");
        assert_eq!(letter.deliveries, Some(1));
    }
    let payloads: Vec<_> = letters.iter().map(|letter| letter.message.payload().to_vec()).collect();
    assert_eq!(payloads[0], cut[FRONT..]);
    assert!(payloads[1].ends_with(&front[FRONT..]), "{:?}", payloads[1]);
    assert_eq!(payloads[2].len() + payloads[3].len(), 3);
    // The key of one that died is free, and all can be deleted.
    push(&storage, &p, &[MessageData::new("again").with_dedup_key("k")]).await;
    assert_eq!(storage.purge(&p.dead_letters(), 10).await.unwrap(), 5);
    assert_eq!(bed.run(&format!("EXISTS {}:{{p}}:bulky", bed.prefix)).await, Value::Int(0));
    assert_eq!(texts(&pull(&storage, &p, 10).await), ["again"]);
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_left_to_newer_consumers() {
    let Some(bed) = Bed::find().await else { return };
    let (storage, p) = (bed.open().await, part("p"));
    let queue = Queue::new(storage.clone()).unwrap();
    let all = messages(&["newer", "known"]);
    push(&storage, &p, &all).await;
    change(&bed, "messages", &all[0], |record| record[VERSION_AT] += 1).await;
    let mut handed = queue.pull("p").max(10).await.unwrap();
    assert_eq!((handed.len(), handed[0].payload()), (1, &b"known"[..]));
    handed[0].settle(anyqueue::QueueMessageStatus::Processed).await.unwrap();
    let started = Instant::now();
    while storage.counts(&p).await.unwrap().delayed != Some(1) {
        assert!(started.elapsed() < SOON, "{:?}", storage.counts(&p).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Such a consumer comes.
    change(&bed, "messages", &all[0], |record| record[VERSION_AT] -= 1).await;
    let held = crate::common::pull_wait(&storage, &p, 1).await;
    assert_eq!((texts(&held), held[0].delivery_count), (vec!["newer".to_owned()], Some(1)));
    settle(&storage, &held, Action::Remove).await;
    assert_eq!(storage.counts(&p).await.unwrap().dead, Some(0));
}
