//! Leases: who holds a message, until when, and what a lost one can do.

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage, PullQueueStorage, PullRequest, RawDelivery, Settlement, Token,
};
use anyqueue::{ErrorKind, ExtendOutcome, Headers, SettleOutcome};
use anyqueue_sqlite::SqliteQueue;

async fn extend(queue: &SqliteQueue, delivery: &RawDelivery, duration: Duration) -> ExtendOutcome {
    queue.extend(&[Extension { lease: delivery.lease.clone(), duration }]).await.remove(0).unwrap()
}

#[tokio::test]
async fn a_lease_holds_to_its_last_moment_and_no_longer() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    let first = pull(&bed.queue, &p, 1).await;
    clock.advance(LEASE - Duration::from_millis(1));
    assert!(pull(&bed.queue, &p, 1).await.is_empty());
    clock.advance(Duration::from_millis(1));
    let second = pull(&bed.queue, &p, 1).await;
    assert_eq!(second[0].delivery_count, Some(2));
    // The first owner changes nothing for the second.
    assert_eq!(settle(&bed.queue, &first[0].lease, Action::Remove).await, SettleOutcome::Lost);
    assert_eq!(settle(&bed.queue, &first[0].lease, Action::Release).await, SettleOutcome::Lost);
    assert_eq!(extend(&bed.queue, &first[0], LEASE).await, ExtendOutcome::Lost);
    assert!(pull(&bed.queue, &p, 1).await.is_empty());
    assert_eq!(settle(&bed.queue, &second[0].lease, Action::Remove).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn a_lease_that_ran_out_is_lost_even_if_nobody_took_the_message_again() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    let held = pull(&bed.queue, &p, 1).await;
    clock.advance(LEASE);
    assert_eq!(extend(&bed.queue, &held[0], LEASE).await, ExtendOutcome::Lost);
    assert_eq!(settle(&bed.queue, &held[0].lease, Action::Remove).await, SettleOutcome::Lost);
    assert_eq!(drain(&bed.queue, &p).await, ["m"]);
}

#[tokio::test]
async fn an_extension_moves_the_end_both_ways() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    assert_eq!(extend(&bed.queue, &held[0], 3 * LEASE).await, ExtendOutcome::Extended);
    assert_eq!(extend(&bed.queue, &held[1], Duration::from_secs(1)).await, ExtendOutcome::Extended);
    clock.advance(Duration::from_secs(1));
    assert_eq!(texts(&pull(&bed.queue, &p, 2).await), ["b"]);
    clock.advance(2 * LEASE);
    assert_eq!(settle(&bed.queue, &held[0].lease, Action::Remove).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn the_same_lease_settles_once_within_a_batch_and_later() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let leases: Vec<_> = pull(&bed.queue, &p, 2).await.into_iter().map(|d| d.lease).collect();
    let twice = [leases[0].clone(), leases[1].clone(), leases[0].clone()];
    let outcomes = settle_all(&bed.queue, &twice, &Action::Release).await;
    assert_eq!(outcomes, [SettleOutcome::Settled, SettleOutcome::Settled, SettleOutcome::Lost]);
    assert_eq!(settle(&bed.queue, &leases[0], Action::Remove).await, SettleOutcome::Lost);
    assert_eq!(drain(&bed.queue, &p).await, ["a", "b"]);
}

#[tokio::test]
async fn a_forged_lease_is_lost() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    let mut elsewhere = held[0].lease.clone();
    elsewhere.partition = part("q");
    let mut guessed = held[0].lease.clone();
    guessed.token = Token::from_bytes([&held[0].lease.token.as_bytes()[..8], &[0; 16]].concat());
    let mut foreign = held[0].lease.clone();
    foreign.token = Token::from_bytes(&b"short"[..]);
    for lease in [elsewhere, guessed, foreign] {
        assert_eq!(settle(&bed.queue, &lease, Action::Remove).await, SettleOutcome::Lost);
    }
    assert_eq!(settle(&bed.queue, &held[0].lease, Action::Remove).await, SettleOutcome::Settled);
}

