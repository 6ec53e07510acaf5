//! Messages whose bodies cannot be read: what is damaged dies with its bytes, what a newer release wrote is left to newer consumers.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue::{ErrorKind, Headers, MessageData, Queue, QueueMessageStatus::Processed};
use anyqueue_sqs::SqsQueue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as TEXT;

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, settle, settled, take};
use crate::wire::Trick;

const SENT: &str = "SendMessageBatch";

fn cut(body: &str) -> String {
    let envelope = TEXT.decode(body).unwrap();
    TEXT.encode(&envelope[..envelope.len() - 4])
}

/// No text of this alphabet any more.
fn scrambled(body: &str) -> String {
    format!("{}!{}", &body[..20], &body[21..])
}

fn newer(body: &str) -> String {
    let mut envelope = TEXT.decode(body).unwrap();
    envelope[3] += 1;
    TEXT.encode(envelope)
}

fn why(held: &RawDelivery) -> Option<ErrorKind> {
    held.unreadable.as_ref().map(anyqueue::Error::kind)
}

fn headers(value: &str) -> Headers {
    Headers::from([("new".to_owned(), value.to_owned())])
}

async fn until_dead(queue: &SqsQueue, count: u64) {
    let deadline = Instant::now() + SOON;
    while queue.counts(&part("p")).await.unwrap().dead != Some(count) {
        assert!(Instant::now() < deadline, "{:?}", queue.counts(&part("p")).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn they_come_among_others_as_they_are_stored_and_are_counted() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.wire.play(SENT, Trick::Spoil(1, cut));
    let sent = messages(3);
    push(&queue, "p", &sent).await;
    bed.wire.play(SENT, Trick::Spoil(0, scrambled));
    push(&queue, "p", &messages(1)).await;
    let mut seen = Vec::new();
    for count in 1..=2 {
        let held = take(&queue, &part("p"), 4).await;
        assert!(held.iter().all(|held| held.delivery_count == Some(count)), "{held:?}");
        let mut odd: Vec<_> = held.iter().filter(|held| why(held).is_some()).collect();
        odd.sort_by_key(|held| held.lease.id);
        assert_eq!(odd.iter().map(|held| why(held)).collect::<Vec<_>>(), [Some(ErrorKind::Corrupt); 2]);
        seen.push(odd.iter().map(|held| held.message.clone()).collect::<Vec<_>>());
        assert!(settled(&settle(&queue, &held, &Action::Retry).await));
    }
    assert_eq!(seen[0], seen[1], "the same ids and bytes at each delivery");
    let bytes = |end: &str| seen[0].iter().any(|message| message.payload().ends_with(end.as_bytes()));
    assert!(seen[0].iter().any(|message| message.payload().starts_with(b"\xF6AQ\x01")), "{seen:?}");
    assert!(!bytes("message 1"), "it was cut");
}

#[tokio::test]
async fn a_copy_leaves_what_is_stored_as_it_is_and_has_the_new_headers_beside_it() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    bed.wire.play(SENT, Trick::Spoil(0, cut));
    push(&queue, "p", &messages(1)).await;
    let stored = bed.wire.seen(SENT)[0].body["Entries"][0]["MessageBody"].as_str().unwrap().to_owned();
    let (p, dead, other) = (part("p"), part("p").dead_letters(), part("other"));
    let steps = [
        (p.clone(), 1, Action::Postpone { delay: Duration::ZERO, headers: Some(headers("postponed")) }),
        (p.clone(), 2, Action::Move { to: dead.clone(), headers: Some(headers("dead")) }),
        (dead, 1, Action::Move { to: other.clone(), headers: Some(headers("other")) }),
    ];
    let mut ids = Vec::new();
    for (at, count, action) in steps {
        let held = take(&queue, &at, 1).await;
        assert_eq!((why(&held[0]), held[0].delivery_count), (Some(ErrorKind::Corrupt), Some(count)));
        ids.push(held[0].lease.id);
        assert!(settled(&settle(&queue, &held, &action).await));
        let copy = bed.wire.seen(SENT).pop().unwrap();
        let body = copy.body["Entries"][0]["MessageBody"].as_str().unwrap().to_owned();
        assert!(body.starts_with(&format!("{}+0+", cut(&stored))), "{body}");
    }
    let held = take(&queue, &other, 1).await;
    assert_eq!(held[0].message.headers()["new"], "other");
    ids.push(held[0].lease.id);
    ids.dedup();
    assert_eq!(ids.len(), 1, "the id stays the same");
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    nothing(&queue, &other).await;
}

#[tokio::test]
async fn a_damaged_message_dies_with_its_bytes_and_can_be_put_back() {
    let Some(bed) = Bed::find().await else { return };
    let storage = bed.open().await;
    let queue = Queue::new(storage.clone()).unwrap();
    bed.wire.play(SENT, Trick::Spoil(0, cut));
    push(&storage, "p", &messages(2)).await;
    let mut good = Vec::new();
    while good.is_empty() {
        good = queue.pull("p").max(10).wait(SOON).await.unwrap();
    }
    assert_eq!((good.len(), good[0].payload()), (1, &b"message 1"[..]));
    good[0].settle(Processed).await.unwrap();
    until_dead(&storage, 1).await;
    let dead = queue.dead_letters("p").unwrap();
    let redriven = dead.redrive().await.unwrap();
    assert_eq!((redriven.moved, queue.pull("p").wait(Duration::from_secs(1)).await.unwrap().len()), (1, 0));
    until_dead(&storage, 1).await;
    let held = take(&storage, &part("p").dead_letters(), 1).await;
    let reason = &held[0].message.headers()[anyqueue::header::DEAD_REASON];
    assert!(reason.starts_with("cannot be read: "), "{reason}");
    assert_eq!(why(&held[0]), Some(ErrorKind::Corrupt));
    assert!(held[0].message.payload().starts_with(b"\xF6AQ\x01"));
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_hidden_and_not_put_away() {
    let Some(bed) = Bed::find().await else { return };
    let storage = bed.open().await;
    let queue = Queue::new(storage.clone()).unwrap();
    bed.wire.play(SENT, Trick::Spoil(0, newer));
    push(&storage, "p", &messages(1)).await;
    assert!(queue.pull("p").wait(Duration::from_secs(2)).await.unwrap().is_empty());
    let held = take(&storage, &part("p"), 1).await;
    assert_eq!(why(&held[0]), Some(ErrorKind::Incompatible));
    let hidden = bed.wire.seen("ChangeMessageVisibilityBatch");
    assert!(hidden.iter().any(|seen| seen.body["Entries"][0]["VisibilityTimeout"] == 5), "{hidden:?}");
    assert!(settled(&settle(&storage, &held, &Action::Remove).await));
    nothing(&storage, &part("p").dead_letters()).await;
}

#[tokio::test]
async fn in_a_group_it_is_the_head_until_it_is_dead_and_joins_it_again() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().fifo(true).open().await.unwrap();
    let of_group = |text: &str| MessageData::new(text).with_group("g");
    let sent = [of_group("first"), of_group("second"), MessageData::new("alone")];
    bed.wire.play(SENT, Trick::Spoil(0, cut));
    push(&queue, "p", &sent[..2]).await;
    let held = queue.pull(&part("p"), PullRequest::new(10, SOON, LEASE)).await.unwrap();
    assert_eq!((held.len(), why(&held[0])), (1, Some(ErrorKind::Corrupt)));
    let dead = part("p").dead_letters();
    let die = Action::Move { to: dead.clone(), headers: Some(headers("dead")) };
    assert!(settled(&settle(&queue, &held, &die).await));
    let second = take(&queue, &part("p"), 1).await;
    assert_eq!(second[0].lease.id, sent[1].id());
    assert!(settled(&settle(&queue, &second, &Action::Remove).await));
    let held = take(&queue, &dead, 1).await;
    assert_eq!(held[0].message.options().group.as_deref(), Some("g"));
    assert!(settled(&settle(&queue, &held, &Action::Move { to: part("p"), headers: None }).await));
    let copy = bed.wire.seen(SENT).pop().unwrap();
    assert_eq!(copy.body["Entries"][0]["MessageGroupId"], "g-g");
    let held = take(&queue, &part("p"), 1).await;
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));

    bed.wire.play(SENT, Trick::Spoil(0, cut));
    push(&queue, "q", &sent[2..]).await;
    let held = take(&queue, &part("q"), 1).await;
    assert_eq!((held[0].lease.id, why(&held[0])), (sent[2].id(), Some(ErrorKind::Corrupt)));
}
