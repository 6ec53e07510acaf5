//! Order, priorities, leases, fencing, delays and settlement of single messages.

use crate::fixture::{Fixture, LEASE, NANO, kind, now, payloads, secs};
use anyqueue::adapter::{Action, Extension, PullQueueStorage, PullRequest, PushQueueStorage, Settlement};
use anyqueue::{ErrorKind, ExtendOutcome, MessageData, SettleOutcome};

#[tokio::test]
async fn urgent_messages_come_first_and_push_order_decides_among_equals() {
    let t = Fixture::new();
    for (payload, priority) in [("low 1", 0), ("mid 1", 5), ("high", 9), ("low 2", 0), ("mid 2", 5)] {
        t.push(MessageData::new(payload).with_priority(priority)).await;
    }
    assert_eq!(t.payloads().await, ["high", "mid 1", "mid 2", "low 1", "low 2"]);
}

#[tokio::test]
async fn push_order_holds_even_when_ids_are_made_in_another_order() {
    let t = Fixture::new();
    let mut messages: Vec<_> = (0..5).map(|n| MessageData::new(n.to_string())).collect();
    messages.reverse();
    t.queue.push(&t.jobs, &messages).await;
    assert_eq!(t.payloads().await, ["4", "3", "2", "1", "0"]);
}

#[tokio::test]
async fn a_delivery_carries_the_message_its_count_age_and_lease_end() {
    let t = Fixture::new();
    let message = MessageData::new([0, 255]).with_task_id("task").with_header("Name", " value ");
    t.push(message.clone()).await;
    t.time.advance(secs(7));
    let claimed_at = t.time.clock().now();
    let delivery = t.pull_one().await;
    assert_eq!(delivery.message, message);
    assert_eq!(delivery.lease.id, message.id());
    assert_eq!(delivery.lease.partition, t.jobs);
    assert_eq!(delivery.delivery_count, Some(1));
    assert_eq!(delivery.age, secs(7));
    assert_eq!(delivery.lease_until, Some(claimed_at + LEASE));
}

#[tokio::test]
async fn a_leased_message_is_invisible_until_the_very_end_of_its_lease() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    t.pull_one().await;
    t.time.advance(LEASE - NANO);
    assert!(t.pull(1).await.is_empty());
    t.time.advance(NANO);
    assert_eq!(t.pull_one().await.delivery_count, Some(2));
}

#[tokio::test]
async fn a_lapsed_lease_is_lost_even_if_nobody_took_the_message_since() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    let delivery = t.pull_one().await;
    t.time.advance(LEASE);
    assert_eq!(t.extend(&delivery, LEASE).await, ExtendOutcome::Lost);
    for action in [Action::Remove, Action::Release, Action::Retry] {
        assert_eq!(t.settle(&delivery, action).await, SettleOutcome::Lost);
    }
    assert_eq!(t.postpone(&delivery, secs(1)).await, SettleOutcome::Lost);
    assert_eq!(t.move_to(&delivery, &t.jobs.dead_letters()).await, SettleOutcome::Lost);
    assert_eq!(t.payloads().await, ["a"], "nothing has changed");
}

