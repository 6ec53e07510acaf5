//! Stored messages that cannot be read: what is damaged dies with its bytes, what a newer release wrote is left to newer consumers.

use anyqueue::Page;
use std::time::Duration;

use anyqueue::adapter::{Action, InspectQueueStorage, RawDelivery};
use anyqueue::{
    DeleteOutcome, ErrorKind, Headers, MessageData, MessageId, PartitionId, Queue,
    QueueMessageStatus::Processed, SettleOutcome,
};
use anyqueue_sqlite::SqliteQueue;
use rusqlite::Connection;

use crate::common::{
    Bed, SOON, drain, message, move_to, part, postpone, pull, pull_wait, push, push_text, settle, texts,
};

/// What a cut envelope, a newer one, and another message's is made of a right one.
const CUT: &str = "substr(body, 1, length(body) - 3)";
const NEWER: &str = "x'F6415102' || substr(body, 5)";
const ANOTHERS: &str = "(SELECT body FROM anyqueue_message ORDER BY seq DESC LIMIT 1)";

/// Changes what is stored, behind the queue's back. Returns what is stored then.
fn change(bed: &Bed, id: MessageId, to: &str) -> Vec<u8> {
    let conn = Connection::open(bed.path()).unwrap();
    let update = format!("UPDATE anyqueue_message SET body = CAST({to} AS BLOB) WHERE id = ? RETURNING body");
    conn.query_row(&update, [id.as_bytes()], |row| row.get(0)).unwrap()
}

fn restore(bed: &Bed, id: MessageId, whole: &[u8]) {
    let conn = Connection::open(bed.path()).unwrap();
    let update = "UPDATE anyqueue_message SET body = ? WHERE id = ?";
    assert_eq!(conn.execute(update, (whole, id.as_bytes())).unwrap(), 1);
}

fn stored(bed: &Bed, id: MessageId) -> Vec<u8> {
    let conn = Connection::open(bed.path()).unwrap();
    let select = "SELECT body FROM anyqueue_message WHERE id = ?";
    conn.query_row(select, [id.as_bytes()], |row| row.get(0)).unwrap()
}

fn why(held: &RawDelivery) -> Option<ErrorKind> {
    held.unreadable.as_ref().map(anyqueue::Error::kind)
}

