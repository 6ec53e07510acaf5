//! Where messages are kept: those of a moment together, others with all that came alone; and that each is found in either place.

use anyqueue::adapter::{Action, InspectQueueStorage, PushQueueStorage};
use anyqueue::{DeleteOutcome, MessageData, MessageId, Page, PushOutcome};
use anyqueue_redis::RedisQueue;
use redis::Value;

use crate::common::{Bed, messages, part, pull, push, settle, texts};

/// A message whose id is of this time, in milliseconds, and version.
fn of_time(milliseconds: u64, version: u8, number: u64) -> MessageData {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    id[6] = version << 4;
    id[8..].copy_from_slice(&number.to_be_bytes());
    MessageData::with_id(MessageId::from_bytes(id), number.to_string())
}

/// So many of one time.
fn of_one_time(milliseconds: u64, count: u64) -> Vec<MessageData> {
    (0..count).map(|number| of_time(milliseconds, 7, number)).collect()
}

/// How many messages are kept without a window, and how many windows there are.
async fn places(bed: &Bed) -> (Value, Value) {
    let home = format!("{}:{{p}}:", bed.prefix);
    (bed.run(&format!("HLEN {home}messages")).await, bed.run(&format!("ZCARD {home}windows")).await)
}

async fn browse_all(queue: &RedisQueue, page: usize) -> Vec<MessageId> {
    let (mut ids, p) = (Vec::new(), part("p"));
    loop {
        let browsed = queue.browse(&p, Page::of(page).after(ids.last().copied())).await.unwrap();
        ids.extend(browsed.iter().map(|browsed| browsed.message.id()));
        if browsed.len() < page {
            return ids;
        }
    }
}

#[tokio::test]
async fn what_comes_together_is_kept_together_and_nothing_stays_of_what_is_gone() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &of_one_time(1000, 100)).await;
    assert_eq!(places(&bed).await, (Value::Int(0), Value::Int(1)), "of one time");
    push(&queue, &p, &[of_time(2000, 7, 0), of_time(3000, 7, 0), of_time(4000, 4, 0)]).await;
    assert_eq!(places(&bed).await, (Value::Int(3), Value::Int(1)), "of times of their own, or none");
    push(&queue, &p, &[of_time(1001, 7, 100)]).await;
    assert_eq!(places(&bed).await, (Value::Int(3), Value::Int(1)), "one more of the first time");
    let held = pull(&queue, &p, 1000).await;
    let pushed: Vec<String> = (0..100).chain([0, 0, 0, 100]).map(|number: u64| number.to_string()).collect();
    assert_eq!(texts(&held), pushed, "in the order of their pushes");
    settle(&queue, &held, Action::Remove).await;
    assert_eq!(places(&bed).await, (Value::Int(0), Value::Int(0)));
    let Value::Array(keys) = bed.run(&format!("KEYS {}:{{p}}:messages*", bed.prefix)).await else { panic!() };
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn a_message_is_known_wherever_it_is_kept() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let early = of_time(1000, 7, 0);
    let late: Vec<_> = (1..60).map(|number| of_time(1000, 7, number)).collect();
    let other = of_time(5000, 4, 0);
    push(&queue, &p, &[early.clone(), other.clone()]).await;
    push(&queue, &p, &late).await;
    assert_eq!(places(&bed).await, (Value::Int(2), Value::Int(1)));
    let again: Vec<_> = [early.clone(), other.clone()].into_iter().chain(late.iter().cloned()).collect();
    for (outcome, message) in queue.push(&p, &again).await.into_iter().zip(&again) {
        assert_eq!(outcome.unwrap(), PushOutcome::Duplicate(Some(message.id())));
    }
    for message in &again {
        assert_eq!(
            queue.push(&p, std::slice::from_ref(message)).await.remove(0).unwrap(),
            PushOutcome::Duplicate(Some(message.id()))
        );
    }
    let held = pull(&queue, &p, 100).await;
    settle(&queue, &held, Action::Move { to: p.dead_letters(), headers: None }).await;
    assert!(pull(&queue, &p, 1).await.is_empty());
    let dead = pull(&queue, &p.dead_letters(), 100).await;
    assert_eq!(dead.len(), again.len());
    settle(&queue, &dead, Action::Move { to: p.clone(), headers: None }).await;
    let ids: Vec<_> = again.iter().map(MessageData::id).collect();
    for outcome in queue.delete(&p, &ids).await {
        assert_eq!(outcome.unwrap(), DeleteOutcome::Deleted);
    }
    assert_eq!(places(&bed).await, (Value::Int(0), Value::Int(0)));
}

#[tokio::test]
async fn a_large_partition_is_browsed_in_the_order_of_its_ids_each_once() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut all = Vec::new();
    for window in 0..40 {
        let together = of_one_time(10_000 + 100 * window, 60);
        push(&queue, &p, &together).await;
        all.extend(together);
    }
    for number in 0..200 {
        // Between, before and behind those of the windows, some of them without a time.
        let version = if number % 2 == 0 { 7 } else { 4 };
        let alone = of_time(8000 + 40 * number, version, 1000 + number);
        push(&queue, &p, std::slice::from_ref(&alone)).await;
        all.push(alone);
    }
    push(&queue, &part("p").dead_letters(), &messages(&["dead"; 30])).await;
    let mut ids: Vec<_> = all.iter().map(MessageData::id).collect();
    ids.sort_unstable();
    for page in [7, 400, 5000] {
        assert!(browse_all(&queue, page).await == ids, "pages of {page}");
    }
}
