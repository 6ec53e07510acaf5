//! Pushes whose key another message has, and which change that one or go behind it.

use std::time::Duration;

use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue::{
    DeleteOutcome, ErrorKind, Headers, MessageData, MessageId, OnDuplicate, Page, PartitionId, PushOutcome,
    SettleOutcome,
};
use anyqueue_redis::RedisQueue;
use redis::Value;

use crate::common::{Bed, LEASE, fill, in_time, messages, part, pull, pull_wait, push, settle, texts};
use crate::successors::{bring, settle_one};

/// What a few calls take no longer than, also on a busy machine.
const SHORT: Duration = Duration::from_millis(400);

pub(crate) fn keyed(payload: impl AsRef<[u8]>, on_duplicate: OnDuplicate) -> MessageData {
    MessageData::new(payload).with_dedup_key("k").with_on_duplicate(on_duplicate)
}

pub(crate) async fn push_one(queue: &RedisQueue, message: MessageData) -> PushOutcome {
    push_to(queue, &part("p"), message).await
}

async fn push_to(queue: &RedisQueue, p: &PartitionId, message: MessageData) -> PushOutcome {
    queue.push(p, &[message]).await.remove(0).unwrap()
}

fn duplicate(id: MessageId) -> PushOutcome {
    PushOutcome::Duplicate(Some(id))
}

/// Pushes the first of a key, and returns its id.
async fn push_first(queue: &RedisQueue, message: MessageData) -> MessageId {
    let id = message.id();
    assert_eq!(push_one(queue, message).await, PushOutcome::Stored(id));
    id
}

/// Small, bulky and large ones take each other's place, in the hash of their moment and outside.
#[tokio::test]
async fn content_of_any_size_takes_the_place_of_any_other_and_nothing_of_it_stays() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let options = keyed("", OnDuplicate::Keep)
        .with_group("g")
        .with_priority(7)
        .with_max_retries(3)
        .with_max_duration(LEASE)
        .with_time_to_live(10 * LEASE)
        .options()
        .clone();
    for neighbours in [0, 40] {
        let mut id = *MessageId::new().as_bytes();
        let mut next = |payload| {
            id[15] = id[15].wrapping_add(1); // of one moment
            MessageData::with_id(MessageId::from_bytes(id), payload)
        };
        push(&queue, &p, &(0..neighbours).map(|_| next("beside")).collect::<Vec<_>>()).await;
        let first =
            next("first").with_options(options.clone()).with_task_id("first").with_header("old", "yes");
        push(&queue, &p, std::slice::from_ref(&first)).await;
        let own_hash = bed.run(&format!("ZCARD {}:{{p}}:windows", bed.prefix)).await;
        assert_eq!(own_hash, Value::Int(i64::from(neighbours > 0)));
        for (number, size) in [20_000, 100, 300_000, 30_000, 0, 40_000, 15].into_iter().enumerate() {
            let newer = keyed(vec![b'0' + u8::try_from(number).unwrap(); size], OnDuplicate::Replace)
                .with_header("number", number.to_string())
                .with_session_id("s")
                .with_priority(1)
                .with_max_retries(9);
            assert_eq!(push_one(&queue, newer.clone()).await, PushOutcome::Replaced(first.id()));
            let bulky = i64::from(size > 16 * 1024);
            assert_eq!(bed.run(&format!("HLEN {}:{{p}}:bulky", bed.prefix)).await, Value::Int(bulky));
            let shown = queue.browse(&p, Page::of(100)).await.unwrap();
            let shown = shown.iter().find(|shown| shown.message.id() == first.id()).unwrap();
            assert_eq!(shown.message.payload(), newer.payload());
            assert_eq!(shown.message.headers(), newer.headers());
            assert_eq!((shown.message.task_id(), shown.message.session_id()), (None, Some("s")));
            let mut own = options.clone();
            own.expiry = shown.message.options().expiry; // the same, in another form
            assert!(own.expiry.is_some());
            assert_eq!(shown.message.options(), &own);
        }
        let held = pull(&queue, &p, 100).await;
        assert_eq!(held[0].message.payload(), [b'6'; 15]);
        settle(&queue, &held, Action::Remove).await;
    }
    let left: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{}:{{p}}:*", bed.prefix))
        .query_async(&mut bed.connect().await)
        .await
        .unwrap();
    let kinds = ["state", "leases"].map(|kind| format!("{}:{{p}}:{kind}", bed.prefix));
    assert!(left.len() == 2 && left.iter().all(|key| kinds.contains(key)), "{left:?}");
}