#[tokio::test]
async fn what_was_let_go_is_no_attempt_and_what_failed_or_ran_out_is_one() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    let count = async || {
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        (held.delivery_count.unwrap(), held.lease)
    };
    for action in [Action::Release, postpone(Duration::ZERO), postpone(Duration::from_secs(1))] {
        let (counted, lease) = count().await;
        assert_eq!(counted, 1, "before {action:?}");
        settle(&bed.queue, &lease, action).await;
        clock.advance(Duration::from_secs(1));
    }
    let (counted, lease) = count().await;
    assert_eq!(counted, 1);
    settle(&bed.queue, &lease, Action::Retry).await;
    assert_eq!(count().await.0, 2);
    clock.advance(LEASE);
    assert_eq!(count().await.0, 3);
}

#[tokio::test]
async fn age_and_lease_end_are_told() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    clock.advance(Duration::from_secs(90));
    let held = pull(&bed.queue, &p, 1).await;
    assert_eq!(held[0].age, Duration::from_secs(90));
    assert_eq!(held[0].lease_until, Some(clock.clock().now() + LEASE));
}

#[tokio::test]
async fn postponing_and_moving_can_replace_headers_and_keep_the_rest() {
    let bed = Bed::new().await;
    let p = part("p");
    let original =
        message("\0\u{fe}body").with_header("a", "1").with_priority(3).with_group("g").with_task_id("t");
    push(&bed.queue, &p, std::slice::from_ref(&original)).await;
    let headers = |text: &str| Some(Headers::from([("b".to_owned(), text.to_owned())]));
    let held = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &held[0].lease, Action::Postpone { delay: Duration::ZERO, headers: headers("2") })
        .await;
    let held = pull(&bed.queue, &p, 1).await;
    assert_eq!(held[0].message, original.clone().with_headers(headers("2").unwrap()));
    settle(&bed.queue, &held[0].lease, Action::Move { to: p.dead_letters(), headers: headers("3") }).await;
    let held = pull(&bed.queue, &p.dead_letters(), 1).await;
    assert_eq!(held[0].message, original.with_headers(headers("3").unwrap()));
}

#[tokio::test]
async fn an_exchange_settles_and_claims() {
    let bed = Bed::new().await;
    let p = part("p");
    push(&bed.queue, &p, &["1", "2"].map(|text| message(text).with_group("g"))).await;
    let held = pull(&bed.queue, &p, 10).await;
    let settlements = [Settlement::new(held[0].lease.clone(), Action::Remove)];
    let request = PullRequest::new(10, Duration::ZERO, LEASE);
    let (outcomes, got) = bed.queue.exchange(&settlements, &p, request).await;
    assert_eq!(*outcomes[0].as_ref().unwrap(), SettleOutcome::Settled);
    assert_eq!(texts(&got.unwrap()), ["2"], "the settlement frees the next of the group");
    // One half failing is not the other failing.
    let bad = PullRequest::new(0, Duration::ZERO, LEASE);
    let (outcomes, got) = bed.queue.exchange(&settlements, &p, bad).await;
    assert_eq!(*outcomes[0].as_ref().unwrap(), SettleOutcome::Lost);
    assert_eq!(got.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn leases_out_of_bounds_are_refused() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["m"]).await;
    for lease in [Duration::ZERO, Duration::from_hours(31 * 24)] {
        let error = bed.queue.pull(&p, PullRequest::new(1, Duration::ZERO, lease)).await.unwrap_err();
        assert_eq!((error.kind(), error.backend()), (ErrorKind::InvalidInput, Some("sqlite")));
    }
    let held = pull(&bed.queue, &p, 1).await;
    let extension = Extension { lease: held[0].lease.clone(), duration: Duration::ZERO };
    assert_eq!(bed.queue.extend(&[extension]).await.remove(0).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn thousands_of_leases_that_ran_out_together_all_come_back_in_order_of_priority() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    for _ in 0..3 {
        let messages: Vec<_> = (0..1000u32).map(|n| message("m").with_priority((n % 10) as u8)).collect();
        push(&bed.queue, &p, &messages).await;
    }
    for _ in 0..3 {
        assert_eq!(pull(&bed.queue, &p, 1000).await.len(), 1000);
    }
    clock.advance(LEASE);
    let counts = bed.queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(3000), Some(0)), "before anybody took them back");
    let first = pull(&bed.queue, &p, 300).await;
    assert!(first.iter().all(|delivery| delivery.message.options().priority == 9));
}
