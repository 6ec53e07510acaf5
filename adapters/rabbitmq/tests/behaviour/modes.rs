//! Prefetching and classic queues.

use std::time::Duration;

use anyqueue::adapter::{Action, QueueStorage};
use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed, SettleOutcome};
use anyqueue_rabbitmq::QueueType;
use futures_util::StreamExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{Bed, SOON, becomes, messages, part, pull, push, settle, take, texts};

#[tokio::test]
async fn what_is_held_ready_is_served_in_order_and_released_when_idle() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().prefetch(50).open().await.unwrap());
    push(&queue, &p, &messages(200)).await;
    let got = take(&queue, &p, 3).await;
    assert_eq!(texts(&got), ["0", "1", "2"]);
    becomes("more is held ready", || async { bed.ready(&p).await == 150 }).await;
    becomes("it is released", || async { bed.ready(&p).await == 197 }).await;
    settle(&queue, &got, Action::Remove).await;
    let rest = take(&queue, &p, 197).await;
    assert_eq!(texts(&rest), (3..200).map(|number| number.to_string()).collect::<Vec<_>>());
    settle(&queue, &rest, Action::Remove).await;
    queue.close().await.unwrap();
    assert_eq!(bed.ready(&p).await, 0);
}

#[tokio::test]
async fn a_pull_from_what_is_held_ready_is_woken_by_pushes() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().prefetch(50).open().await.unwrap());
    for round in 0..20 {
        let message = MessageData::new(round.to_string());
        let (got, ()) = tokio::join!(take(&queue, &p, 1), push(&queue, &p, std::slice::from_ref(&message)));
        assert_eq!(texts(&got), [round.to_string()]);
        let action = if round % 2 == 0 { Action::Remove } else { Action::Retry };
        settle(&queue, &got, action).await;
        if round % 2 != 0 {
            let again = take(&queue, &p, 1).await;
            assert_eq!(again[0].delivery_count, Some(2));
            settle(&queue, &again, Action::Remove).await;
        }
    }
    assert!(pull(&queue, &p, 1, Duration::from_millis(100)).await.is_empty());
}

/// Its settlements bring the next deliveries with them, several calls at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_of_what_is_held_ready_keeps_push_order() {
    let Some(bed) = Bed::shared().await else { return };
    let queue = Queue::new(bed.builder().prefetch(50).open().await.unwrap()).unwrap();
    let stored = queue.push_many("work", messages(3000)).await.unwrap();
    assert!(stored.iter().all(Result::is_ok));
    let mut stream = queue.stream("work").window(64).build().unwrap();
    let mut settling = JoinSet::new();
    for expected in 0..3000 {
        let mut delivery = timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(delivery.payload(), expected.to_string().as_bytes());
        settling.spawn(async move { delivery.settle(Processed).await.unwrap() });
    }
    while let Some(settled) = settling.join_next().await {
        assert_eq!(settled.unwrap(), SettleOutcome::Settled);
    }
    queue.close().await.unwrap();
    assert_eq!(bed.ready(&part("work")).await, 0);
}

#[tokio::test]
async fn classic_queues_work_without_delivery_counts() {
    let Some(bed) = Bed::shared().await else { return };
    let queue = bed.builder().queue_type(QueueType::Classic).open().await.unwrap();
    let p = part("work");
    push(&queue, &p, &messages(20)).await;
    push(&queue, &p, &[MessageData::new("urgent").with_priority(5)]).await;
    let got = take(&queue, &p, 3).await;
    assert_eq!(texts(&got), ["urgent", "0", "1"]);
    assert!(got.iter().all(|delivery| delivery.delivery_count.is_none()));
    settle(&queue, &got[1..2], Action::Retry).await;
    settle(&queue, &got[2..], Action::Postpone { delay: Duration::from_millis(200), headers: None }).await;
    settle(&queue, &got[..1], Action::Move { to: p.dead_letters(), headers: None }).await;
    let rest = take(&queue, &p, 20).await;
    assert_eq!(texts(&rest).first().map(String::as_str), Some("0"));
    assert_eq!(texts(&rest).last().map(String::as_str), Some("1"));
    settle(&queue, &rest, Action::Remove).await;
    assert_eq!(texts(&take(&queue, &p.dead_letters(), 1).await), ["urgent"]);
}
