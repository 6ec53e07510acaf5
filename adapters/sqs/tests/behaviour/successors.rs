//! Messages that a settlement brings: sent before their delivery ends, in few requests, and none under a lost lease.

use std::time::Duration;

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, RawDelivery, Settlement, Successor};
use anyqueue::{ErrorKind, MessageData, MessageId, Result, SettleOutcome};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, settle, settled, take};

pub(crate) const SEND: &str = "SendMessageBatch";
pub(crate) const DELETE: &str = "DeleteMessageBatch";

/// This delivery's end, which brings these messages to a partition.
pub(crate) fn ending(delivery: &RawDelivery, action: Action, to: &str, then: &[MessageData]) -> Settlement {
    let then = then.iter().map(|message| Successor { partition: part(to), message: message.clone() });
    Settlement::new(delivery.lease.clone(), action).with_then(then.collect())
}

pub(crate) async fn end(queue: &SqsQueue, settlement: &Settlement) -> Result<SettleOutcome> {
    queue.settle(std::slice::from_ref(settlement)).await.remove(0)
}

pub(crate) async fn one_held(queue: &SqsQueue) -> RawDelivery {
    push(queue, "p", &messages(1)).await;
    take(queue, &part("p"), 1).await.remove(0)
}

pub(crate) fn ids(held: &[RawDelivery]) -> Vec<MessageId> {
    let mut ids: Vec<_> = held.iter().map(|held| held.lease.id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn whatever_the_end_its_successors_are_sent_first() {
    for fifo in [false, true] {
        let Some(bed) = Bed::find().await else { return };
        let queue = bed.builder().fifo(fifo).open().await.unwrap();
        let actions = [
            (Action::Remove, None),
            (Action::Release, Some("p")),
            (Action::Retry, Some("p")),
            (Action::Postpone { delay: Duration::ZERO, headers: None }, Some("p")),
            (Action::Postpone { delay: Duration::from_secs(1), headers: None }, Some("p")),
            (Action::Move { to: part("q"), headers: None }, Some("q")),
        ];
        for (action, back) in actions {
            let held = one_held(&queue).await;
            let before = bed.wire.all().len();
            let then = messages(2);
            let outcome = end(&queue, &ending(&held, action.clone(), "next", &then)).await;
            assert_eq!(outcome.unwrap(), SettleOutcome::Settled, "{action:?}");
            let actions: Vec<_> = bed.wire.all()[before..].iter().map(|seen| seen.action.clone()).collect();
            let last_send = actions.iter().rposition(|action| action == SEND).unwrap();
            let end = actions.iter().position(|action| action == DELETE || action.starts_with("Change"));
            assert!(end.unwrap() > last_send, "{action:?}: {actions:?}");
            let next = take(&queue, &part("next"), 2).await;
            assert_eq!(ids(&next), then.iter().map(MessageData::id).collect::<Vec<_>>());
            assert!(settled(&settle(&queue, &next, &Action::Remove).await));
            if let Some(back) = back {
                let again = take(&queue, &part(back), 1).await;
                assert_eq!(again[0].lease.id, held.lease.id, "{action:?}");
                assert!(settled(&settle(&queue, &again, &Action::Remove).await));
            }
            nothing(&queue, &part("p")).await;
        }
    }
}

#[tokio::test]
async fn the_next_of_a_chain_may_have_the_id_of_the_one_that_it_follows() {
    for fifo in [false, true] {
        let Some(bed) = Bed::find().await else { return };
        let queue = bed.builder().fifo(fifo).open().await.unwrap();
        let mut held = one_held(&queue).await;
        let id = held.lease.id;
        for number in 0..3 {
            let next = MessageData::with_id(id, format!("next {number}"));
            let outcome = end(&queue, &ending(&held, Action::Remove, "p", &[next])).await;
            assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
            held = take(&queue, &part("p"), 1).await.remove(0);
            assert_eq!(held.lease.id, id);
            assert_eq!(held.message.payload(), format!("next {number}").as_bytes(), "fifo: {fifo}");
        }
    }
}

#[tokio::test]
async fn ten_settlements_take_one_request_more_with_successors_and_none_more_without() {
    for fifo in [false, true] {
        let Some(bed) = Bed::find().await else { return };
        let queue = bed.builder().fifo(fifo).open().await.unwrap();
        push(&queue, "next", &messages(1)).await;
        for (then, requests) in [(0, vec![(SEND, 0), (DELETE, 3)]), (1, vec![(SEND, 3), (DELETE, 3)])] {
            push(&queue, "p", &messages(30)).await;
            let held = take(&queue, &part("p"), 30).await;
            let before = bed.wire.all().len();
            let settlements: Vec<_> =
                held.iter().map(|held| ending(held, Action::Remove, "next", &messages(then))).collect();
            assert!(settled(&queue.settle(&settlements).await));
            let all = &bed.wire.all()[before..];
            for (action, count) in requests {
                assert_eq!(all.iter().filter(|seen| seen.action == action).count(), count, "{action}");
            }
            assert_eq!(all.len(), 3 + 3 * then, "nothing else is asked");
        }
    }
}

#[tokio::test]
async fn a_hundred_successors_of_one_settlement_share_full_requests() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let held = one_held(&queue).await;
    let before = bed.wire.seen(SEND).len();
    let outcome = end(&queue, &ending(&held, Action::Remove, "next", &messages(100))).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    assert_eq!(bed.wire.seen(SEND).len(), before + 10);
    assert_eq!(take(&queue, &part("next"), 100).await.len(), 100);
}

#[tokio::test]
async fn under_an_ended_lease_nothing_is_sent() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    push(&queue, "p", &messages(1)).await;
    let lease = Duration::from_secs(1);
    let held = queue.pull(&part("p"), PullRequest::new(1, SOON, lease)).await.unwrap();
    let theirs = take(&other, &part("p"), 1).await;
    let before = bed.wire.all().len();
    for action in [Action::Remove, Action::Release, Action::Move { to: part("q"), headers: None }] {
        let outcome = end(&queue, &ending(&held[0], action, "next", &messages(1))).await;
        assert_eq!(outcome.unwrap(), SettleOutcome::Lost);
    }
    assert_eq!(bed.wire.all().len(), before);
    // The same lease twice: the second has lost.
    let twice = [(), ()].map(|()| ending(&theirs[0], Action::Remove, "next", &messages(1)));
    let outcomes = other.settle(&twice).await.into_iter().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(outcomes, [SettleOutcome::Settled, SettleOutcome::Lost]);
    take(&other, &part("next"), 1).await;
    nothing(&other, &part("next")).await;
}

