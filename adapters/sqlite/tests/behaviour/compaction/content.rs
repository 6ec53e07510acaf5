//! What waits gets new content; what is held, what cannot be read and what there is no room for stays.

use std::time::Duration;

use super::*;
use anyqueue::PushOutcome::{Duplicate, Replaced, Stored};
use anyqueue::adapter::{Action, InspectQueueStorage};
use anyqueue::{ErrorKind, ManualClock, Page, SettleOutcome, Skew};

#[tokio::test]
async fn what_is_replaced_keeps_all_but_its_content() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let first =
        keyed("first", OnDuplicate::Keep).with_task_id("task").with_header("old", "1").with_priority(3);
    let first =
        first.with_group("g").with_max_retries(7).with_max_duration(LEASE).with_time_to_live(LEASE * 4);
    push(&bed.queue, &p, std::slice::from_ref(&first)).await;
    let held = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &held[0].lease, Action::Retry).await;
    clock.advance(SECOND);
    let newer = replacing("newer").with_session_id("s").with_header("new", "2").with_priority(9);
    let newer = newer.with_time_to_live(SECOND).with_delay(LEASE).with_group("another");
    assert_eq!(push_one(&bed.queue, &p, newer).await, Replaced(first.id()));
    clock.advance(SECOND);
    let got = pull(&bed.queue, &p, 9).await.remove(0);
    let expected = MessageData::with_id(first.id(), "newer").with_session_id("s").with_header("new", "2");
    assert_eq!(got.message, expected.with_options(first.options().clone()));
    assert_eq!((got.delivery_count, got.age), (Some(2), SECOND * 2));
}

#[tokio::test]
async fn whatever_waits_is_replaced_where_it_stands() {
    let (bed, clock) = Bed::still().await;
    for place in ["ready", "behind", "delayed", "postponed", "released", "lapsed"] {
        let p = part(place);
        let first = keyed("first", OnDuplicate::Keep);
        let first = match place {
            "delayed" => first.with_delay(SECOND),
            "behind" => first.with_group("g"),
            _ => first,
        };
        if place == "behind" {
            push(&bed.queue, &p, &[message("head").with_group("g")]).await;
        }
        push(&bed.queue, &p, &[first.clone(), message("second")]).await;
        match place {
            "postponed" => {
                let held = pull(&bed.queue, &p, 1).await.remove(0);
                settle(&bed.queue, &held.lease, postpone(SECOND)).await;
            }
            "released" => {
                let held = pull(&bed.queue, &p, 2).await;
                for held in held {
                    settle(&bed.queue, &held.lease, Action::Release).await;
                }
            }
            "lapsed" => {
                pull(&bed.queue, &p, 1).await;
                clock.advance(LEASE);
            }
            _ => {}
        }
        let before = bed.queue.counts(&p).await.unwrap();
        assert_eq!(push_one(&bed.queue, &p, replacing("newer")).await, Replaced(first.id()), "{place}");
        assert_eq!(push_in(&bed, &p, replacing("newest")).await, Replaced(first.id()), "{place}");
        assert_eq!(bed.queue.counts(&p).await.unwrap(), before, "{place}");
        let mut drained = drain(&bed.queue, &p).await;
        clock.advance(SECOND);
        drained.extend(drain(&bed.queue, &p).await);
        let expected: &[&str] = match place {
            "delayed" | "postponed" => &["second", "newest"],
            "behind" => &["head", "second", "newest"],
            _ => &["newest", "second"],
        };
        assert_eq!(drained, expected, "{place}");
        assert!(matches!(push_one(&bed.queue, &p, replacing("free")).await, Stored(_)), "{place}");
    }
}

#[tokio::test]
async fn content_of_any_size_comes_back_whole() {
    let bed = Bed::new().await;
    let p = part("p");
    let content = |bytes: usize| MessageData::new(vec![u8::try_from(bytes % 251).unwrap(); bytes]);
    let replacing = |bytes| content(bytes).with_dedup_key("k").with_on_duplicate(OnDuplicate::Replace);
    let id = push(&bed.queue, &p, &[replacing(10), message("next")]).await[0];
    // Within a page, over some, over many, and back.
    for bytes in [0, 4000, 5000, 1_000_000, 3000, 200_000, 1, 70_000] {
        assert_eq!(push_one(&bed.queue, &p, replacing(bytes)).await, Replaced(id));
        let seen = bed.queue.browse(&p, Page::of(9)).await.unwrap();
        let seen = seen.into_iter().find(|seen| seen.message.id() == id).unwrap();
        assert_eq!(seen.message.payload(), content(bytes).payload(), "{bytes} bytes");
    }
    let got = pull(&bed.queue, &p, 9).await;
    assert_eq!(got[0].message.payload(), content(70_000).payload());
    assert_eq!(got[1].message.payload(), b"next");
}

