//! Queues that somebody removes under those who use them.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, InspectQueueStorage, PushQueueStorage};
use anyqueue::{ErrorKind, MessageData};

use crate::common::{Bed, SOON, becomes, messages, part, pull, push, settle, take, texts};

/// How old a queue must be before a push is answered, unless told otherwise.
const AGE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_message_for_a_queue_that_was_removed_is_an_error_and_the_next_makes_it_anew() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    bed.remove(&[bed.queue(&p, 0)]).await;
    let answers = queue.push(&p, &messages(3)).await;
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, anyqueue::RetryClass::Safe));
    }
    push(&queue, &p, &messages(3)).await;
    assert_eq!(texts(&take(&queue, &p, 3).await), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_queue_that_was_removed_and_made_anew_is_young_again_for_all() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    bed.remove(&[bed.queue(&p, 0)]).await;
    queue.push(&p, &messages(1)).await.remove(0).unwrap_err();
    let start = Instant::now();
    push(&queue, &p, &messages(1)).await;
    assert!(start.elapsed() >= AGE, "{:?}", start.elapsed());
    // Whoever comes later knows it to be old, and does not if it was removed meanwhile.
    let mut took = Vec::new();
    while took.last().is_none_or(|took| *took >= AGE) {
        // One that had to wait would each time. One that does not can be slow, too, on a busy machine.
        assert!(took.len() < 8, "{took:?}");
        let (other, start) = (bed.open().await, Instant::now());
        push(&other, &p, &messages(1)).await;
        took.push(start.elapsed());
    }
    bed.remove(&[bed.queue(&p, 0)]).await;
    let start = Instant::now();
    push(&bed.open().await, &p, &messages(1)).await;
    assert!(start.elapsed() >= AGE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_removed_queue_is_no_obstacle_to_pulls_and_counts() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    push(&queue, &p, &[MessageData::new("low"), MessageData::new("high").with_priority(5)]).await;
    bed.remove(&[bed.queue(&p, 5)]).await;
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1));
    assert_eq!(texts(&take(&queue, &p, 1).await), ["low"]);
    let other = bed.open().await;
    bed.remove(&[bed.queue(&p, 0), bed.queue(&p, 5)]).await;
    assert_eq!(other.counts(&p).await.unwrap().ready, Some(0));
    assert!(pull(&other, &p, 1, Duration::from_millis(100)).await.is_empty());
    // While somebody waits, too.
    let waiting = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { pull(&queue, &p, 1, SOON).await }
    });
    becomes("it waits", || async { bed.consumers(&p).await > 0 }).await;
    bed.remove(&[bed.queue(&p, 0)]).await;
    becomes("it waits again", || async { bed.consumers_if_any(&p).await > 0 }).await;
    push(&other, &p, &[MessageData::new("new")]).await;
    let got = waiting.await.unwrap();
    assert_eq!(texts(&got), ["new"]);
    settle(&queue, &got, Action::Remove).await;
}