#[tokio::test]
async fn a_postponed_message_gets_new_headers_and_keeps_its_count_and_its_time() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let (p, (id, newer, replaced, early)) = in_time(3 * SHORT, async |p| {
        let first = keyed("first", OnDuplicate::Keep).with_header("of", "the first");
        let id = first.id();
        push(&queue, &p, &[first]).await;
        settle(&queue, &pull(&queue, &p, 1).await, Action::Retry).await;
        let held = pull(&queue, &p, 1).await;
        let headers = Headers::from([("of".to_owned(), "the postponement".to_owned())]);
        settle(&queue, &held, Action::Postpone { delay: 3 * SHORT, headers: Some(headers) }).await;
        tokio::time::sleep(SHORT).await;
        let newer = keyed("newer", OnDuplicate::Replace).with_header("newer", "yes");
        let replaced = push_to(&queue, &p, newer.clone()).await;
        (id, newer, replaced, pull(&queue, &p, 1).await)
    })
    .await;
    assert_eq!(replaced, PushOutcome::Replaced(id));
    assert!(early.is_empty(), "it is not due");
    let back = pull_wait(&queue, &p, 1).await.remove(0);
    assert_eq!((back.message.id(), back.message.payload()), (id, newer.payload()));
    assert_eq!(back.message.headers(), newer.headers());
    assert_eq!(back.delivery_count, Some(2));
    assert!(back.age >= 3 * SHORT, "{:?}", back.age);
}

/// Nobody asked the server for anything since.
#[tokio::test]
async fn what_was_held_under_a_lease_that_has_ended_waits() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let (p, (id, held, beside)) = in_time(SHORT, async |p| {
        let first = keyed("first", OnDuplicate::Keep);
        let id = first.id();
        push(&queue, &p, &[first]).await;
        let held = queue.pull(&p, PullRequest::new(1, Duration::ZERO, SHORT)).await.unwrap();
        (id, held, push_to(&queue, &p, keyed("beside", OnDuplicate::Replace)).await)
    })
    .await;
    assert_eq!(beside, duplicate(id));
    tokio::time::sleep(2 * SHORT).await;
    for no in [OnDuplicate::Behind, OnDuplicate::Earlier, OnDuplicate::Keep] {
        assert_eq!(push_to(&queue, &p, keyed("no", no)).await, duplicate(id));
    }
    let newer = keyed("newer", OnDuplicate::Replace);
    assert_eq!(push_to(&queue, &p, newer).await, PushOutcome::Replaced(id));
    let lost = settle_one(&queue, bring(&held[0], Action::Remove, [])).await.unwrap();
    assert_eq!(lost, SettleOutcome::Lost);
    let back = pull(&queue, &p, 9).await;
    assert_eq!((texts(&back), back[0].delivery_count), (vec!["newer".to_owned()], Some(2)));
}

/// However it goes on: the key is that of the one behind it.
#[tokio::test]
async fn a_held_message_that_lost_its_key_does_not_set_it_free() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let ends = [
        Action::Remove,
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to: p.dead_letters(), headers: None },
        Action::Move { to: part("other"), headers: None },
    ];
    for group in [None, Some("g")] {
        let make = |text: &str| {
            let message = keyed(text, OnDuplicate::Behind);
            if let Some(group) = group { message.with_group(group) } else { message }
        };
        for end in &ends {
            let first = push_first(&queue, make("first")).await;
            let held = pull(&queue, &p, 1).await;
            let second = push_first(&queue, make("second")).await;
            settle(&queue, &held, end.clone()).await;
            assert_eq!(push_one(&queue, make("third")).await, duplicate(second), "{end:?}");
            if let Action::Release | Action::Retry | Action::Postpone { .. } = end {
                let again = pull(&queue, &p, 1).await;
                let is_first = again[0].message.id() == first;
                settle(&queue, &again, Action::Release).await;
                assert_eq!(push_one(&queue, make("fourth")).await, duplicate(second));
                if is_first {
                    let deleted = queue.delete(&p, &[first]).await.remove(0).unwrap();
                    assert_eq!(deleted, DeleteOutcome::Deleted);
                } else {
                    let next = pull(&queue, &p, 2).await;
                    let (old, _): (Vec<_>, Vec<_>) = next.into_iter().partition(|one| one.lease.id == first);
                    settle(&queue, &old, Action::Remove).await;
                }
            }
            let newer = keyed("newer", OnDuplicate::Replace);
            let outcome = push_one(&queue, newer).await;
            let waits = outcome == PushOutcome::Replaced(second);
            assert!(waits || outcome == duplicate(second), "{end:?}: {outcome:?}");
            queue.delete(&p, &[second]).await.remove(0).unwrap();
            queue.purge(&p, 10).await.unwrap();
            let held = queue.counts(&p).await.unwrap().leased;
            assert_eq!(held.unwrap() > 0, !waits, "{end:?}");
            bed.run("FLUSHALL").await;
        }
    }
}

