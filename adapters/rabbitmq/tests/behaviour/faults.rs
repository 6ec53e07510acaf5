//! Brokers that die or end channels; queues that somebody removes.

use std::time::{Duration, Instant};

use anyqueue::{Action, ErrorKind, PushQueueStorage, SettleOutcome};
use anyqueue_testkit::RabbitMq;
use lapin::options::QueueDeleteOptions;

use crate::common::{Bed, SOON, becomes, holds, messages, part, push, settle, take, texts};

#[tokio::test]
async fn who_holds_a_message_across_a_restart_learns_that_it_is_lost_and_goes_on() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(3)).await;
    let held = take(&queue, &p, 1).await;
    assert!(holds(&queue, &held[0]).await);
    bed.server().kill().await.unwrap();
    becomes("the loss is told", || async { !holds(&queue, &held[0]).await }).await;
    bed.server().restart().await.unwrap();
    assert_eq!(settle(&queue, &held, Action::Remove).await, [SettleOutcome::Lost]);
    let back = Instant::now();
    let mut got = Vec::new();
    while got.len() < 3 && back.elapsed() < SOON {
        let request = anyqueue::PullRequest::new(3, Duration::from_secs(1), SOON);
        got.extend(anyqueue::PullQueueStorage::pull(&queue, &p, request).await.unwrap_or_default());
    }
    assert_eq!(got.len(), 3, "{got:?}");
    assert_eq!(settle(&queue, &got, Action::Remove).await, [SettleOutcome::Settled; 3]);
    push(&queue, &p, &messages(1)).await;
}

#[tokio::test]
async fn a_channel_that_the_server_ends_is_made_anew() {
    let program = RabbitMq::new().setting("consumer_timeout", "2000");
    let Some(bed) = Bed::own(program.erlang_arguments("-rabbit channel_tick_interval 500")).await else {
        return;
    };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    let held = take(&queue, &p, 1).await;
    becomes("the loss is told", || async { !holds(&queue, &held[0]).await }).await;
    let again = take(&queue, &p, 1).await;
    assert_eq!(texts(&again), ["0"]);
    assert_eq!(settle(&queue, &held, Action::Remove).await, [SettleOutcome::Lost]);
    assert_eq!(settle(&queue, &again, Action::Remove).await, [SettleOutcome::Settled]);
}

#[tokio::test]
async fn a_message_for_a_queue_that_was_removed_is_an_error_and_the_next_makes_it_anew() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    let (_conn, channel) = bed.channel().await;
    channel.queue_delete(bed.queue(&p, 0).into(), QueueDeleteOptions::default()).await.unwrap();
    let answers = queue.push(&p, &messages(3)).await;
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, anyqueue::RetryClass::Safe));
    }
    push(&queue, &p, &messages(3)).await;
    assert_eq!(texts(&take(&queue, &p, 3).await), ["0", "1", "2"]);
}
