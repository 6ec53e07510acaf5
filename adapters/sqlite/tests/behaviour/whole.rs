//! Groups claimed whole.

use std::time::Duration;

use crate::amend::{amended, assert_whole};
use crate::common::*;
use anyqueue::adapter::{Action, InspectQueueStorage, QueueStorage, RawDelivery};
use anyqueue::{Amend, DeleteOutcome, MessageData, MessageId};
use anyqueue_sqlite::SqliteQueue;

fn member(text: &str) -> MessageData {
    message(text).with_group("g")
}

/// Pushes members of one group.
async fn push_members(bed: &Bed, texts: &[&str]) -> Vec<MessageId> {
    let members: Vec<_> = texts.iter().map(|text| member(text)).collect();
    push(&bed.queue, &part("p"), &members).await
}

async fn whole(bed: &Bed) -> Vec<RawDelivery> {
    pull_whole(&bed.queue, &part("p"), 10, 10).await
}

/// What can be pulled at once; it stays held.
async fn offered(bed: &Bed) -> Vec<String> {
    assert_whole(&bed.path());
    texts(&pull(&bed.queue, &part("p"), 10).await)
}

async fn end(bed: &Bed, held: &RawDelivery, action: Action) {
    assert_eq!(settle(&bed.queue, &held.lease, action).await, anyqueue::SettleOutcome::Settled);
}

#[tokio::test]
async fn one_pull_takes_the_members_of_each_group_in_order_one_after_the_other() {
    let bed = Bed::new().await;
    let p = part("p");
    let other = |text: &str| message(text).with_group("h").with_priority(5);
    push(&bed.queue, &p, &[member("g1"), message("free"), other("h1"), member("g2").with_priority(9)]).await;
    push(&bed.queue, &p, &[other("h2"), member("late").with_delay(LEASE), member("g3")]).await;
    let got = whole(&bed).await;
    assert_eq!(texts(&got), ["h1", "h2", "g1", "g2", "g3", "free"]);
    assert!(got.iter().all(|held| held.delivery_count == Some(1)));
    assert_whole(&bed.path());
    for held in &got {
        end(&bed, held, Action::Remove).await;
    }
    push_members(&bed, &["anew"]).await;
    assert_eq!(offered(&bed).await, ["anew"], "the groups are over");
}

#[tokio::test]
async fn max_and_the_members_asked_for_cut_a_group_whose_rest_waits() {
    let bed = Bed::new().await;
    push_members(&bed, &["1", "2", "3", "4"]).await;
    push(&bed.queue, &part("p"), &[message("free")]).await;
    let cut = pull_whole(&bed.queue, &part("p"), 2, 10).await;
    assert_eq!(texts(&cut), ["1", "2"]);
    assert_eq!(offered(&bed).await, ["free"], "the rest of the group waits");
    for held in &cut {
        end(&bed, held, Action::Release).await;
    }
    let three = pull_whole(&bed.queue, &part("p"), 10, 3).await;
    assert_eq!(texts(&three), ["1", "2", "3"]);
    for held in &three {
        end(&bed, held, Action::Remove).await;
    }
    assert_eq!(texts(&pull_whole(&bed.queue, &part("p"), 1, 10).await), ["4"]);
}

#[tokio::test]
async fn a_released_member_waits_until_no_other_is_held_and_comes_first() {
    for action in [Action::Release, Action::Retry, postpone(Duration::ZERO)] {
        let bed = Bed::new().await;
        push_members(&bed, &["a", "b", "c", "d"]).await;
        let held = pull_whole(&bed.queue, &part("p"), 10, 3).await;
        push_members(&bed, &["pushed meanwhile"]).await;
        end(&bed, &held[0], action.clone()).await;
        assert!(offered(&bed).await.is_empty(), "{action:?}: b and c are held");
        end(&bed, &held[2], Action::Remove).await;
        assert!(offered(&bed).await.is_empty(), "{action:?}: b is held");
        end(&bed, &held[1], Action::Release).await;
        let again = whole(&bed).await;
        assert_eq!(texts(&again), ["a", "b", "d", "pushed meanwhile"], "{action:?}");
        let counts: Vec<_> = again.iter().filter_map(|held| held.delivery_count).collect();
        assert_eq!(counts, [if action == Action::Retry { 2 } else { 1 }, 1, 1, 1]);
    }
}

#[tokio::test]
async fn the_end_of_their_leases_gives_all_back_in_order() {
    let (bed, clock) = Bed::still().await;
    push_members(&bed, &["a", "b", "c"]).await;
    assert_eq!(whole(&bed).await.len(), 3);
    clock.advance(LEASE);
    let again = whole(&bed).await;
    assert_eq!(texts(&again), ["a", "b", "c"]);
    assert!(again.iter().all(|held| held.delivery_count == Some(2)));
    end(&bed, &again[1], Action::Remove).await;
    clock.advance(LEASE);
    assert_eq!(offered(&bed).await, ["a"], "the first alone, as it was asked for");
}

