//! Messages that a settlement brings: confirmed before their delivery ends, so that neither is ever lost, and none under a lost lease.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, RawDelivery, Settlement, Successor};
use anyqueue::{MessageData, PartitionId, Result, SettleOutcome};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Proxy, RabbitMq};

use crate::common::{Bed, LEASE, SOON, becomes, holds, messages, part, pull, push, settle, take, texts};

/// This delivery's end, which brings these messages to a partition.
pub(crate) fn ending(
    delivery: &RawDelivery,
    action: Action,
    to: &PartitionId,
    then: &[MessageData],
) -> Settlement {
    let then = then.iter().map(|message| Successor { partition: to.clone(), message: message.clone() });
    Settlement::new(delivery.lease.clone(), action).with_then(then.collect())
}

pub(crate) async fn end(queue: &RabbitMqQueue, settlement: Settlement) -> Result<SettleOutcome> {
    queue.settle(&[settlement]).await.remove(0)
}

pub(crate) async fn trusting(bed: &Bed) -> RabbitMqQueue {
    bed.builder().queue_age(Duration::ZERO).open().await.unwrap()
}

/// All that is there, removed.
pub(crate) async fn drain(queue: &RabbitMqQueue, partition: &PartitionId) -> Vec<RawDelivery> {
    let mut all = Vec::new();
    loop {
        let got = pull(queue, partition, 1000, Duration::from_millis(500)).await;
        if got.is_empty() {
            return all;
        }
        settle(queue, &got, Action::Remove).await;
        all.extend(got);
    }
}

#[tokio::test]
async fn whatever_the_end_its_successors_are_stored_in_order() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), trusting(&bed).await);
    push(&queue, &p, &messages(1)).await;
    let actions = [
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to: part("moved"), headers: None },
    ];
    for (number, action) in actions.into_iter().enumerate() {
        let (next, held) = (part(&format!("next{number}")), take(&queue, &p, 1).await);
        let back = if let Action::Move { to, .. } = &action { to.clone() } else { p.clone() };
        let late = MessageData::new("late").with_delay(Duration::from_millis(300));
        let text = |text: &str| MessageData::new(text);
        let then = [late, text("first"), text("second"), text("third"), text("high").with_priority(5)];
        let outcome = end(&queue, ending(&held[0], action.clone(), &next, &then)).await;
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled, "{action:?}");
        let got = texts(&take(&queue, &next, 5).await);
        assert_eq!(got, ["high", "first", "second", "third", "late"], "{action:?}");
        let again = take(&queue, &back, 1).await;
        assert_eq!(again[0].lease.id, held[0].lease.id, "{action:?}");
        settle(&queue, &again, Action::Remove).await;
        push(&queue, &p, &messages(1)).await;
    }
}

#[tokio::test]
async fn the_next_of_a_chain_may_have_the_id_of_the_one_that_it_follows() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), trusting(&bed).await);
    push(&queue, &p, &messages(1)).await;
    let held = take(&queue, &p, 1).await;
    let next = MessageData::with_id(held[0].lease.id, "next");
    end(&queue, ending(&held[0], Action::Remove, &p, &[next])).await.unwrap();
    let got = take(&queue, &p, 1).await;
    assert_eq!((texts(&got), got[0].lease.id), (vec!["next".to_owned()], held[0].lease.id));
    settle(&queue, &got, Action::Remove).await;
    assert!(pull(&queue, &p, 1, Duration::from_millis(300)).await.is_empty());
}

#[tokio::test]
async fn a_pull_in_the_same_exchange_gets_the_successor() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), trusting(&bed).await);
    push(&queue, &p, &messages(1)).await;
    let mut held = take(&queue, &p, 1).await;
    for number in 0..5 {
        let settlement = ending(&held[0], Action::Remove, &p, &[MessageData::new(format!("next {number}"))]);
        let request = PullRequest::new(1, Duration::ZERO, LEASE);
        let (settled, pulled) = queue.exchange(&[settlement], &p, request).await;
        assert_eq!(settled[0].as_ref().unwrap(), &SettleOutcome::Settled);
        held = pulled.unwrap();
        assert_eq!(texts(&held), [format!("next {number}")]);
    }
}

