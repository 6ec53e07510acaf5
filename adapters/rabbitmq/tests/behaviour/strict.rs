//! A pull holds what it was asked for, waiting costs little, and what users write commands the broker nothing.

use std::time::Duration;

use anyqueue::{Action, MessageData, PullQueueStorage, PullRequest, SettleOutcome, Token};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Proxy, RabbitMq};

use crate::common::{Bed, LEASE, SOON, becomes, messages, part, pull, push, settle, take, texts};

#[tokio::test]
async fn a_pull_takes_no_more_from_the_broker_than_it_answers() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(100)).await;
    let mut left = 100;
    for max in [1, 7, 30, 2] {
        let got = pull(&queue, &p, max, SOON).await;
        assert_eq!(got.len(), max);
        left -= u32::try_from(max).unwrap();
        // What is removed makes no room for others.
        assert_eq!(settle(&queue, &got, Action::Remove).await, vec![SettleOutcome::Settled; max]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(bed.ready(&p).await, left, "after a pull of {max}");
    }
}

#[tokio::test]
async fn removals_carried_with_pulls_need_no_consumer_anew() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let (p, queue) = (part("work"), RabbitMqQueue::open(&url).await.unwrap());
    push(&queue, &p, &messages(500)).await;
    let mut held = take(&queue, &p, 10).await;
    let mut seen = texts(&held);
    let before = proxy.traffic();
    while seen.len() < 500 {
        let settlements: Vec<_> = held
            .iter()
            .map(|delivery| anyqueue::Settlement { lease: delivery.lease.clone(), action: Action::Remove })
            .collect();
        let request = PullRequest::new(10, SOON, LEASE);
        let (settled, pulled) = queue.exchange(&settlements, &p, request).await;
        assert!(settled.iter().all(|outcome| matches!(outcome, Ok(SettleOutcome::Settled))));
        held = pulled.unwrap();
        assert!((1..=10).contains(&held.len()));
        seen.extend(texts(&held));
    }
    let sent = proxy.traffic().to_server_bytes - before.to_server_bytes;
    // An acknowledgement is 21 bytes, a consumer's beginning and end are some 150.
    assert!(sent < 49 * 120, "{sent} bytes for 49 rounds");
    assert_eq!(seen, (0..500).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_wait_for_nothing_costs_three_methods() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let (p, queue) = (part("work"), RabbitMqQueue::open(&format!("{url}&heartbeat=1h")).await.unwrap());
    push(&queue, &p, &messages(1)).await;
    let got = take(&queue, &p, 1).await;
    settle(&queue, &got, Action::Remove).await;
    assert!(pull(&queue, &p, 10, Duration::from_millis(100)).await.is_empty());
    let before = proxy.traffic();
    for _ in 0..10 {
        assert!(pull(&queue, &p, 10, Duration::from_millis(100)).await.is_empty());
    }
    let sent = proxy.traffic().to_server_bytes - before.to_server_bytes;
    // A question how many are ready, a consumer's beginning and its end: some 35, 40 and 25 bytes.
    assert!(sent <= 10 * 120, "{sent} bytes for ten waits");
}

#[tokio::test]
async fn headers_that_the_broker_would_obey_are_only_text() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, other, queue) = (part("work"), part("other"), bed.open().await);
    push(&queue, &other, &messages(1)).await;
    let there = take(&queue, &other, 1).await;
    settle(&queue, &there, Action::Remove).await;
    let names = ["CC", "BCC", "x-delivery-count", "x-death", "expiration"];
    let message = names
        .iter()
        .fold(MessageData::new("text"), |message, name| message.with_header(*name, bed.queue(&other, 0)));
    push(&queue, &p, std::slice::from_ref(&message)).await;
    let got = take(&queue, &p, 1).await;
    assert_eq!(got[0].message.headers(), message.headers());
    assert_eq!(got[0].delivery_count, Some(1));
    settle(&queue, &got, Action::Retry).await;
    let got = take(&queue, &p, 1).await;
    assert_eq!(got[0].delivery_count, Some(2));
    settle(&queue, &got, Action::Remove).await;
    assert!(pull(&queue, &other, 1, Duration::from_millis(300)).await.is_empty());
}

#[tokio::test]
async fn a_forged_or_stale_lease_breaks_no_channel() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(2)).await;
    let got = take(&queue, &p, 2).await;
    let mut forged = got[1].clone();
    let mut bytes = forged.lease.token.as_bytes().to_vec();
    *bytes.last_mut().unwrap() += 100; // a number that the channel has never had
    forged.lease.token = Token::from_bytes(bytes);
    assert_eq!(settle(&queue, &[forged], Action::Remove).await, [SettleOutcome::Lost]);
    settle(&queue, &got[..1], Action::Remove).await;
    assert_eq!(settle(&queue, &got[..1], Action::Remove).await, [SettleOutcome::Lost]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The channel lives: the other delivery is still held.
    assert_eq!(settle(&queue, &got[1..], Action::Remove).await, [SettleOutcome::Settled]);
    becomes("nothing is left", || async { bed.ready(&p).await == 0 }).await;
}