#[tokio::test]
async fn what_is_held_is_not_changed_and_the_old_holder_of_what_lapsed_ends_nothing() {
    let manual = ManualClock::new();
    let (clock, setter) = manual.clock().settable();
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).clock(clock).open().await.unwrap();
    let bed = Bed { dir, queue };
    for within in [false, true] {
        let p = part(if within { "within" } else { "alone" });
        let id = push(&bed.queue, &p, &[replacing("first")]).await[0];
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        manual.advance(LEASE - Duration::from_millis(1));
        for newer in [replacing("newer"), earlier("newer", Duration::ZERO)] {
            assert_eq!(push_one(&bed.queue, &p, newer.clone()).await, Duplicate(Some(id)));
            assert_eq!(push_in(&bed, &p, newer).await, Duplicate(Some(id)));
        }
        manual.advance(Duration::from_millis(1));
        for late in [earlier("no earlier", Duration::ZERO), behind("it waits")] {
            assert_eq!(push_in(&bed, &p, late).await, Duplicate(Some(id)));
        }
        assert_eq!(push_either(&bed, within, &p, replacing("newer")).await, Replaced(id));
        // Nor if the time of day goes back a little.
        setter.set(Skew::Behind(Duration::from_millis(100)));
        assert_eq!(settle(&bed.queue, &held.lease, Action::Remove).await, SettleOutcome::Lost);
        setter.set(Skew::None);
        assert_eq!(drain(&bed.queue, &p).await, ["newer"], "within {within}");
    }
}

#[tokio::test]
async fn dead_letters_know_no_keys_and_a_living_id_is_a_repetition() {
    let bed = Bed::new().await;
    let p = part("p");
    let dead = p.dead_letters();
    let both = bed.queue.push(&dead, &[replacing("1"), replacing("2")]).await;
    assert!(both.iter().all(|outcome| matches!(outcome, Ok(Stored(_)))));
    let other = message("other");
    push(&bed.queue, &p, &[replacing("first"), other.clone()]).await;
    let died = pull(&bed.queue, &dead, 1).await.remove(0);
    // Its id lives: as another of this partition, or as a dead letter of it.
    for id in [other.id(), died.lease.id] {
        for what in [OnDuplicate::Replace, OnDuplicate::Earlier, OnDuplicate::Behind] {
            let again = MessageData::with_id(id, "again").with_dedup_key("k").with_on_duplicate(what);
            assert_eq!(push_one(&bed.queue, &p, again.clone()).await, Duplicate(Some(id)));
            assert_eq!(push_in(&bed, &p, again).await, Duplicate(Some(id)));
        }
    }
    assert!(matches!(push_one(&bed.queue, &part("q"), replacing("elsewhere")).await, Stored(_)));
    assert_eq!(texts(&pull(&bed.queue, &p, 9).await), ["first", "other"]);
}

#[tokio::test]
async fn a_replacement_that_finds_no_room_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).max_bytes(512 * 1024).open().await.unwrap();
    let p = part("p");
    let id = push(&queue, &p, &[replacing("first")]).await[0];
    let large = MessageData::new(vec![7; 600_000]).with_dedup_key("k");
    for what in [OnDuplicate::Replace, OnDuplicate::Earlier] {
        let refused = queue.push(&p, &[large.clone().with_on_duplicate(what)]).await.remove(0);
        match what {
            OnDuplicate::Replace => assert_eq!(refused.unwrap_err().kind(), ErrorKind::Full),
            _ => assert_eq!(refused.unwrap(), Duplicate(Some(id))),
        }
    }
    assert_eq!(drain(&queue, &p).await, ["first"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_not_changed() {
    let bed = Bed::new().await;
    let p = part("p");
    let id = push(&bed.queue, &p, &[earlier("first", LEASE)]).await[0];
    let conn = rusqlite::Connection::open(bed.path()).unwrap();
    conn.execute("UPDATE anyqueue_message SET body = CAST(x'F6415102' || substr(body, 5) AS BLOB)", ())
        .unwrap();
    let body =
        || conn.query_row("SELECT body FROM anyqueue_message", (), |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let before = body();
    for newer in [replacing("newer"), earlier("newer", Duration::ZERO)] {
        assert_eq!(push_one(&bed.queue, &p, newer.clone()).await, Duplicate(Some(id)));
        assert_eq!(push_in(&bed, &p, newer).await, Duplicate(Some(id)));
    }
    assert_eq!(body(), before);
    assert_eq!(bed.queue.counts(&p).await.unwrap().delayed, Some(1));
}
