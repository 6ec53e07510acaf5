//! Messages that are stored with the end of a delivery: together with it or not at all.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, MoveGuarantee, PullQueueStorage, PullRequest, QueueStorage, RawDelivery,
    Settlement, Successor,
};
use anyqueue::{ErrorKind, MessageData, PartitionId, Result, RetryClass, SettleOutcome};
use anyqueue_redis::RedisQueue;

use crate::common::{Bed, LEASE, messages, part, pull, pull_wait, push, settle, texts};

/// A settlement that brings messages for partitions of these names.
pub(crate) fn bring<const N: usize>(
    held: &RawDelivery,
    action: Action,
    then: [(&str, MessageData); N],
) -> Settlement {
    let successor = |(name, message)| Successor { partition: part(name), message };
    Settlement::new(held.lease.clone(), action).with_then(then.into_iter().map(successor).collect())
}

pub(crate) async fn settle_one(queue: &RedisQueue, settlement: Settlement) -> Result<SettleOutcome> {
    queue.settle(&[settlement]).await.remove(0)
}

pub(crate) async fn all(queue: &RedisQueue, name: &str) -> Vec<String> {
    texts(&pull(queue, &part(name), 1000).await)
}

async fn ready(queue: &RedisQueue, partition: &PartitionId) -> u64 {
    queue.counts(partition).await.unwrap().ready.unwrap()
}

#[tokio::test]
async fn successors_are_stored_in_order_with_an_end_of_any_kind() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    assert_eq!(queue.capabilities().successors, Some(MoveGuarantee::Atomic));
    for (action, left) in [
        (Action::Remove, vec!["p-4"]),
        (Action::Release, vec!["parent", "p-4"]),
        (Action::Retry, vec!["parent", "p-4"]),
        (Action::Postpone { delay: Duration::ZERO, headers: None }, vec!["parent", "p-4"]),
        (Action::Move { to: part("next"), headers: None }, vec!["p-4"]),
    ] {
        let is_moved = matches!(action, Action::Move { .. });
        push(&queue, &p, &messages(&["parent"])).await;
        let held = pull(&queue, &p, 1).await.remove(0);
        let then = [
            ("next", MessageData::new("next-1")),
            ("new", MessageData::new("new-2").with_priority(3)),
            ("next", MessageData::new("next-3").with_priority(3)),
            ("p", MessageData::new("p-4")),
            ("next", MessageData::new(vec![b'.'; 20_000])),
            ("next", MessageData::new("later").with_delay(LEASE)),
            ("new", MessageData::new("new-7").with_priority(3)),
        ];
        let outcome = settle_one(&queue, bring(&held, action, then)).await.unwrap();
        assert_eq!(outcome, SettleOutcome::Settled);
        let bulky = ".".repeat(20_000);
        let expected: &[&str] = &["next-3", "parent", "next-1", &bulky];
        let expected: Vec<_> = expected.iter().filter(|text| is_moved || **text != "parent").collect();
        let next = pull(&queue, &part("next"), 10).await;
        assert_eq!(texts(&next).iter().collect::<Vec<_>>(), expected);
        assert_eq!(queue.counts(&part("next")).await.unwrap().delayed, Some(1));
        let new = pull(&queue, &part("new"), 10).await;
        assert_eq!(texts(&new), ["new-2", "new-7"]);
        let rest = pull(&queue, &p, 10).await;
        assert_eq!(texts(&rest), left);
        for held in [next, new, rest] {
            settle(&queue, &held, Action::Remove).await;
        }
        queue.purge(&part("next"), 10).await.unwrap();
    }
}

#[tokio::test]
async fn under_a_lost_lease_nothing_is_stored_and_of_two_settlements_of_one_the_second_is_lost() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["released", "twice", "alone"])).await;
    let held = pull(&queue, &p, 3).await;
    settle(&queue, &held[..1], Action::Release).await;
    let again = MessageData::new("of both");
    let settlements = [
        bring(&held[0], Action::Remove, [("next", MessageData::new("lost")), ("next", again.clone())]),
        bring(&held[1], Action::Remove, [("next", MessageData::new("first"))]),
        bring(&held[1], Action::Remove, [("next", MessageData::new("second"))]),
        bring(&held[2], Action::Retry, [("next", again), ("next", MessageData::new("third"))]),
    ];
    let outcomes: Vec<_> = queue.settle(&settlements).await.into_iter().map(Result::unwrap).collect();
    let (lost, settled) = (SettleOutcome::Lost, SettleOutcome::Settled);
    assert_eq!(outcomes, [lost, settled, lost, settled]);
    assert_eq!(all(&queue, "next").await, ["first", "of both", "third"]);
    assert_eq!(all(&queue, "p").await, ["alone", "released"]);
}

