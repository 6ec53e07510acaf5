//! Counts, browsing, deletion, purges, requests for cancellation.

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{Action, Extension, InspectQueueStorage, PauseQueueStorage, PullQueueStorage};
use anyqueue::{CancelOutcome, DeleteOutcome, ExtendOutcome, MessageId, MessageState, Page};

#[tokio::test]
async fn counts_tell_every_state() {
    let bed = Bed::new().await;
    let p = part("p");
    push(&bed.queue, &p, &["g1", "g2"].map(|text| message(text).with_group("g"))).await;
    push_text(&bed.queue, &p, &["a", "b", "c"]).await;
    push(&bed.queue, &p, &[message("d").with_delay(LEASE)]).await;
    let held = pull(&bed.queue, &p, 4).await;
    assert_eq!(texts(&held), ["g1", "a", "b", "c"]);
    settle(&bed.queue, &held[1].lease, postpone(LEASE)).await;
    settle(&bed.queue, &held[2].lease, move_to(&p.dead_letters())).await;
    let counts = bed.queue.counts(&p).await.unwrap();
    assert_eq!(counts, anyqueue::Counts::known(1, 2, 2, 1));
    assert_eq!(bed.queue.counts(&part("unknown")).await.unwrap(), anyqueue::Counts::known(0, 0, 0, 0));
}

#[tokio::test]
async fn partitions_are_listed_in_pages_while_they_have_messages_or_are_paused() {
    let bed = Bed::new().await;
    for name in ["b", "a", "B", "c"] {
        push_text(&bed.queue, &part(name), &["m"]).await;
    }
    bed.queue.set_paused(&part("only-paused"), true).await.unwrap();
    let held = pull(&bed.queue, &part("a"), 1).await;
    settle(&bed.queue, &held[0].lease, move_to(&part("moved-to"))).await;
    let first = bed.queue.partitions(Page::of(3)).await.unwrap();
    let rest = bed.queue.partitions(Page::of(10).after(first.last().cloned())).await.unwrap();
    let names: Vec<_> = first.iter().chain(&rest).map(|partition| partition.name().to_owned()).collect();
    assert_eq!(names, ["B", "b", "c", "moved-to", "only-paused"]);
}

