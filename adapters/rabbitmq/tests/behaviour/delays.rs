//! Delayed messages of one partition that cannot arrive are in no other's way.

use std::time::Duration;

use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::RabbitMq;

use crate::common::{Bed, becomes, messages, part, push, take, texts};

/// More than the server hands on at once.
const MANY: usize = 40;
const DELAY: Duration = Duration::from_millis(500);

fn delayed(count: usize) -> Vec<MessageData> {
    messages(count).into_iter().map(|message| message.with_delay(DELAY)).collect()
}

async fn open(bed: &Bed) -> RabbitMqQueue {
    bed.builder().queue_age(Duration::ZERO).open().await.unwrap()
}

#[tokio::test]
async fn a_partition_that_is_full_keeps_no_others_delayed_messages_back() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (full, other, queue) = (part("full"), part("other"), open(&bed).await);
    push(&queue, &full, &messages(1)).await;
    let policy = r#"{"max-length":1,"overflow":"reject-publish"}"#;
    bed.policy("full", &format!("^{}$", bed.queue(&full, 0)), policy).await;
    becomes("it is full", || async { queue.push(&full, &messages(1)).await.remove(0).is_err() }).await;
    // Who hands them on learns by the first ones that it is full.
    for _ in 0..2 {
        push(&queue, &full, &delayed(MANY)).await;
        tokio::time::sleep(2 * DELAY).await; // until they are due, and in the way of what is due later
    }
    push(&queue, &other, &delayed(1)).await;
    assert_eq!(texts(&take(&queue, &other, 1).await), ["0"]);
}

#[tokio::test]
async fn a_removed_queue_gets_what_is_pushed_with_a_delay_later() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), open(&bed).await);
    push(&queue, &p, &delayed(1)).await;
    assert_eq!(take(&queue, &p, 1).await.len(), 1);
    bed.remove(&[bed.queue(&p, 0)]).await;
    tokio::time::sleep(Duration::from_millis(1100)).await; // for as long it is believed to be there
    push(&queue, &p, &delayed(MANY)).await;
    assert_eq!(take(&open(&bed).await, &p, MANY).await.len(), MANY);
}

#[tokio::test]
async fn a_partition_that_is_removed_under_its_delayed_messages_keeps_no_others_back() {
    let Some(bed) = Bed::shared().await else { return };
    let (gone, other, queue) = (part("gone"), part("other"), open(&bed).await);
    push(&queue, &gone, &delayed(MANY)).await;
    bed.remove(&[bed.queue(&gone, 0), format!("{}:due", bed.queue(&gone, 0))]).await;
    tokio::time::sleep(2 * DELAY).await;
    push(&queue, &other, &delayed(1)).await;
    assert_eq!(texts(&take(&queue, &other, 1).await), ["0"]);
}