#[tokio::test]
async fn a_postponed_member_holds_its_group_at_its_place() {
    let (bed, clock) = Bed::still().await;
    push_members(&bed, &["a", "b", "c"]).await;
    let held = pull_whole(&bed.queue, &part("p"), 10, 2).await;
    end(&bed, &held[1], postpone(LEASE / 3)).await;
    end(&bed, &held[0], Action::Remove).await;
    assert!(offered(&bed).await.is_empty());
    clock.advance(LEASE / 3);
    assert_eq!(texts(&whole(&bed).await), ["b", "c"]);
}

#[tokio::test]
async fn one_that_matures_while_another_is_held_waits_for_it() {
    let (bed, clock) = Bed::still().await;
    push_members(&bed, &["a", "b", "c"]).await;
    let held = whole(&bed).await;
    end(&bed, &held[0], postpone(Duration::from_secs(1))).await;
    end(&bed, &held[2], move_to(&part("p").dead_letters())).await;
    clock.advance(Duration::from_secs(1));
    assert!(offered(&bed).await.is_empty());
    end(&bed, &held[1], Action::Remove).await;
    assert_eq!(offered(&bed).await, ["a"]);
}

#[tokio::test]
async fn those_that_wait_behind_held_ones_can_be_deleted_and_set_aside() {
    let bed = Bed::new().await;
    let ids = push_members(&bed, &["a", "b", "c", "d", "e"]).await;
    let held = pull_whole(&bed.queue, &part("p"), 10, 3).await;
    end(&bed, &held[1], Action::Release).await;
    let deleted = bed.queue.delete(&part("p"), &[ids[0], ids[1], ids[3]]).await;
    let deleted: Vec<_> = deleted.into_iter().map(Result::unwrap).collect();
    assert_eq!(deleted, [DeleteOutcome::Leased, DeleteOutcome::Deleted, DeleteOutcome::Deleted]);
    end(&bed, &held[0], Action::Release).await;
    amended(&bed.queue, &part("p"), &[ids[0], ids[4]], Amend::new().disable()).await;
    assert!(offered(&bed).await.is_empty(), "c is held");
    amended(&bed.queue, &part("p"), &[ids[4], ids[0]], Amend::new().enable()).await;
    end(&bed, &held[2], Action::Remove).await;
    assert_eq!(texts(&whole(&bed).await), ["a", "e"], "each where it stood");
}

#[tokio::test]
async fn a_postponed_member_can_be_deleted_or_regrouped_while_others_are_held() {
    let (bed, _clock) = Bed::still().await;
    let ids = push_members(&bed, &["a", "b", "c", "d"]).await;
    let held = pull_whole(&bed.queue, &part("p"), 10, 3).await;
    for postponed in &held[..2] {
        end(&bed, postponed, postpone(LEASE)).await;
    }
    assert_eq!(bed.queue.delete(&part("p"), &ids[..1]).await[0].clone().unwrap(), DeleteOutcome::Deleted);
    amended(&bed.queue, &part("p"), &ids[1..2], Amend::new().now().with_group("h")).await;
    assert_eq!(offered(&bed).await, ["b"], "by itself in its new group");
    end(&bed, &held[2], Action::Remove).await;
    assert_eq!(offered(&bed).await, ["d"]);
}

#[tokio::test]
async fn one_that_was_regrouped_while_it_was_set_aside_stands_at_the_end_it_joined() {
    let bed = Bed::new().await;
    let ids = push_members(&bed, &["moved", "left"]).await;
    let other = |text: &str| message(text).with_group("h");
    push(&bed.queue, &part("p"), &[other("h1"), other("h2")]).await;
    amended(&bed.queue, &part("p"), &ids[..1], Amend::new().disable()).await;
    amended(&bed.queue, &part("p"), &ids[..1], Amend::new().with_group("h")).await;
    push(&bed.queue, &part("p"), &[other("h3")]).await;
    amended(&bed.queue, &part("p"), &ids[..1], Amend::new().enable()).await;
    assert_whole(&bed.path());
    assert_eq!(texts(&whole(&bed).await), ["left", "h1", "h2", "moved", "h3"]);
}