async fn until_dead(queue: &SqliteQueue, p: &PartitionId, count: u64) {
    let deadline = std::time::Instant::now() + SOON;
    while queue.counts(p).await.unwrap().dead != Some(count) {
        assert!(std::time::Instant::now() < deadline, "{:?}", queue.counts(p).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_in_the_middle_of_a_pull_comes_as_it_is_stored_and_is_counted() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["first", "cut", "mistaken", "last"]).await;
    let cut = change(&bed, ids[1], CUT);
    let mistaken = change(&bed, ids[2], ANOTHERS);
    for count in 1..=3 {
        let held = pull(&bed.queue, &p, 10).await;
        let corrupt = Some(ErrorKind::Corrupt);
        assert_eq!(held.iter().map(why).collect::<Vec<_>>(), [None, corrupt, corrupt, None]);
        assert_eq!(held.iter().map(|held| held.lease.id).collect::<Vec<_>>(), ids);
        assert!(held.iter().all(|held| held.delivery_count == Some(count)), "{held:?}");
        assert_eq!([held[1].message.payload(), held[2].message.payload()], [&cut[..], &mistaken[..]]);
        for held in &held {
            assert_eq!(settle(&bed.queue, &held.lease, Action::Retry).await, SettleOutcome::Settled);
        }
    }
    assert_eq!(bed.queue.delete(&p, &ids[1..2]).await[0].clone().unwrap(), DeleteOutcome::Deleted);
    assert_eq!(bed.queue.purge(&p, 10).await.unwrap(), 3);
}

#[tokio::test]
async fn a_damaged_message_dies_with_its_bytes_and_frees_its_group_and_its_key() {
    let bed = Bed::new().await;
    let (p, queue) = (part("p"), Queue::new(bed.queue.clone()).unwrap());
    let grouped = |text| message(text).with_group("g");
    let broken = grouped("broken").with_dedup_key("k").with_header("old", "1");
    push(&bed.queue, &p, &[broken.clone(), grouped("next")]).await;
    let bytes = change(&bed, broken.id(), CUT);
    let shown = bed.queue.browse(&p, Page::of(10)).await.unwrap();
    assert_eq!(shown[0].unreadable.as_ref().unwrap().kind(), ErrorKind::Corrupt);
    assert_eq!((shown[0].message.id(), shown[0].message.payload()), (broken.id(), &bytes[..]));

    let mut held = queue.pull("p").wait(SOON).await.unwrap();
    assert_eq!((held.len(), held[0].payload()), (1, &b"next"[..]), "the group goes on");
    held[0].settle(Processed).await.unwrap();
    let dead = queue.dead_letters("p").unwrap();
    let letters = dead.list(Page::of(10)).await.unwrap();
    assert_eq!((letters[0].message.payload(), letters[0].deliveries), (&bytes[..], Some(1)));
    assert!(letters[0].reason.as_ref().unwrap().starts_with("cannot be read: "), "{letters:?}");
    push(&bed.queue, &p, &[message("again").with_dedup_key("k")]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["again"]);

    // Put back it dies again, as long as nobody repairs it; and what was stored is still there.
    assert_eq!(dead.redrive().await.unwrap().moved, 1);
    assert!(queue.pull("p").await.unwrap().is_empty());
    until_dead(&bed.queue, &p, 1).await;
    assert_eq!(stored(&bed, broken.id()), bytes);
    let whole =
        anyqueue::adapter::Envelope::new(broken.clone(), std::time::SystemTime::now()).encode().unwrap();
    restore(&bed, broken.id(), &whole);
    assert_eq!(dead.redrive().await.unwrap().moved, 1);
    let back = queue.pull("p").wait(SOON).await.unwrap().remove(0);
    assert_eq!((back.payload(), back.delivery_count()), (&b"broken"[..], Some(1)));
}

#[tokio::test]
async fn new_headers_are_kept_beside_what_cannot_be_read_and_inside_what_can() {
    let bed = Bed::new().await;
    let (p, other) = (part("p"), part("other"));
    let id = push(&bed.queue, &p, &[message("x").with_header("old", "1")]).await[0];
    let (whole, bytes) = (stored(&bed, id), change(&bed, id, CUT));
    let headers = |value: &str| Some(Headers::from([("new".to_owned(), value.to_owned())]));
    let steps = [
        (p.clone(), Action::Postpone { delay: Duration::ZERO, headers: headers("postponed") }),
        (p.clone(), Action::Move { to: p.dead_letters(), headers: headers("dead") }),
        (p.dead_letters(), Action::Move { to: other.clone(), headers: headers("other") }),
        (other.clone(), move_to(&p)),
    ];
    for (at, action) in steps {
        let held = pull(&bed.queue, &at, 1).await;
        assert_eq!((held[0].message.payload(), why(&held[0])), (&bytes[..], Some(ErrorKind::Corrupt)));
        assert_eq!(settle(&bed.queue, &held[0].lease, action).await, SettleOutcome::Settled);
        assert_eq!(stored(&bed, id), bytes);
    }
    let held = pull(&bed.queue, &p, 1).await;
    assert_eq!(held[0].message.headers()["new"], "other");
    settle(&bed.queue, &held[0].lease, Action::Release).await;
    restore(&bed, id, &whole);
    let held = pull(&bed.queue, &p, 1).await;
    assert_eq!((texts(&held), held[0].message.headers()), (vec!["x".to_owned()], &headers("other").unwrap()));
    settle(&bed.queue, &held[0].lease, Action::Postpone { delay: Duration::ZERO, headers: headers("last") })
        .await;
    let conn = Connection::open(bed.path()).unwrap();
    let beside: Option<Vec<u8>> =
        conn.query_row("SELECT headers FROM anyqueue_message", [], |row| row.get(0)).unwrap();
    assert_eq!(beside, None, "they are where they belong");
    assert_eq!(pull(&bed.queue, &p, 1).await[0].message.headers(), &headers("last").unwrap());
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_left_to_newer_consumers() {
    let (bed, clock) = Bed::still().await;
    let (p, queue) = (part("p"), Queue::builder(bed.queue.clone()).clock(clock.clock()).build().unwrap());
    let newer = MessageData::new("newer");
    push(&bed.queue, &p, &[newer.clone(), message("known")]).await;
    change(&bed, newer.id(), NEWER);
    let mut held = queue.pull("p").max(10).await.unwrap();
    assert_eq!((held.len(), held[0].payload()), (1, &b"known"[..]));
    held[0].settle(Processed).await.unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while bed.queue.counts(&p).await.unwrap().delayed != Some(1) {
        assert!(std::time::Instant::now() < deadline, "{:?}", bed.queue.counts(&p).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shown = bed.queue.browse(&p, Page::of(10)).await.unwrap();
    assert_eq!(shown[0].unreadable.as_ref().unwrap().kind(), ErrorKind::Incompatible);
    // Such a consumer comes.
    change(&bed, newer.id(), "x'F6415101' || substr(body, 5)");
    clock.advance(Duration::from_secs(5));
    let held = pull_wait(&bed.queue, &p, 1).await;
    assert_eq!((texts(&held), held[0].delivery_count), (vec!["newer".to_owned()], Some(1)));
    settle(&bed.queue, &held[0].lease, postpone(Duration::ZERO)).await;
    assert_eq!(bed.queue.counts(&p).await.unwrap().dead, Some(0));
}
