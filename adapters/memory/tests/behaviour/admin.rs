//! Counts, browsing, deletion, cancellation, pauses, limits and the life of clients.

use std::sync::Arc;

use anyqueue::adapter::{
    Action, AmendQueueStorage, Extension, InspectQueueStorage, PauseQueueStorage, PullQueueStorage,
    PushQueueStorage, QueueStorage, Settlement, Storage,
};
use anyqueue::{
    Amend, CancelOutcome, Counts, DeleteOutcome, ErrorKind, ExtendOutcome, MessageData, MessageState, Page,
    PartitionId, PushOutcome, Registry, RetryClass, SettleOutcome,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue, backend};

use crate::fixture::{Fixture, LEASE, kind, now, secs};

/// A store with one message in each state: ready, behind its group's head, delayed, leased, dead. Returns their ids.
async fn one_of_each(t: &Fixture) -> Vec<anyqueue::MessageId> {
    let dead = t.push(MessageData::new("dead")).await;
    let held = t.pull_one().await;
    t.move_to(&held, &t.jobs.dead_letters()).await;
    let leased = t.push(MessageData::new("leased").with_group("g")).await;
    t.pull_one().await;
    let ready = t.push(MessageData::new("ready")).await;
    let behind = t.push(MessageData::new("behind").with_group("g")).await;
    let delayed = t.push(MessageData::new("delayed").with_delay(secs(3600))).await;
    vec![ready, behind, delayed, leased, dead]
}

#[tokio::test]
async fn counts_tell_the_states_apart_and_follow_the_clock() {
    let t = Fixture::new();
    assert_eq!(t.counts().await, Counts::known(0, 0, 0, 0));
    one_of_each(&t).await;
    assert_eq!(t.counts().await, Counts::known(2, 1, 1, 1));
    t.time.advance(LEASE);
    assert_eq!(t.counts().await, Counts::known(3, 1, 0, 1));
    t.time.advance(secs(3600));
    assert_eq!(t.counts().await, Counts::known(4, 0, 0, 1));
    assert_eq!(t.queue.counts(&t.jobs.dead_letters()).await.unwrap(), Counts::known(1, 0, 0, 1));
}

#[tokio::test]
async fn browsing_pages_through_all_in_order_of_ids_and_leases_none() {
    let t = Fixture::new();
    let ids = one_of_each(&t).await;
    t.time.advance(secs(1));
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = t.queue.browse(&t.jobs, Page::of(2).after(after)).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.message.id());
        seen.extend(page);
    }
    let mut states: Vec<_> =
        seen.iter().map(|b| (b.message.id(), b.state, b.delivery_count.unwrap())).collect();
    assert!(states.is_sorted_by_key(|(id, ..)| *id));
    states.sort_by_key(|(id, ..)| ids.iter().position(|known| known == id));
    let [ready, behind, delayed, leased, _] = ids[..] else { panic!() };
    assert_eq!(
        states,
        [
            (ready, MessageState::Ready, 0),
            (behind, MessageState::Ready, 0),
            (delayed, MessageState::Delayed, 0),
            (leased, MessageState::Leased, 1)
        ]
    );
    assert!(seen.iter().all(|browsed| browsed.age == secs(1)));
    assert_eq!(t.payloads().await, ["ready"]);
}

#[tokio::test]
async fn deletion_spares_what_is_leased() {
    let t = Fixture::new();
    let ids = one_of_each(&t).await;
    let outcomes: Vec<_> = t.queue.delete(&t.jobs, &ids).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        outcomes,
        [
            DeleteOutcome::Deleted,
            DeleteOutcome::Deleted,
            DeleteOutcome::Deleted,
            DeleteOutcome::Leased,
            DeleteOutcome::NotFound
        ]
    );
    assert_eq!(t.counts().await, Counts::known(0, 0, 1, 1));
    t.time.advance(secs(3600));
    assert_eq!(t.payloads().await, ["leased"]);
    let unknown = PartitionId::new("unknown").unwrap();
    assert_eq!(t.queue.delete(&unknown, &ids[..1]).await.remove(0).unwrap(), DeleteOutcome::NotFound);
}