/// How many rows of partitions there are, after one more was made.
async fn rows(bed: &Bed) -> i64 {
    push_text(&bed.queue, &part("one-more"), &["m"]).await;
    drain(&bed.queue, &part("one-more")).await;
    let conn = rusqlite::Connection::open(bed.path()).unwrap();
    conn.query_row("SELECT count(*) FROM anyqueue_partition", (), |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn partitions_that_have_nothing_are_forgotten_and_no_other_handle_mistakes_one_for_another() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let (early, paused, dead) = (part("early"), part("paused"), part("dead"));
    other.set_paused(&paused, true).await.unwrap();
    push_text(&other, &dead, &["letter"]).await;
    let held = pull(&other, &dead, 1).await;
    settle(&other, &held[0].lease, move_to(&dead.dead_letters())).await;
    push_text(&other, &early, &["m"]).await;
    drain(&other, &early).await;
    for number in 0..200 {
        let brief = part(&format!("brief-{number}"));
        push_text(&bed.queue, &brief, &["m"]).await;
        assert_eq!(drain(&bed.queue, &brief).await, ["m"]);
    }
    assert!(rows(&bed).await < 50, "two hundred would be kept forever");
    assert!(bed.queue.is_paused(&paused).await.unwrap());
    // The other handle knew numbers that are gone, or others' by now.
    push_text(&other, &early, &["again"]).await;
    push_text(&bed.queue, &part("late"), &["late"]).await;
    assert_eq!(drain(&bed.queue, &early).await, ["again"]);
    assert_eq!(drain(&bed.queue, &part("late")).await, ["late"]);
    assert_eq!(drain(&bed.queue, &dead.dead_letters()).await, ["letter"]);
}

#[tokio::test]
async fn browsing_pages_in_the_order_of_ids_and_shows_states() {
    let bed = Bed::new().await;
    let p = part("p");
    let mut ids = push_text(&bed.queue, &p, &["a", "b", "c", "d"]).await;
    ids.extend(push(&bed.queue, &p, &[message("later").with_delay(LEASE)]).await);
    push_text(&bed.queue, &part("other"), &["x"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    settle(&bed.queue, &held[1].lease, Action::Retry).await;
    ids.sort_unstable();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = bed.queue.browse(&p, Page::of(2).after(after)).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.message.id());
        seen.extend(page);
    }
    assert_eq!(seen.iter().map(|one| one.message.id()).collect::<Vec<_>>(), ids);
    let of = |id: MessageId| {
        seen.iter().find(|one| one.message.id() == id).map(|one| (one.state, one.delivery_count))
    };
    assert_eq!(of(held[0].lease.id), Some((MessageState::Leased, Some(1))));
    assert_eq!(of(held[1].lease.id), Some((MessageState::Ready, Some(1))));
    assert_eq!(seen.iter().filter(|one| one.state == MessageState::Delayed).count(), 1);
}

#[tokio::test]
async fn deleting_by_id_leaves_leased_ones_and_lets_groups_go_on() {
    let bed = Bed::new().await;
    let p = part("p");
    let member = |text: &str| message(text).with_group("g");
    let ids =
        push(&bed.queue, &p, &[member("1"), member("2"), member("3"), message("held").with_priority(9)])
            .await;
    let held = pull(&bed.queue, &p, 1).await;
    let unknown = MessageId::new();
    let elsewhere = push_text(&bed.queue, &part("q"), &["q"]).await[0];
    let asked = [ids[0], held[0].lease.id, unknown, elsewhere, ids[1], ids[0]];
    let outcomes: Vec<_> = bed.queue.delete(&p, &asked).await.into_iter().map(Result::unwrap).collect();
    let (deleted, leased, not_found) =
        (DeleteOutcome::Deleted, DeleteOutcome::Leased, DeleteOutcome::NotFound);
    assert_eq!(outcomes, [deleted, leased, not_found, not_found, deleted, not_found]);
    settle(&bed.queue, &held[0].lease, Action::Release).await;
    assert_eq!(drain(&bed.queue, &p).await, ["held", "3"]);
    assert_eq!(drain(&bed.queue, &part("q")).await, ["q"]);
}

#[tokio::test]
async fn what_came_back_is_found_by_id_at_its_new_place() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["a", "b", "c"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    settle(&bed.queue, &held[0].lease, Action::Retry).await;
    settle(&bed.queue, &held[1].lease, postpone(Duration::ZERO)).await;
    let outcomes = bed.queue.delete(&p, &ids[..2]).await;
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == DeleteOutcome::Deleted));
    assert_eq!(drain(&bed.queue, &p).await, ["c"]);
    assert_eq!(bed.queue_ready(&p).await, 0);
}

#[tokio::test]
async fn purging_takes_steps_and_leaves_leased_ones() {
    let bed = Bed::new().await;
    let p = part("p");
    push(&bed.queue, &p, &(0..10).map(|_| message("g").with_group("g")).collect::<Vec<_>>()).await;
    push(&bed.queue, &p, &(0..5).map(|_| message("d").with_delay(LEASE)).collect::<Vec<_>>()).await;
    push_text(&bed.queue, &p, &["1", "2", "3", "4"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    assert_eq!(texts(&held), ["g", "1"]);
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        steps.push(bed.queue.purge(&p, 7).await.unwrap());
    }
    assert_eq!(steps, [7, 7, 3, 0]);
    assert_eq!(bed.queue.counts(&p).await.unwrap(), anyqueue::Counts::known(0, 0, 2, 0));
    settle(&bed.queue, &held[0].lease, Action::Remove).await;
    push(&bed.queue, &p, &[message("g anew").with_group("g")]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["g anew"]);
}

#[tokio::test]
async fn a_request_for_cancellation_removes_what_waits_and_tells_who_holds() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["held", "waits"]).await;
    let held = pull(&bed.queue, &p, 1).await;
    let asked = [ids[0], ids[1], MessageId::new()];
    let outcomes: Vec<_> = other.request_cancel(&p, &asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound]);
    for _ in 0..2 {
        let extension = Extension { lease: held[0].lease.clone(), duration: LEASE };
        let outcome = bed.queue.extend(&[extension]).await.remove(0).unwrap();
        assert_eq!(outcome, ExtendOutcome::CancelRequested);
    }
    settle(&bed.queue, &held[0].lease, Action::Remove).await;
    assert!(drain(&bed.queue, &p).await.is_empty());
}