#[tokio::test]
async fn what_becomes_due_earlier_wakes_who_waits_and_stands_at_the_end_of_its_level() {
    let Some(bed) = Bed::find().await else { return };
    let builder = bed.builder().poll_interval(Duration::from_mins(1));
    let (queue, other, p) = (bed.open().await, builder.open().await.unwrap(), part("p"));
    for delay in [Duration::ZERO, SHORT] {
        let id = push_first(&queue, keyed("late", OnDuplicate::Keep).with_delay(LEASE)).await;
        let earlier = async {
            tokio::time::sleep(3 * SHORT).await;
            push_one(&queue, keyed("early", OnDuplicate::Earlier).with_delay(delay)).await
        };
        let (pulled, outcome) = tokio::join!(pull_wait(&other, &p, 1), earlier);
        assert_eq!((texts(&pulled), outcome), (vec!["early".to_owned()], PushOutcome::Replaced(id)));
        settle(&queue, &pulled, Action::Remove).await;
    }
    let id = push_first(&queue, keyed("late", OnDuplicate::Keep).with_delay(LEASE).with_priority(3)).await;
    push(&queue, &p, &messages(&["low"])).await;
    fill(&queue, &p, 2, |message| message.with_priority(3)).await;
    assert_eq!(push_one(&queue, keyed("early", OnDuplicate::Earlier)).await, PushOutcome::Replaced(id));
    let order = texts(&pull(&queue, &p, 9).await);
    assert_eq!(order[2..], ["early", "low"]);
}

/// In one call: what was to be the next that is due is due no more when the call ends.
#[tokio::test]
async fn an_earlier_one_of_a_group_waits_behind_the_others_of_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &[MessageData::new("head").with_group("g")]).await;
    let both = [
        keyed("late", OnDuplicate::Keep).with_group("g").with_delay(LEASE),
        keyed("early", OnDuplicate::Earlier).with_group("g"),
    ];
    let outcomes: Vec<_> = queue.push(&p, &both).await.into_iter().map(Result::unwrap).collect();
    let id = both[0].id();
    assert_eq!(outcomes, [PushOutcome::Stored(id), PushOutcome::Replaced(id)]);
    assert_eq!(queue.counts(&p).await.unwrap().delayed, Some(0));
    assert_eq!(push_one(&queue, keyed("last", OnDuplicate::Replace)).await, PushOutcome::Replaced(id));
    for text in ["head", "last"] {
        let held = pull(&queue, &p, 9).await;
        assert_eq!(texts(&held), [text]);
        settle(&queue, &held, Action::Remove).await;
    }
}

/// Also where a message comes again in one call: what is done with it then depends on what came between.
#[tokio::test]
async fn each_of_a_batch_sees_what_those_before_it_did() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let [a, b] = ["a", "b"].map(|text| keyed(text, OnDuplicate::Replace));
    let plain = MessageData::new("plain");
    let batch = [a.clone(), b.clone(), a.clone(), plain.clone(), plain.clone(), b.clone()];
    let outcomes: Vec<_> = queue.push(&p, &batch).await.into_iter().map(Result::unwrap).collect();
    let (replaced, stored) = (PushOutcome::Replaced(a.id()), PushOutcome::Stored);
    let expected =
        [stored(a.id()), replaced, duplicate(a.id()), stored(plain.id()), duplicate(plain.id()), replaced];
    assert_eq!(outcomes, expected);
    let once = keyed("c", OnDuplicate::Keep);
    let twice = [once.clone(), once.with_on_duplicate(OnDuplicate::Replace)];
    let outcomes: Vec<_> = queue.push(&p, &twice).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [duplicate(a.id()), replaced]);
    // Dead letters have no keys, and a message that is not valid is left out.
    let invalid = keyed("x", OnDuplicate::Replace).with_priority(200);
    let dead = [invalid, a.clone(), a.clone(), plain.clone(), plain];
    let mut outcomes = queue.push(&part("q").dead_letters(), &dead).await;
    assert_eq!(outcomes.remove(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(outcomes.remove(1).unwrap(), duplicate(a.id()));
    assert_eq!(pull(&queue, &part("q").dead_letters(), 9).await.len(), 2);
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["c", "plain"]);
}

#[tokio::test]
async fn a_successor_does_with_a_taken_key_what_a_push_after_the_end_would_do() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for (end, how, left) in [
        (Action::Release, OnDuplicate::Replace, "then"),
        (Action::Retry, OnDuplicate::Behind, "first"),
        (Action::Postpone { delay: LEASE, headers: None }, OnDuplicate::Earlier, "then"),
        (Action::Remove, OnDuplicate::Replace, "then"),
    ] {
        push_first(&queue, keyed("first", OnDuplicate::Keep)).await;
        let held = pull(&queue, &p, 1).await;
        let waiting = keyed("waiting", OnDuplicate::Keep);
        push(&queue, &part("next"), &[waiting]).await;
        let then = [("p", keyed("then", how)), ("next", keyed(vec![b'.'; 20_000], OnDuplicate::Replace))];
        let settlement = bring(&held[0], end.clone(), then);
        let request = PullRequest::new(1, Duration::ZERO, LEASE);
        let (settled, pulled) = queue.exchange(&[settlement], &p, request).await;
        assert_eq!(settled[0].as_ref().unwrap(), &SettleOutcome::Settled);
        let pulled = pulled.unwrap();
        assert_eq!(texts(&pulled), [left], "{end:?}");
        settle(&queue, &pulled, Action::Remove).await;
        assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
        let next = pull(&queue, &part("next"), 9).await;
        assert_eq!((next.len(), next[0].message.payload().len()), (1, 20_000));
        settle(&queue, &next, Action::Remove).await;
    }
}