#[tokio::test]
async fn a_lease_of_another_handle_brings_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    let held = one_held(&queue).await;
    let before = bed.wire.all().len();
    let refused = end(&other, &ending(&held, Action::Remove, "next", &messages(1))).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(bed.wire.all().len(), before, "whether the lease holds cannot be known before");
    assert!(settled(&settle(&queue, &[held], &Action::Remove).await));
}

#[tokio::test]
async fn a_successor_joins_its_group_behind_those_that_wait() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().fifo(true).open().await.unwrap();
    let of_group = |text: &str| MessageData::new(text).with_group("g");
    push(&queue, "p", &["0", "1"].map(of_group)).await;
    let mut seen = Vec::new();
    for next in ["2", "3", "4"] {
        let held = queue.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
        assert_eq!(held.len(), 1);
        seen.push(String::from_utf8(held[0].message.payload().to_vec()).unwrap());
        let outcome = end(&queue, &ending(&held[0], Action::Remove, "p", &[of_group(next)])).await;
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
    assert_eq!(seen, ["0", "1", "2"]);
}

#[tokio::test]
async fn what_is_moved_comes_before_its_successors_of_the_same_group() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().fifo(true).open().await.unwrap();
    let of_group = |text: &str| MessageData::new(text).with_group("g");
    push(&queue, "p", &[of_group("0")]).await;
    let held = take(&queue, &part("p"), 1).await.remove(0);
    let action = Action::Move { to: part("next"), headers: None };
    let then = ["1", "2"].map(of_group);
    assert_eq!(end(&queue, &ending(&held, action, "next", &then)).await.unwrap(), SettleOutcome::Settled);
    for text in ["0", "1", "2"] {
        let got = take(&queue, &part("next"), 1).await;
        assert_eq!(got[0].message.payload(), text.as_bytes());
        assert!(settled(&settle(&queue, &got, &Action::Remove).await));
    }
}