#[tokio::test]
async fn a_stale_holder_changes_nothing_for_the_new_one() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    let stale = t.pull_one().await;
    t.release(&stale).await;
    let fresh = t.pull_one().await;
    for action in [Action::Remove, Action::Release, Action::Retry] {
        assert_eq!(t.settle(&stale, action).await, SettleOutcome::Lost);
    }
    assert_eq!(t.postpone(&stale, secs(0)).await, SettleOutcome::Lost);
    assert_eq!(t.move_to(&stale, &t.jobs).await, SettleOutcome::Lost);
    assert_eq!(t.extend(&stale, secs(3600)).await, ExtendOutcome::Lost);
    t.time.advance(LEASE - NANO);
    assert_eq!(t.remove(&fresh).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn extending_moves_the_end_of_one_lease_both_ways() {
    let t = Fixture::new();
    t.push_all(&["longer", "shorter", "same"]).await;
    let held = t.pull(3).await;
    t.time.advance(secs(1));
    assert_eq!(t.extend(&held[0], secs(60)).await, ExtendOutcome::Extended);
    assert_eq!(t.extend(&held[1], secs(1)).await, ExtendOutcome::Extended);
    t.time.advance(secs(1));
    assert_eq!(t.payloads().await, ["shorter"]);
    t.time.advance(secs(28));
    assert_eq!(t.payloads().await, ["same"]);
    t.time.advance(secs(31) - NANO);
    assert_eq!(t.remove(&held[0]).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn the_end_of_a_claim_touches_only_what_is_still_held_by_it() {
    let t = Fixture::new();
    t.push_all(&["kept", "passed on", "extended", "removed"]).await;
    let held = t.pull(4).await;
    t.time.advance(secs(1));
    t.release(&held[1]).await;
    let passed_on = t.pull_one().await;
    t.extend(&held[2], LEASE).await;
    t.remove(&held[3]).await;
    assert_eq!(t.counts().await.leased, Some(3));
    t.time.advance(LEASE - secs(1));
    assert_eq!(t.counts().await.leased, Some(2));
    assert_eq!(t.payloads().await, ["kept"]);
    assert_eq!(t.remove(&passed_on).await, SettleOutcome::Settled);
    assert_eq!(t.remove(&held[2]).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn what_came_back_goes_ahead_of_what_was_never_delivered_of_its_priority() {
    let t = Fixture::new();
    t.push_all(&["a", "b", "c", "d"]).await;
    t.push(MessageData::new("urgent").with_priority(1)).await;
    let held = t.pull(4).await;
    assert_eq!(payloads(&held), ["urgent", "a", "b", "c"]);
    t.settle(&held[2], Action::Retry).await;
    t.settle(&held[1], Action::Release).await;
    t.release(&held[0]).await;
    t.time.advance(LEASE); // and "c" comes back by its lease's end
    assert_eq!(t.payloads().await, ["urgent", "a", "b", "c", "d"]);
}

#[tokio::test]
async fn what_came_back_goes_ahead_even_of_what_was_pushed_earlier() {
    let t = Fixture::new();
    for payload in ["head", "pushed earlier"] {
        t.push(MessageData::new(payload).with_group("g")).await;
    }
    t.push_all(&["came back"]).await;
    let held = t.pull(2).await;
    t.remove(&held[0]).await;
    t.release(&held[1]).await;
    assert_eq!(t.payloads().await, ["came back", "pushed earlier"]);
}

#[tokio::test]
async fn the_count_counts_failures_and_ended_leases_and_not_what_was_let_go() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    let first = t.pull_one().await;
    t.release(&first).await;
    let second = t.pull_one().await;
    t.settle(&second, Action::Retry).await;
    let third = t.pull_one().await;
    t.postpone(&third, secs(0)).await;
    t.pull_one().await;
    t.time.advance(LEASE);
    assert_eq!(t.pull_one().await.delivery_count, Some(3));
}

#[tokio::test]
async fn a_postponed_message_waits_and_then_stands_at_the_end_as_if_never_delivered() {
    let t = Fixture::new();
    t.push_all(&["later", "a", "b"]).await;
    let held = t.pull(2).await;
    t.postpone(&held[0], secs(5)).await;
    t.time.advance(secs(5) - NANO);
    assert_eq!(t.counts().await.delayed, Some(1));
    t.time.advance(NANO);
    assert_eq!(t.counts().await.delayed, Some(0));
    t.push_all(&["c"]).await;
    t.release(&held[1]).await;
    assert_eq!(t.payloads().await, ["a", "b", "later", "c"]);
}

#[tokio::test]
async fn a_postponement_without_delay_takes_its_place_at_once() {
    let t = Fixture::new();
    t.push_all(&["a", "b"]).await;
    let held = t.pull(1).await;
    t.postpone(&held[0], secs(0)).await;
    t.push_all(&["c"]).await;
    assert_eq!(t.payloads().await, ["b", "a", "c"]);
}

#[tokio::test]
async fn a_postponement_may_replace_the_headers() {
    let t = Fixture::new();
    t.push(MessageData::new("a").with_header("old", "1")).await;
    let held = t.pull_one().await;
    let headers = [("new".to_owned(), "2".to_owned())].into();
    t.settle(&held, Action::Postpone { delay: secs(0), headers: Some(headers) }).await;
    let again = t.pull_one().await;
    assert_eq!(again.message.headers().iter().collect::<Vec<_>>(), [(&"new".to_owned(), &"2".to_owned())]);
    assert_eq!(again.message.payload(), b"a");
}

#[tokio::test]
async fn a_push_delay_is_exact_and_blocks_nobody() {
    let t = Fixture::new();
    t.push(MessageData::new("later").with_priority(9).with_delay(secs(2))).await;
    t.push_all(&["now"]).await;
    assert_eq!(t.payloads().await, ["now"]);
    t.time.advance(secs(2) - NANO);
    assert!(t.pull(1).await.is_empty());
    t.time.advance(NANO);
    assert_eq!(t.payloads().await, ["later"]);
}

#[tokio::test]
async fn matured_messages_line_up_in_order_of_maturity_then_of_push() {
    let t = Fixture::new();
    for (payload, delay) in [("c", 3), ("b 1", 2), ("b 2", 2), ("a", 1)] {
        t.push(MessageData::new(payload).with_delay(secs(delay))).await;
    }
    t.time.advance(secs(2));
    t.push_all(&["pushed at 2"]).await;
    t.time.advance(secs(1));
    assert_eq!(t.payloads().await, ["a", "b 1", "b 2", "pushed at 2", "c"]);
}

#[tokio::test]
async fn settling_twice_is_lost_also_within_one_batch() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    let held = t.pull_one().await;
    let twice: Vec<_> = [Action::Release, Action::Remove]
        .into_iter()
        .map(|action| Settlement::new(held.lease.clone(), action))
        .collect();
    let outcomes: Vec<_> = t.queue.settle(&twice).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [SettleOutcome::Settled, SettleOutcome::Lost]);
    let again = t.pull_one().await;
    assert_eq!(t.remove(&again).await, SettleOutcome::Settled);
    assert_eq!(t.remove(&again).await, SettleOutcome::Lost);
    assert!(t.pull(1).await.is_empty());
}

#[tokio::test]
async fn a_batch_of_several_partitions_is_settled_item_by_item() {
    let t = Fixture::new();
    let other = anyqueue::PartitionId::new("other").unwrap();
    t.push_all(&["a", "b"]).await;
    t.queue.push(&other, &[MessageData::new("x")]).await;
    let (jobs, others) = (t.pull(2).await, t.pull_from(&other, 1).await);
    let settlements: Vec<_> = [&jobs[0], &others[0], &jobs[1], &others[0]]
        .into_iter()
        .map(|delivery| Settlement::new(delivery.lease.clone(), Action::Remove))
        .collect();
    let outcomes: Vec<_> = t.queue.settle(&settlements).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        outcomes,
        [SettleOutcome::Settled, SettleOutcome::Settled, SettleOutcome::Settled, SettleOutcome::Lost]
    );
}

#[tokio::test]
async fn an_exchange_settles_before_it_pulls() {
    let t = Fixture::new();
    t.push(MessageData::new("first").with_group("g")).await;
    t.push(MessageData::new("second").with_group("g")).await;
    let held = t.pull_one().await;
    let settlements = [Settlement::new(held.lease.clone(), Action::Remove)];
    let (outcomes, pulled) = t.queue.exchange(&settlements, &t.jobs, now(10)).await;
    assert_eq!(outcomes.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [SettleOutcome::Settled]);
    assert_eq!(payloads(&pulled.unwrap()), ["second"]);

    let (outcomes, pulled) = t.queue.exchange(&settlements, &t.jobs, now(0)).await;
    assert_eq!(outcomes[0].as_ref().unwrap(), &SettleOutcome::Lost, "one half fails, the other does not");
    assert_eq!(kind(pulled), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn leases_and_delays_out_of_bounds_are_typed_errors_and_change_nothing() {
    let t = Fixture::new();
    t.push_all(&["a"]).await;
    let far = secs(u64::MAX);
    for lease in [secs(0), far] {
        assert_eq!(
            kind(t.queue.pull(&t.jobs, PullRequest::new(1, secs(0), lease)).await),
            ErrorKind::InvalidInput
        );
    }
    let held = t.pull_one().await;
    let extension = Extension { lease: held.lease.clone(), duration: far };
    assert_eq!(kind(t.queue.extend(&[extension]).await.remove(0)), ErrorKind::InvalidInput);
    let action = Action::Postpone { delay: far, headers: None };
    let settlement = Settlement::new(held.lease.clone(), action);
    assert_eq!(kind(t.queue.settle(&[settlement]).await.remove(0)), ErrorKind::InvalidInput);
    assert_eq!(kind(t.try_push(MessageData::new("b").with_delay(far)).await), ErrorKind::InvalidInput);
    assert_eq!(kind(t.try_push(MessageData::new("b").with_priority(10)).await), ErrorKind::Unsupported);
    assert_eq!(t.remove(&held).await, SettleOutcome::Settled);
    assert!(t.pull(1).await.is_empty());
}