#[tokio::test]
async fn purging_goes_by_steps_and_spares_what_is_leased() {
    let t = Fixture::new();
    one_of_each(&t).await;
    for n in 0..5 {
        t.push(MessageData::new(format!("member {n}")).with_group("h")).await;
    }
    let mut removed = Vec::new();
    loop {
        removed.push(t.queue.purge(&t.jobs, 3).await.unwrap());
        if removed.last() < Some(&3) {
            break;
        }
    }
    assert_eq!(removed, [3, 3, 2]);
    assert_eq!(t.counts().await, Counts::known(0, 0, 1, 1));
}

#[tokio::test]
async fn cancellation_removes_what_waits_and_tells_the_holder_at_each_extension() {
    let t = Fixture::new();
    let waits = t.push(MessageData::new("waits").with_delay(secs(9))).await;
    let held = t.push(MessageData::new("held")).await;
    let gone = MessageData::new("gone").id();
    let delivery = t.pull_one().await;
    let outcomes = t.queue.request_cancel(&t.jobs, &[waits, held, gone]).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [CancelOutcome::Removed, CancelOutcome::Requested, CancelOutcome::NotFound]);
    for _ in 0..2 {
        t.time.advance(LEASE / 2);
        assert_eq!(t.extend(&delivery, LEASE).await, ExtendOutcome::CancelRequested);
    }
    t.time.advance(LEASE);
    let next = t.pull_one().await;
    assert_eq!(
        t.extend(&next, LEASE).await,
        ExtendOutcome::CancelRequested,
        "the next holder learns of it too"
    );
    assert_eq!(t.remove(&next).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn a_paused_partition_delivers_nothing_while_push_and_settle_go_on() {
    let t = Fixture::new();
    t.push_all(&["a", "b"]).await;
    let held = t.pull(1).await;
    t.queue.set_paused(&t.jobs, true).await.unwrap();
    t.queue.client().set_paused(&t.jobs, true).await.unwrap();
    assert!(t.queue.client().is_paused(&t.jobs).await.unwrap());
    t.push_all(&["c"]).await;
    assert_eq!(t.release(&held[0]).await, SettleOutcome::Settled);
    assert!(t.pull(10).await.is_empty());
    t.queue.set_paused(&t.jobs, false).await.unwrap();
    assert!(!t.queue.is_paused(&t.jobs).await.unwrap());
    assert_eq!(t.payloads().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn partitions_are_listed_by_name_while_they_or_their_dead_letters_hold_something() {
    let store = &Fixture::new();
    let ids: Vec<_> = ["b", "a", "c", "d"].map(|name| PartitionId::new(name).unwrap()).into();
    let [second, first, resumed, paused] = &ids[..] else { panic!() };
    let names = async |after: Option<&PartitionId>, limit| {
        let listed = store.queue.partitions(Page::of(limit).after(after.cloned())).await.unwrap();
        listed.iter().map(|id| id.name().to_owned()).collect::<Vec<_>>()
    };
    store.queue.push(second, &[MessageData::new("1")]).await;
    store.queue.push(second, &[MessageData::new("2")]).await;
    store.queue.push(first, &[MessageData::new("3")]).await;
    store.queue.set_paused(paused, true).await.unwrap();
    store.queue.set_paused(resumed, true).await.unwrap();
    store.queue.set_paused(resumed, false).await.unwrap();
    let held = store.pull_from(second, 1).await;
    store.move_to(&held[0], &second.dead_letters()).await;
    assert_eq!(names(None, 10).await, ["a", "b", "d"]);
    assert_eq!(names(None, 2).await, ["a", "b"]);
    assert_eq!(names(Some(second), 2).await, ["d"]);
    assert_eq!(store.queue.purge(second, 10).await.unwrap(), 1);
    assert_eq!(names(Some(first), 10).await, ["b", "d"], "dead letters are left");
    assert_eq!(store.queue.purge(&second.dead_letters(), 10).await.unwrap(), 1);
    assert_eq!(names(Some(first), 10).await, ["d"]);
}

#[tokio::test]
async fn a_full_store_refuses_pushes_until_there_is_room() {
    let t = Fixture::with(MemoryConfig::default().with_max_messages(2));
    t.push_all(&["a", "b"]).await;
    let error = t.try_push(MessageData::new("c")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Full, RetryClass::Safe));
    let held = t.pull(2).await;
    assert_eq!(kind(t.try_push(MessageData::new("c")).await), ErrorKind::Full, "leased messages take room");
    let repeated = t.try_push(held[0].message.clone()).await.unwrap();
    assert_eq!(repeated, PushOutcome::Duplicate(Some(held[0].lease.id)), "a repetition needs none");
    t.move_to(&held[0], &t.jobs.dead_letters()).await;
    assert_eq!(kind(t.try_push(MessageData::new("c")).await), ErrorKind::Full, "so do dead letters");
    t.remove(&held[1]).await;
    t.push_all(&["c"]).await;
    t.queue.purge(&t.jobs, 10).await.unwrap();
    t.queue.purge(&t.jobs.dead_letters(), 10).await.unwrap();
    t.push_all(&["d", "e"]).await;
}

#[tokio::test]
async fn bytes_are_counted_exactly_through_every_change() {
    let message = MessageData::new("payload").with_header("name", "value").with_group("g").with_task_id("t");
    let bytes = MemoryQueue::new().encoded_len(&message);
    assert_eq!(bytes, 512 + 7 + 9 + 2);
    let t = Fixture::with(MemoryConfig::default().with_max_bytes(2 * bytes));
    t.push(message).await;
    let held = t.pull_one().await;
    let headers = |text: &str| Some([(text.to_owned(), String::new())].into());
    t.settle(&held, Action::Postpone { delay: secs(0), headers: headers("123456789+") }).await;
    // One byte more than the first message left: it fits no more.
    let same = MessageData::new("payload").with_header("name", "value").with_group("h").with_task_id("t");
    assert_eq!(kind(t.try_push(same.clone()).await), ErrorKind::Full);
    let held = t.pull_one().await;
    t.settle(&held, Action::Move { to: t.jobs.clone(), headers: headers("123456789") }).await;
    t.push(same).await;
    assert_eq!(kind(t.try_push(MessageData::new("")).await), ErrorKind::Full);
}

#[tokio::test]
async fn a_message_at_the_limit_works_and_one_over_is_too_large() {
    let t = Fixture::with(MemoryConfig::default().with_max_message_bytes(1000));
    assert_eq!(t.queue.capabilities().limits.message_bytes, 1000);
    let outcomes = t.queue.push(&t.jobs, &[MessageData::new([0; 489]), MessageData::new([0; 488])]).await;
    let [over, at] = <[_; 2]>::try_from(outcomes).unwrap();
    assert_eq!(kind(over), ErrorKind::TooLarge);
    assert!(matches!(at, Ok(PushOutcome::Stored(_))));
    let held = t.pull_one().await;
    let headers = Some([("x".to_owned(), String::new())].into());
    let postpone = Action::Postpone { delay: secs(0), headers: headers.clone() };
    let settlement = Settlement::new(held.lease.clone(), postpone);
    assert_eq!(kind(t.queue.settle(&[settlement]).await.remove(0)), ErrorKind::TooLarge);
    let death = Action::Move { to: t.jobs.dead_letters(), headers };
    assert_eq!(t.settle(&held, death).await, SettleOutcome::Settled, "the largest can die too");
}

#[tokio::test]
async fn every_call_after_close_is_closed_and_other_clients_go_on() {
    let t = Fixture::new();
    t.push_all(&["a", "b"]).await;
    let held = t.pull(1).await.remove(0);
    let other = t.queue.client();
    let q = &t.queue;
    q.close().await.unwrap();
    q.close().await.unwrap();

    let message = MessageData::new("c");
    let settlement = Settlement::new(held.lease.clone(), Action::Remove);
    let extension = Extension { lease: held.lease.clone(), duration: LEASE };
    let (settled, pulled) = q.exchange(std::slice::from_ref(&settlement), &t.jobs, now(1)).await;
    let pushed = q.push(&t.jobs, &[message.clone(), message]).await;
    assert_eq!(pushed.len(), 2);
    for outcome in pushed {
        assert_eq!(kind(outcome), ErrorKind::Closed);
    }
    let kinds = [
        kind(settled.into_iter().next().unwrap()),
        kind(pulled),
        kind(q.pull(&t.jobs, now(1)).await),
        kind(q.settle(std::slice::from_ref(&settlement)).await.remove(0)),
        kind(q.extend(&[extension]).await.remove(0)),
        kind(q.init().await),
        kind(q.check().await),
        kind(q.partitions(Page::of(1)).await),
        kind(q.counts(&t.jobs).await),
        kind(q.browse(&t.jobs, Page::of(1)).await),
        kind(q.delete(&t.jobs, &[held.lease.id]).await.remove(0)),
        kind(q.purge(&t.jobs, 1).await),
        kind(q.request_cancel(&t.jobs, &[held.lease.id]).await.remove(0)),
        kind(q.set_paused(&t.jobs, true).await),
        kind(q.is_paused(&t.jobs).await),
    ];
    assert_eq!(kinds, [ErrorKind::Closed; 15]);
    assert_eq!(q.name(), "memory");

    other.check().await.unwrap();
    assert_eq!(other.settle(&[settlement]).await.remove(0).unwrap(), SettleOutcome::Settled);
    assert_eq!(other.pull(&t.jobs, now(10)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_url_opens_a_fresh_store_with_its_limits() {
    let registry = Registry::new().with(backend());
    let open = |url: &'static str| {
        let registry = registry.clone();
        async move { registry.open(url).await }
    };
    let jobs = PartitionId::new("jobs").unwrap();
    let one = open("memory:?max_messages=1&max_bytes=600&max_message_bytes=560").await.unwrap();
    assert_eq!(one.capabilities().limits.message_bytes, 560);
    assert!(one.push(&jobs, &[MessageData::new("a")]).await.remove(0).is_ok());
    assert_eq!(kind(one.push(&jobs, &[MessageData::new("b")]).await.remove(0)), ErrorKind::Full);
    let two: Arc<dyn Storage> = open("memory:").await.unwrap();
    assert!(two.pull(&jobs, now(1)).await.unwrap().is_empty());
    assert_eq!(two.capabilities(), MemoryQueue::new().capabilities());
    assert_eq!(open("memory:?max_messages=many").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn declared_url_defaults_are_those_of_the_configuration() {
    let defaults: Vec<u64> = backend().options.iter().map(|option| option.default.parse().unwrap()).collect();
    let [messages, ended] = [MemoryConfig::DEFAULT_MAX_MESSAGES, MemoryConfig::DEFAULT_MAX_ENDED]
        .map(|count| u64::try_from(count).unwrap());
    let [bytes, message_bytes] = [MemoryConfig::DEFAULT_MAX_BYTES, MemoryConfig::DEFAULT_MAX_MESSAGE_BYTES];
    assert_eq!(defaults, [messages, bytes, message_bytes, ended]);
}

#[tokio::test]
async fn delayed_members_that_are_made_due_while_they_are_set_aside_all_come_in_push_order() {
    let t = Fixture::new();
    let member = |text: &str| MessageData::new(text).with_group("g");
    let ids = [t.push(member("1").with_delay(LEASE)).await, t.push(member("2").with_delay(LEASE)).await];
    t.push(member("3")).await;
    for change in [Amend::new().disable(), Amend::new().now(), Amend::new().enable()] {
        AmendQueueStorage::amend(&t.queue, &t.jobs, &ids, &change).await;
    }
    for text in ["3", "1", "2"] {
        let held = t.pull_one().await;
        assert_eq!(held.message.payload(), text.as_bytes());
        t.remove(&held).await;
    }
}
