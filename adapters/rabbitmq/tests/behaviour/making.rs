//! Queues that several handles need at the same moment.

use std::time::{Duration, Instant};

use anyqueue::adapter::PushQueueStorage;
use anyqueue::{ErrorKind, MessageData, PartitionId, RetryClass};
use anyqueue_rabbitmq::RabbitMqQueue;
use futures_util::future::join_all;
use lapin::types::FieldTable;

use crate::common::{Bed, SOON, holds, making, messages, part, pull, push, take, texts};

const HANDLES: usize = 4;
const PARTITIONS: usize = 25;
/// For as long its maker could have died on the way.
const AGE: Duration = Duration::from_secs(2);

/// Longer than a busy broker takes to make all of them.
const PATIENCE: Duration = Duration::from_mins(1);

/// Each handle waits for a message in each of these partitions.
async fn wait_in_all(handles: &[RabbitMqQueue], partitions: &[PartitionId]) -> usize {
    let pulls =
        handles.iter().flat_map(|handle| partitions.iter().map(move |p| pull(handle, p, 1, PATIENCE)));
    join_all(pulls).await.iter().map(Vec::len).sum()
}

/// Each handle pushes to each of these partitions, which nobody knows yet.
async fn push_to_all(handles: &[RabbitMqQueue], partitions: &[PartitionId], message: &MessageData) {
    for p in partitions {
        join_all(handles.iter().map(|handle| push(handle, p, std::slice::from_ref(message)))).await;
    }
}

#[tokio::test]
async fn queues_that_several_make_at_once_cost_nobody_a_lease_and_no_delay() {
    let Some(bed) = Bed::shared().await else { return };
    let open = || async { bed.builder().queue_age(Duration::ZERO).open().await.unwrap() };
    let handles: Vec<RabbitMqQueue> = join_all((0..HANDLES).map(|_| open())).await;
    let work = part("work");
    push(&handles[0], &work, &messages(HANDLES)).await;
    let held = join_all(handles.iter().map(|handle| take(handle, &work, 1))).await;
    for (name, message) in [
        ("now", MessageData::new("now")),
        ("later", MessageData::new("later").with_delay(Duration::from_millis(100))),
    ] {
        let partitions: Vec<_> = (0..PARTITIONS).map(|number| part(&format!("{name}{number}"))).collect();
        let (come, ()) =
            tokio::join!(wait_in_all(&handles, &partitions), push_to_all(&handles, &partitions, &message));
        assert_eq!(come, HANDLES * PARTITIONS, "{name}");
    }
    for (handle, held) in handles.iter().zip(&held) {
        assert!(holds(handle, &held[0]).await);
    }
}

#[tokio::test]
async fn who_makes_a_queue_is_waited_for_until_it_dies() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    let maker = making(&bed, &bed.queue(&p, 0)).await;
    let pushing = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { push(&queue, &p, &messages(1)).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(bed.try_look(&bed.queue(&p, 0)).await.is_err(), "it was made by two");
    drop(maker);
    pushing.await.unwrap();
    assert_eq!(texts(&take(&queue, &p, 1).await), ["0"]);
}

#[tokio::test]
async fn who_makes_a_queue_for_too_long_is_not_waited_for_and_nothing_was_sent() {
    let Some(bed) = Bed::shared().await else { return };
    let p = part("work");
    let queue = bed.builder().call_timeout(Duration::from_secs(4)).open().await.unwrap();
    let _maker = making(&bed, &bed.queue(&p, 0)).await;
    let error = queue.push(&p, &messages(1)).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{error}");
}

/// How long the first push of a handle takes.
async fn push_anew(queue: &RabbitMqQueue, p: &PartitionId) -> Duration {
    let start = Instant::now();
    push(queue, p, &messages(1)).await;
    start.elapsed()
}

#[tokio::test]
async fn a_queue_whose_maker_has_died_is_given_time_to_run() {
    let Some(bed) = Bed::shared().await else { return };
    let open = || async { bed.builder().queue_age(Duration::ZERO).open().await.unwrap() };
    let p = part("work");
    push(&open().await, &p, &messages(1)).await;
    // As if nobody had been told of it.
    let (_conn, channel) = bed.channel().await;
    let (sink, known) = (format!("{}:sink", bed.prefix), format!("{}:known", bed.prefix));
    channel.queue_unbind(sink.into(), known.into(), "l0:work".into(), FieldTable::default()).await.unwrap();
    let took = push_anew(&open().await, &p).await;
    assert!((AGE..SOON).contains(&took), "{took:?}");
    // Each handle that comes later would wait as long, if it had to. One that does not can be slow, too, on a busy machine.
    let mut pushed = 2;
    while push_anew(&open().await, &p).await >= AGE {
        pushed += 1;
        assert!(pushed < 10, "all of them waited");
    }
    assert_eq!(take(&open().await, &p, pushed + 1).await.len(), pushed + 1);
}
