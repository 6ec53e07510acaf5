//! Brokers that die or end channels.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest};
use anyqueue::{ErrorKind, SettleOutcome};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Fault, Proxy, RabbitMq};

use crate::common::{Bed, LEASE, SOON, becomes, holds, messages, part, push, settle, take, texts};

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
        let request = PullRequest::new(3, Duration::from_secs(1), SOON);
        got.extend(queue.pull(&p, request).await.unwrap_or_default());
    }
    assert_eq!(got.len(), 3, "{got:?}");
    assert_eq!(settle(&queue, &got, Action::Remove).await, [SettleOutcome::Settled; 3]);
    push(&queue, &p, &messages(1)).await;
}

#[tokio::test]
async fn a_pull_that_waits_outlives_one_break_and_tells_of_the_next() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let (p, near, far) = (part("work"), bed.open().await, RabbitMqQueue::open(&url).await.unwrap());
    push(&near, &p, &messages(1)).await;
    assert_eq!(settle(&far, &take(&far, &p, 1).await, Action::Remove).await, [SettleOutcome::Settled]);
    let wait = || {
        let (far, p) = (far.clone(), p.clone());
        tokio::spawn(async move { far.pull(&p, PullRequest::new(1, SOON, LEASE)).await })
    };
    let waits = || async { bed.consumers(&p).await > 0 };

    let waiting = wait();
    becomes("it waits", waits).await;
    proxy.reset_all();
    push(&near, &p, &messages(1)).await;
    assert_eq!(texts(&waiting.await.unwrap().unwrap()), ["0"]);

    let waiting = wait();
    becomes("it waits", waits).await;
    let begun = Instant::now();
    proxy.set(Fault::Reset).await.unwrap();
    let told = tokio::time::timeout(2 * SOON, waiting).await.expect("the pull hangs").unwrap();
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() < SOON, "it was told when the wait was over");
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