#[tokio::test]
async fn a_successor_may_have_the_key_or_the_id_that_the_end_set_free_and_else_is_left_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let keyed = |text: &str| MessageData::new(text).with_dedup_key("k");
    push(&queue, &p, &[keyed("1")]).await;
    let first = pull(&queue, &p, 1).await.remove(0);
    let then = [("p", keyed("left out")), ("p", MessageData::with_id(first.lease.id, "left out"))];
    assert_eq!(
        settle_one(&queue, bring(&first, Action::Retry, then)).await.unwrap(),
        SettleOutcome::Settled,
        "a duplicate is no reason to hold on"
    );
    let first = pull(&queue, &p, 1).await.remove(0);
    settle_one(&queue, bring(&first, Action::Remove, [("p", keyed("2")), ("p", keyed("left out"))]))
        .await
        .unwrap();
    let second = pull(&queue, &p, 10).await;
    assert_eq!(texts(&second), ["2"]);
    let same_id = MessageData::with_id(second[0].lease.id, "3");
    settle_one(&queue, bring(&second[0], Action::Remove, [("p", same_id)])).await.unwrap();
    let third = pull(&queue, &p, 10).await;
    assert_eq!(texts(&third), ["3"]);
    let same_id = || MessageData::with_id(third[0].lease.id, "4");
    let away = Action::Move { to: part("away"), headers: None };
    settle_one(&queue, bring(&third[0], away, [("p", same_id()), ("away", same_id())])).await.unwrap();
    assert_eq!((all(&queue, "p").await, all(&queue, "away").await), (vec!["4".into()], vec!["3".into()]));
}

#[tokio::test]
async fn a_successor_that_two_deliveries_bring_is_stored_once() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["1", "2"])).await;
    let held = pull(&queue, &p, 2).await;
    let same = MessageData::new("same");
    let settlements: Vec<_> =
        held.iter().map(|held| bring(held, Action::Remove, [("next", same.clone())])).collect();
    for outcome in queue.settle(&settlements).await {
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
    assert_eq!(ready(&queue, &part("next")).await, 1);
    assert_eq!(all(&queue, "next").await, ["same"]);
}

#[tokio::test]
async fn a_successor_joins_the_end_of_its_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let grouped = |text: &str| MessageData::new(text).with_group("g");
    push(&queue, &p, &[grouped("1"), grouped("2")]).await;
    let mut order = Vec::new();
    for next in ["3", "4"] {
        let held = pull(&queue, &p, 10).await;
        order.extend(texts(&held));
        settle_one(&queue, bring(&held[0], Action::Remove, [("p", grouped(next))])).await.unwrap();
    }
    while let [held] = &pull(&queue, &p, 10).await[..] {
        order.extend(texts(std::slice::from_ref(held)));
        settle(&queue, std::slice::from_ref(held), Action::Remove).await;
    }
    assert_eq!(order, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_full_server_leaves_deliveries_with_successors_held_and_ends_the_others() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["1", "2", "3", "4", "5"])).await;
    let held = pull(&queue, &p, 4).await;
    bed.run("CONFIG SET maxmemory 1").await;
    let with = |number: usize| bring(&held[number], Action::Remove, [("next", MessageData::new("child"))]);
    let without = |number: usize| Settlement::new(held[number].lease.clone(), Action::Remove);
    let expect = |mut outcomes: Vec<Result<SettleOutcome>>| {
        assert_eq!(outcomes.pop().unwrap().unwrap(), SettleOutcome::Settled);
        let error = outcomes.pop().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Full, RetryClass::Safe), "{error}");
    };
    expect(queue.settle(&[with(0), without(1)]).await);
    let request = PullRequest::new(1, Duration::ZERO, LEASE);
    let (outcomes, pulled) = queue.exchange(&[with(2), without(3)], &p, request).await;
    expect(outcomes);
    assert_eq!(texts(&pulled.unwrap()), ["5"], "the other half of the call");
    assert_eq!(ready(&queue, &part("next")).await, 0);
    bed.run("CONFIG SET maxmemory 0").await;
    for number in [0, 2] {
        assert_eq!(settle_one(&queue, with(number)).await.unwrap(), SettleOutcome::Settled);
    }
    assert_eq!(all(&queue, "next").await, ["child", "child"]);
}

