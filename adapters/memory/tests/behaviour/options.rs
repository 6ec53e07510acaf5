//! Groups, deduplication, unique ids, moves and dead letters.

use crate::fixture::{Fixture, LEASE, payloads, secs};
use anyqueue::adapter::{Action, InspectQueueStorage, PushQueueStorage};
use anyqueue::{DeleteOutcome, MessageData, PartitionId, PushOutcome};

fn member(payload: &str) -> MessageData {
    MessageData::new(payload).with_group("g")
}

fn keyed(payload: &str) -> MessageData {
    MessageData::new(payload).with_dedup_key("k")
}

#[tokio::test]
async fn members_of_a_group_come_one_at_a_time_in_push_order_whatever_their_priority() {
    let t = Fixture::new();
    t.push(member("1")).await;
    t.push(member("2").with_priority(9)).await;
    t.push(MessageData::new("other").with_group("h")).await;
    let held = t.pull(10).await;
    assert_eq!(payloads(&held), ["1", "other"]);
    assert!(t.pull(10).await.is_empty());
    t.remove(&held[0]).await;
    assert_eq!(t.payloads().await, ["2"]);
}

#[tokio::test]
async fn a_head_that_comes_back_is_the_head_again() {
    let t = Fixture::new();
    t.push(member("1")).await;
    t.push(member("2")).await;
    let held = t.pull_one().await;
    t.release(&held).await;
    assert_eq!(t.payloads().await, ["1"]);
    t.time.advance(LEASE);
    let held = t.pull_one().await;
    assert_eq!(held.message.payload(), b"1");
    t.settle(&held, Action::Retry).await;
    assert_eq!(t.payloads().await, ["1"]);
}

#[tokio::test]
async fn a_postponed_head_holds_its_group() {
    let t = Fixture::new();
    t.push(member("1")).await;
    t.push(member("2")).await;
    let held = t.pull_one().await;
    t.postpone(&held, secs(10)).await;
    assert!(t.pull(10).await.is_empty());
    t.time.advance(secs(10));
    let held = t.pull_one().await;
    assert_eq!(held.message.payload(), b"1");
    t.remove(&held).await;
    assert_eq!(t.payloads().await, ["2"]);
}

#[tokio::test]
async fn a_delayed_member_joins_its_group_at_maturity() {
    let t = Fixture::new();
    t.push(member("late").with_delay(secs(5))).await;
    t.push(member("1")).await;
    t.push(member("2")).await;
    let held = t.pull_one().await;
    assert_eq!(held.message.payload(), b"1");
    t.time.advance(secs(5));
    t.push(member("3")).await;
    t.remove(&held).await;
    let mut order = Vec::new();
    while let [delivery] = &t.pull(10).await[..] {
        order.extend(payloads(std::slice::from_ref(delivery)));
        t.remove(delivery).await;
    }
    assert_eq!(order, ["2", "late", "3"]);
}

#[tokio::test]
async fn death_deletion_and_cancellation_of_the_head_free_the_next() {
    let t = Fixture::new();
    let mut ids = Vec::new();
    for payload in ["dies", "deleted", "cancelled", "behind", "last"] {
        ids.push(t.push(member(payload)).await);
    }
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs.dead_letters()).await;
    assert_eq!(t.queue.delete(&t.jobs, &[ids[1], ids[3]]).await.len(), 2);
    t.queue.request_cancel(&t.jobs, &[ids[2]]).await;
    assert_eq!(t.payloads().await, ["last"]);
}

#[tokio::test]
async fn a_key_is_taken_while_its_message_lives() {
    let t = Fixture::new();
    let first = t.push(keyed("first").with_delay(secs(1))).await;
    let duplicate = Ok(PushOutcome::Duplicate(Some(first)));
    let again = || async { t.try_push(keyed("second")).await.map_err(|_| ()) };
    assert_eq!(again().await, duplicate, "delayed");
    t.time.advance(secs(1));
    assert_eq!(again().await, duplicate, "ready");
    let held = t.pull_one().await;
    assert_eq!(again().await, duplicate, "leased");
    t.postpone(&held, secs(1)).await;
    assert_eq!(again().await, duplicate, "postponed");
    t.time.advance(secs(1));
    let held = t.pull_one().await;
    t.remove(&held).await;
    t.push(keyed("second")).await;
    assert_eq!(t.payloads().await, ["second"]);
}