#[tokio::test]
async fn an_earlier_member_that_is_enabled_comes_before_one_that_is_released() {
    let bed = Bed::new().await;
    let ids = push_members(&bed, &["a", "b", "c"]).await;
    amended(&bed.queue, &part("p"), &ids[..1], Amend::new().disable()).await;
    let held = pull(&bed.queue, &part("p"), 1).await;
    amended(&bed.queue, &part("p"), &ids[..1], Amend::new().enable()).await;
    end(&bed, &held[0], Action::Retry).await;
    assert_eq!(texts(&whole(&bed).await), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_group_half_settled_goes_on_where_it_was_after_a_restart() {
    let (bed, clock) = Bed::still().await;
    push_members(&bed, &["a", "b", "c", "d"]).await;
    let held = pull_whole(&bed.queue, &part("p"), 10, 3).await;
    end(&bed, &held[0], Action::Release).await;
    end(&bed, &held[1], Action::Remove).await;
    bed.queue.close().await.unwrap();

    let queue = SqliteQueue::builder(bed.path()).clock(clock.clock()).open().await.unwrap();
    let bed = Bed { queue, ..bed };
    assert!(offered(&bed).await.is_empty(), "c is held still");
    end(&bed, &held[2], Action::Retry).await;
    let again = whole(&bed).await;
    assert_eq!(texts(&again), ["a", "c", "d"]);
    assert_eq!(again[1].delivery_count, Some(2));
}

#[tokio::test]
async fn a_pull_of_the_first_alone_gets_it_alone_whoever_asked_before() {
    let bed = Bed::new().await;
    push_members(&bed, &["a", "b", "c"]).await;
    for held in whole(&bed).await {
        end(&bed, &held, Action::Release).await;
    }
    for text in ["a", "b", "c"] {
        let alone = pull(&bed.queue, &part("p"), 10).await;
        assert_eq!(texts(&alone), [text]);
        assert!(whole(&bed).await.is_empty(), "nor do others get what is behind it");
        end(&bed, &alone[0], Action::Remove).await;
    }
}

#[tokio::test]
async fn dead_letters_wait_for_no_other_of_their_group() {
    let (bed, clock) = Bed::still().await;
    let dead = part("p").dead_letters();
    push(&bed.queue, &dead, &[member("1"), message("free"), member("2")]).await;
    let got = pull_whole(&bed.queue, &dead, 10, 10).await;
    assert_eq!(texts(&got), ["1", "free", "2"]);
    for held in [&got[0], &got[2]] {
        end(&bed, held, Action::Release).await;
    }
    assert_eq!(texts(&pull(&bed.queue, &dead, 10).await), ["1", "2"]);
    clock.advance(LEASE);
    assert_eq!(texts(&pull(&bed.queue, &dead, 10).await), ["1", "free", "2"], "their leases have ended");
}

#[tokio::test]
async fn a_purge_takes_what_waits_and_leaves_what_is_held() {
    let bed = Bed::new().await;
    push_members(&bed, &["a", "b", "c", "d"]).await;
    let held = pull_whole(&bed.queue, &part("p"), 10, 3).await;
    end(&bed, &held[0], Action::Release).await;
    assert_eq!(bed.queue.purge(&part("p"), 10).await.unwrap(), 2);
    assert_whole(&bed.path());
    end(&bed, &held[1], Action::Remove).await;
    end(&bed, &held[2], Action::Remove).await;
    push_members(&bed, &["anew"]).await;
    assert_eq!(offered(&bed).await, ["anew"]);
}

/// Takes groups whole until all is gone, with a look each time whether somebody else has one of the same group.
async fn work(queue: SqliteQueue, busy: std::sync::Arc<std::sync::Mutex<Vec<String>>>) -> Vec<String> {
    let mut all = Vec::new();
    while queue.counts(&part("p")).await.unwrap().ready > Some(0) {
        let got = pull_whole(&queue, &part("p"), 7, 4).await;
        let mut groups: Vec<_> = got.iter().map(|it| it.message.options().group.clone().unwrap()).collect();
        groups.dedup();
        for group in &groups {
            let mut busy = busy.lock().unwrap();
            assert!(!busy.contains(&group.to_string()), "{group} is in two hands");
            busy.push(group.to_string());
        }
        tokio::task::yield_now().await;
        busy.lock().unwrap().retain(|name| !groups.iter().any(|group| **group == **name));
        all.extend(texts(&got));
        let leases: Vec<_> = got.into_iter().map(|held| held.lease).collect();
        settle_all(&queue, &leases, &Action::Remove).await;
    }
    all
}

#[tokio::test]
async fn two_that_pull_at_once_never_share_a_group() {
    const MESSAGES: usize = 300;
    let bed = Bed::new().await;
    let message = |n: usize| message(&n.to_string()).with_group(format!("g{}", n % 3));
    push(&bed.queue, &part("p"), &(0..MESSAGES).map(message).collect::<Vec<_>>()).await;
    let busy = std::sync::Arc::default();
    let (one, other) = (bed.queue.clone(), bed.other().await);
    let workers = [one, other].map(|queue| tokio::spawn(work(queue, std::sync::Arc::clone(&busy))));
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap().len();
    }
    assert_eq!(done, MESSAGES);
}