#[tokio::test]
async fn whoever_waits_elsewhere_is_woken_by_a_successor() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, next, queue) = (part("work"), part("next"), trusting(&bed).await);
    push(&queue, &p, &messages(2)).await;
    let held = take(&queue, &p, 2).await;
    let other = bed.open().await;
    // The first makes the partition, the second finds it.
    for delivery in &held {
        let waiting = tokio::spawn({
            let (other, next) = (other.clone(), next.clone());
            async move { take(&other, &next, 1).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        let begun = Instant::now();
        end(&queue, ending(delivery, Action::Remove, &next, &messages(1))).await.unwrap();
        settle(&other, &waiting.await.unwrap(), Action::Remove).await;
        assert!(begun.elapsed() < SOON / 2, "it came by chance, after {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn under_a_lost_lease_no_successor_is_stored() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let queue = RabbitMqQueue::builder(&url).unwrap().queue_age(Duration::ZERO).open().await.unwrap();
    let (p, next) = (part("work"), part("next"));
    push(&queue, &p, &messages(2)).await;
    push(&queue, &next, &messages(1)).await;
    let held = take(&queue, &p, 2).await;

    // The same lease twice: the second has lost.
    let twice = [(), ()].map(|()| ending(&held[0], Action::Remove, &next, &messages(1)));
    let outcomes = queue.settle(&twice).await.into_iter().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(outcomes, [SettleOutcome::Settled, SettleOutcome::Lost]);
    // Another handle's.
    let outcome = end(&bed.open().await, ending(&held[1], Action::Remove, &next, &messages(1))).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Lost);
    // One whose channel is gone.
    proxy.reset_all();
    becomes("the loss is told", || async { !holds(&queue, &held[1]).await }).await;
    let outcome = end(&queue, ending(&held[1], Action::Release, &next, &messages(1))).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Lost);
    assert_eq!(drain(&queue, &next).await.len(), 2, "the first, and the one that counted");
}

#[tokio::test]
async fn while_its_successors_are_on_their_way_a_delivery_is_held_and_nobody_else_can_settle_it() {
    let Some(bed) = Bed::shared().await else { return };
    // The new queue is two seconds old before anything counts.
    let (p, next, queue) = (part("work"), part("next"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    let held = take(&queue, &p, 1).await;
    let settling = tokio::spawn({
        let (queue, settlement) =
            (queue.clone(), ending(&held[0], Action::Remove, &next, &[MessageData::new("next")]));
        async move { end(&queue, settlement).await }
    });
    becomes("the queue is there", || async { bed.try_look(&bed.queue(&next, 0)).await.is_ok() }).await;
    assert!(holds(&queue, &held[0]).await);
    let other = ending(&held[0], Action::Release, &next, &[MessageData::new("other")]);
    assert_eq!(end(&queue, other).await.unwrap(), SettleOutcome::Lost);
    assert!(!settling.is_finished());
    assert_eq!(settling.await.unwrap().unwrap(), SettleOutcome::Settled);
    assert!(!holds(&queue, &held[0]).await);
    assert_eq!(texts(&drain(&queue, &next).await), ["next"]);
}

#[tokio::test]
async fn successors_cost_their_publication_and_whoever_has_none_pays_nothing() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let proxy = Proxy::start(bed.server().addr()).unwrap();
    let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
    let queue = RabbitMqQueue::open(&format!("{url}&heartbeat=1h&queue_age=0s")).await.unwrap();
    let (p, next) = (part("work"), part("next"));
    push(&queue, &p, &messages(100)).await;
    push(&queue, &next, &messages(1)).await;
    // Until nothing more comes: acknowledgements go a moment later.
    let traffic = async || {
        let mut before = None;
        loop {
            let now = proxy.traffic();
            if before == Some(now) {
                return now;
            }
            before = Some(now);
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let cost = async |then: usize| {
        let held = take(&queue, &p, 10).await;
        let settlements: Vec<_> =
            held.iter().map(|held| ending(held, Action::Remove, &next, &messages(then))).collect();
        let before = traffic().await;
        assert!(queue.settle(&settlements).await.iter().all(Result::is_ok));
        traffic().await.to_server_bytes - before.to_server_bytes
    };
    let (without, with_one, with_three) = (cost(0).await, cost(1).await, cost(3).await);
    let before = traffic().await;
    push(&queue, &next, &messages(10)).await;
    let pushed = traffic().await.to_server_bytes - before.to_server_bytes;
    // One acknowledgement for all is 21 bytes, the end of the consumer that it would give credit some 17.
    assert!(without <= 40, "{without} bytes");
    assert_eq!(with_one, without + pushed, "a push and an end");
    assert_eq!(with_three, without + 3 * pushed);
    assert_eq!(cost(0).await, without);
}