#[tokio::test]
async fn where_somebody_elses_key_is_in_the_way_deliveries_with_successors_stay_held_and_others_end() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for key in ["state", "messages"] {
        push(&queue, &p, &messages(&["1", "2"])).await;
        let held = pull(&queue, &p, 2).await;
        bed.run(&format!("SET {}:{{next}}:{key} theirs", bed.prefix)).await;
        let with = bring(&held[0], Action::Remove, [("next", MessageData::new("child"))]);
        let without = Settlement::new(held[1].lease.clone(), Action::Remove);
        let [refused, settled]: [_; 2] = queue.settle(&[with.clone(), without]).await.try_into().unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incompatible);
        assert_eq!(settled.unwrap(), SettleOutcome::Settled);
        bed.run(&format!("DEL {}:{{next}}:{key}", bed.prefix)).await;
        assert_eq!(settle_one(&queue, with).await.unwrap(), SettleOutcome::Settled);
        settle(&queue, &pull(&queue, &part("next"), 1).await, Action::Remove).await;
    }
}

#[tokio::test]
async fn a_successor_that_is_too_large_leaves_its_delivery_held_and_harms_no_other() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.builder().message_bytes(10_000).open().await.unwrap(), part("p"));
    push(&queue, &p, &messages(&["1", "2"])).await;
    let held = pull(&queue, &p, 2).await;
    let large = MessageData::new(vec![b'.'; 10_000]);
    let settlements = [
        bring(&held[0], Action::Remove, [("next", MessageData::new("small")), ("next", large)]),
        bring(&held[1], Action::Remove, [("next", MessageData::new("other"))]),
    ];
    let [refused, settled]: [_; 2] = queue.settle(&settlements).await.try_into().unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(settled.unwrap(), SettleOutcome::Settled);
    assert_eq!(all(&queue, "next").await, ["other"]);
    settle(&queue, &held[..1], Action::Remove).await;
}

#[tokio::test]
async fn the_pull_of_an_exchange_finds_the_successor() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["1"])).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let then = [("p", MessageData::new("2")), ("next", MessageData::new("3"))];
    let request = PullRequest::new(10, Duration::ZERO, LEASE);
    let (outcomes, pulled) = queue.exchange(&[bring(&held, Action::Remove, then)], &p, request).await;
    assert_eq!(outcomes[0].as_ref().unwrap(), &SettleOutcome::Settled);
    assert_eq!(texts(&pulled.unwrap()), ["2"]);
    assert_eq!(all(&queue, "next").await, ["3"]);
}

#[tokio::test]
async fn a_successor_wakes_pulls_that_wait_here_and_elsewhere() {
    let Some(bed) = Bed::find().await else { return };
    // Nobody finds it by looking in time.
    let open = || bed.builder().poll_interval(Duration::from_mins(1)).open();
    let (queue, other) = (open().await.unwrap(), open().await.unwrap());
    let next = part("next");
    push(&queue, &part("p"), &messages(&["1", "2"])).await;
    let held = pull(&queue, &part("p"), 2).await;
    for (waiting, held) in [&queue, &other].into_iter().zip(&held) {
        let settled = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            settle_one(&queue, bring(held, Action::Remove, [("next", MessageData::new("child"))])).await
        };
        let (pulled, settled) = tokio::join!(pull_wait(waiting, &next, 1), settled);
        assert_eq!(settled.unwrap(), SettleOutcome::Settled);
        assert_eq!(texts(&pulled), ["child"]);
    }
}