#[tokio::test]
async fn a_key_is_free_elsewhere_and_after_death_deletion_or_a_move() {
    let t = Fixture::new();
    let other = PartitionId::new("other").unwrap();
    t.push(keyed("dies")).await;
    assert!(matches!(t.queue.push(&other, &[keyed("x")]).await.remove(0), Ok(PushOutcome::Stored(_))));
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs.dead_letters()).await;
    let id = t.push(keyed("deleted")).await;
    assert_eq!(t.queue.delete(&t.jobs, &[id]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    t.push(keyed("moved to its own place")).await;
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs).await;
    let holder = t.push(keyed("holder")).await;
    // The end of the moved one does not free the key of the other.
    let moved = t.pull(1).await.remove(0);
    t.remove(&moved).await;
    assert_eq!(t.try_push(keyed("again")).await.unwrap(), PushOutcome::Duplicate(Some(holder)));
}

#[tokio::test]
async fn ids_are_unique_wherever_the_message_lives_and_free_when_it_is_gone() {
    let t = Fixture::new();
    let other = PartitionId::new("other").unwrap();
    let message = MessageData::new("a");
    let duplicate = PushOutcome::Duplicate(Some(message.id()));
    let batch = t.queue.push(&t.jobs, &[message.clone(), message.clone()]).await;
    let batch: Vec<_> = batch.into_iter().map(Result::unwrap).collect();
    assert_eq!(batch, [PushOutcome::Stored(message.id()), duplicate], "within one batch");
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs.dead_letters()).await;
    assert_eq!(t.queue.push(&other, std::slice::from_ref(&message)).await.remove(0).unwrap(), duplicate);
    let held = t.pull_from(&t.jobs.dead_letters(), 1).await;
    t.remove(&held[0]).await;
    t.push(message).await;
}

#[tokio::test]
async fn a_duplicate_in_a_batch_harms_no_other() {
    let t = Fixture::new();
    let outcomes = t.queue.push(&t.jobs, &[keyed("1"), keyed("2"), MessageData::new("3")]).await;
    assert!(matches!(outcomes[1], Ok(PushOutcome::Duplicate(Some(id))) if id == outcomes_id(&outcomes[0])));
    assert_eq!(t.payloads().await, ["1", "3"]);
}

fn outcomes_id(outcome: &anyqueue::Result<PushOutcome>) -> anyqueue::MessageId {
    match outcome {
        Ok(PushOutcome::Stored(id)) => *id,
        other => panic!("not stored: {other:?}"),
    }
}

#[tokio::test]
async fn a_move_starts_anew_at_the_end_of_the_other_place() {
    let t = Fixture::new();
    let dead = t.jobs.dead_letters();
    t.push(MessageData::new("a").with_header("h", "1").with_delay(secs(1))).await;
    t.time.advance(secs(1));
    let held = t.pull_one().await;
    t.queue.request_cancel(&t.jobs, &[held.lease.id]).await;
    let headers = [("h".to_owned(), "2".to_owned())].into();
    t.settle(&held, Action::Move { to: dead.clone(), headers: Some(headers) }).await;
    assert!(t.pull(1).await.is_empty());

    let held = t.pull_from(&dead, 1).await.remove(0);
    assert_eq!(
        (held.delivery_count, held.age),
        (Some(1), secs(1)),
        "the count starts anew, the age does not"
    );
    assert_eq!(held.message.headers()["h"], "2");
    assert_eq!(
        t.extend(&held, LEASE).await,
        anyqueue::ExtendOutcome::Extended,
        "the cancellation was for the other stay"
    );

    t.push_all(&["b"]).await;
    t.move_to(&held, &t.jobs).await;
    assert_eq!(t.payloads().await, ["b", "a"], "at once: a delay is not repeated");
}

#[tokio::test]
async fn a_move_to_its_own_partition_goes_to_the_end_of_its_group() {
    let t = Fixture::new();
    t.push(member("1")).await;
    t.push(member("2")).await;
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs).await;
    let held = t.pull_one().await;
    assert_eq!(held.message.payload(), b"2");
    t.remove(&held).await;
    assert_eq!(t.pull_one().await.delivery_count, Some(1));
}

#[tokio::test]
async fn dead_letters_know_priorities_but_neither_groups_nor_keys() {
    let t = Fixture::new();
    let dead = t.jobs.dead_letters();
    t.push(member("1").with_dedup_key("k1")).await;
    t.push(member("2").with_dedup_key("k2").with_priority(9)).await;
    while let [held] = &t.pull(10).await[..] {
        t.move_to(held, &dead).await;
    }
    assert_eq!(t.counts().await.dead, Some(2));
    let held = t.pull_from(&dead, 10).await;
    assert_eq!(payloads(&held), ["2", "1"]);
    assert!(matches!(
        t.queue.push(&dead, &[keyed("a"), keyed("b")]).await[..],
        [Ok(_), Ok(PushOutcome::Stored(_))]
    ));
}
