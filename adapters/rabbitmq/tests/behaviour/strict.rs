//! A pull holds what it was asked for, waiting costs little, and what users write commands the broker nothing.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, RawDelivery, Settlement, Token};
use anyqueue::{MessageData, PartitionId, Queue, SettleOutcome};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Fault, Proxy, RabbitMq};
use futures_util::{FutureExt, StreamExt};

use crate::common::{Bed, LEASE, SOON, becomes, messages, part, pull, push, settle, take, texts};

fn removals(deliveries: &[RawDelivery]) -> Vec<Settlement> {
    let removal = |delivery: &RawDelivery| Settlement::new(delivery.lease.clone(), Action::Remove);
    deliveries.iter().map(removal).collect()
}

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
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let (p, queue) = (part("work"), RabbitMqQueue::open(&url).await.unwrap());
    push(&queue, &p, &messages(500)).await;
    let mut held = take(&queue, &p, 10).await;
    let mut seen = texts(&held);
    let before = proxy.traffic();
    while seen.len() < 500 {
        let request = PullRequest::new(10, SOON, LEASE);
        let (settled, pulled) = queue.exchange(&removals(&held), &p, request).await;
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
async fn a_stream_takes_no_more_from_the_broker_than_its_window() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), Queue::new(bed.open().await).unwrap());
    queue.push_many("work", messages(200)).await.unwrap();
    let mut stream = queue.stream("work").window(8).build().unwrap();
    for number in 0..200_u32 {
        let mut handler = stream.next().await.unwrap().unwrap();
        assert_eq!(handler.payload(), number.to_string().as_bytes());
        if number % 10 == 0 {
            let there = bed.ready(&p).await + number + 8;
            assert!(there >= 200, "{} beyond the window after {number}", 200 - there);
        }
        assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn a_pull_that_comes_while_another_is_under_way_asks_the_broker_at_once() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let (p, queue) = (part("work"), RabbitMqQueue::open(&url).await.unwrap());
    push(&queue, &p, &messages(100)).await;
    let held = take(&queue, &p, 30).await;
    proxy.set(Fault::Delay(Duration::from_secs(1))).await.unwrap();
    let exchange = |from: usize| {
        let (settlements, queue, p) = (removals(&held[from..from + 10]), &queue, &p);
        async move { queue.exchange(&settlements, p, PullRequest::new(10, SOON, LEASE)).await.1.unwrap() }
    };
    let (mut first, mut second) = (pin!(exchange(0)), pin!(exchange(10)));
    assert!(first.as_mut().now_or_never().is_none());
    tokio::time::sleep(Duration::from_millis(100)).await;
    // What is settled meanwhile is answered as well.
    assert_eq!(settle(&queue, &held[20..], Action::Remove).await, vec![SettleOutcome::Settled; 10]);
    assert!(second.as_mut().now_or_never().is_none());
    let first = first.await;
    assert_eq!(bed.ready(&p).await, 50);
    let expected: Vec<_> = (30..50).map(|number| number.to_string()).collect();
    assert_eq!(texts(&[first, second.await].concat()), expected);
}

#[tokio::test]
async fn a_return_while_pulls_are_under_way_loses_and_repeats_nothing() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(400)).await;
    let mut held = take(&queue, &p, 20).await;
    let mut counts = BTreeMap::new();
    let mut seen = 0;
    while let Some(returned) = held.pop() {
        settle(&queue, &held, Action::Remove).await;
        seen += held.len();
        *counts.entry(texts(std::slice::from_ref(&returned))).or_insert(0) += 1;
        let (one, two, _) = tokio::join!(
            pull(&queue, &p, 10, Duration::ZERO),
            pull(&queue, &p, 9, Duration::ZERO),
            settle(&queue, std::slice::from_ref(&returned), Action::Release),
        );
        held = [one, two].concat();
        for delivery in &held {
            let before = counts.get(&texts(std::slice::from_ref(delivery))).copied().unwrap_or(0);
            assert_eq!(delivery.delivery_count, Some(before + 1));
        }
        if seen >= 300 {
            break;
        }
    }
    settle(&queue, &held, Action::Remove).await;
    becomes("what is left is ready", || async {
        usize::try_from(bed.ready(&p).await).unwrap() == 400 - seen - held.len()
    })
    .await;
}

/// A queue that reaches its server through a proxy, and has just removed its only message.
async fn one_removed_through_a_proxy(bed: &Bed, p: &PartitionId) -> (Proxy, RabbitMqQueue) {
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let queue = RabbitMqQueue::open(&format!("{url}&heartbeat=1h")).await.unwrap();
    push(&queue, p, &messages(1)).await;
    let got = take(&queue, p, 1).await;
    settle(&queue, &got, Action::Remove).await;
    (proxy, queue)
}

#[tokio::test]
async fn a_wait_for_nothing_costs_three_methods() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let p = part("work");
    let (proxy, queue) = one_removed_through_a_proxy(&bed, &p).await;
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
async fn a_removal_that_no_pull_follows_is_told_soon_and_outlives_its_connection() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let p = part("work");
    let (proxy, _queue) = one_removed_through_a_proxy(&bed, &p).await;
    // Nothing tells when the broker knows: it is far later than it should.
    tokio::time::sleep(Duration::from_secs(5)).await;
    proxy.set(Fault::Reset).await.unwrap();
    let other = bed.open().await;
    assert!(pull(&other, &p, 1, Duration::from_millis(500)).await.is_empty());
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
