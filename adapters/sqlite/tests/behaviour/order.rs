//! Order, priority, delays, groups and keys.

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{Action, PushQueueStorage};
use anyqueue::{MessageData, PushOutcome, SettleOutcome};

#[tokio::test]
async fn higher_priority_first_and_push_order_within_one() {
    let bed = Bed::new().await;
    let p = part("p");
    let messages: Vec<_> = (0..10u8)
        .flat_map(|priority| [("a", priority), ("b", priority)])
        .map(|(name, priority)| message(&format!("{priority}{name}")).with_priority(priority))
        .collect();
    push(&bed.queue, &p, &messages).await;
    let expected: Vec<_> = (0..10u8).rev().flat_map(|n| [format!("{n}a"), format!("{n}b")]).collect();
    assert_eq!(drain(&bed.queue, &p).await, expected);
}

#[tokio::test]
async fn batches_of_every_size_keep_push_order() {
    let bed = Bed::new().await;
    let p = part("p");
    let mut expected = Vec::new();
    for size in [1, 2, 3, 7, 64, 100, 127, 128, 129, 300] {
        let texts: Vec<_> = (0..size).map(|n| format!("{size}-{n}")).collect();
        push(&bed.queue, &p, &texts.iter().map(|text| message(text)).collect::<Vec<_>>()).await;
        expected.extend(texts);
    }
    assert_eq!(drain(&bed.queue, &p).await, expected);
}

#[tokio::test]
async fn released_and_failed_messages_come_before_never_delivered_ones_of_their_priority() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b", "c"]).await;
    push(&bed.queue, &p, &[message("high").with_priority(1)]).await;
    let got = pull(&bed.queue, &p, 3).await;
    assert_eq!(texts(&got), ["high", "a", "b"]);
    assert_eq!(settle(&bed.queue, &got[2].lease, Action::Retry).await, SettleOutcome::Settled);
    assert_eq!(settle(&bed.queue, &got[1].lease, Action::Release).await, SettleOutcome::Settled);
    push(&bed.queue, &p, &[message("late high").with_priority(1)]).await;
    let again = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&again), ["late high", "a", "b", "c"]);
    assert_eq!(
        again.iter().map(|d| d.delivery_count).collect::<Vec<_>>(),
        [Some(1), Some(1), Some(2), Some(1)]
    );
}

#[tokio::test]
async fn a_failed_message_comes_before_an_older_one_that_was_never_delivered() {
    let bed = Bed::new().await;
    let p = part("p");
    let member = |text: &str| message(text).with_group("g");
    push(&bed.queue, &p, &[member("g1"), member("g2"), message("a")]).await;
    let held = pull(&bed.queue, &p, 2).await;
    assert_eq!(texts(&held), ["g1", "a"]);
    settle(&bed.queue, &held[1].lease, Action::Retry).await;
    settle(&bed.queue, &held[0].lease, Action::Remove).await;
    assert_eq!(drain(&bed.queue, &p).await, ["a", "g2"]);
}

#[tokio::test]
async fn a_postponed_message_goes_to_the_end_of_its_priority_at_maturity() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let got = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &got[0].lease, postpone(Duration::from_millis(1500))).await;
    push_text(&bed.queue, &p, &["c"]).await;
    clock.advance(Duration::from_millis(1499));
    assert_eq!(bed.queue_ready(&p).await, 2);
    clock.advance(Duration::from_millis(1));
    push_text(&bed.queue, &p, &["after maturity"]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["b", "c", "a", "after maturity"]);
}

#[tokio::test]
async fn what_matured_meanwhile_stands_ahead_of_what_is_postponed_or_moved_now() {
    let (bed, clock) = Bed::still().await;
    let (p, other) = (part("p"), part("other"));
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let got = pull(&bed.queue, &p, 2).await;
    for partition in [&p, &other] {
        push(&bed.queue, partition, &[message("matured").with_delay(Duration::from_secs(1))]).await;
    }
    clock.advance(Duration::from_secs(2));
    settle(&bed.queue, &got[0].lease, postpone(Duration::ZERO)).await;
    settle(&bed.queue, &got[1].lease, Action::Move { to: other.clone(), headers: None }).await;
    assert_eq!(drain(&bed.queue, &p).await, ["matured", "a"]);
    assert_eq!(drain(&bed.queue, &other).await, ["matured", "b"]);
}

#[tokio::test]
async fn postponing_by_nothing_goes_to_the_end_at_once() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let got = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &got[0].lease, postpone(Duration::ZERO)).await;
    let again = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&again), ["b", "a"]);
    // Released, it comes first.
    settle(&bed.queue, &again[1].lease, Action::Release).await;
    assert_eq!(texts(&pull(&bed.queue, &p, 1).await), ["a"]);
}

#[tokio::test]
async fn a_delay_is_never_early_and_its_position_is_taken_at_maturity() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let delayed = |text, ms| message(text).with_delay(Duration::from_millis(ms));
    push(&bed.queue, &p, &[delayed("late", 100), delayed("early", 50), message("now")]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["now"]);
    clock.advance(Duration::from_micros(49_999));
    assert!(drain(&bed.queue, &p).await.is_empty());
    clock.advance(Duration::from_micros(1));
    push_text(&bed.queue, &p, &["between"]).await;
    clock.advance(Duration::from_millis(50));
    push_text(&bed.queue, &p, &["last"]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["early", "between", "late", "last"]);
}

#[tokio::test]
async fn a_delay_of_part_of_a_millisecond_is_rounded_up() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    clock.advance(Duration::from_micros(900));
    push(&bed.queue, &p, &[message("m").with_delay(Duration::from_micros(100))]).await;
    clock.advance(Duration::from_micros(100));
    assert!(pull(&bed.queue, &p, 1).await.is_empty());
    clock.advance(Duration::from_millis(1));
    assert_eq!(pull(&bed.queue, &p, 1).await.len(), 1);
}

#[tokio::test]
async fn a_group_is_offered_one_at_a_time_in_push_order() {
    let bed = Bed::new().await;
    let p = part("p");
    let member = |group: &str, text: &str| message(text).with_group(group);
    push(&bed.queue, &p, &[member("g", "g1"), member("g", "g2"), member("h", "h1"), message("free")]).await;
    push(&bed.queue, &p, &[member("g", "g3").with_priority(9)]).await;
    let first = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&first), ["g1", "h1", "free"]);
    // A failed head comes first again.
    settle(&bed.queue, &first[0].lease, Action::Retry).await;
    let again = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&again), ["g1"]);
    settle(&bed.queue, &again[0].lease, Action::Remove).await;
    assert_eq!(drain(&bed.queue, &p).await, ["g2", "g3"]);
    // The group is over: it begins anew.
    push(&bed.queue, &p, &[member("g", "g4")]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["g4"]);
}

#[tokio::test]
async fn a_postponed_head_holds_its_group_and_a_dead_one_frees_it() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let member = |text: &str| message(text).with_group("g");
    push(&bed.queue, &p, &[member("1"), member("2"), member("3")]).await;
    for delay in [Duration::from_secs(1), Duration::ZERO] {
        let head = pull(&bed.queue, &p, 10).await;
        assert_eq!(texts(&head), ["1"]);
        settle(&bed.queue, &head[0].lease, postpone(delay)).await;
        assert_eq!(pull(&bed.queue, &p, 10).await.is_empty(), !delay.is_zero());
        clock.advance(LEASE + delay); // whatever was pulled just now runs out
    }
    let head = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&head), ["1"], "its lease ran out: it comes first again");
    settle(&bed.queue, &head[0].lease, move_to(&p.dead_letters())).await;
    let second = pull(&bed.queue, &p, 10).await;
    assert_eq!(texts(&second), ["2"]);
    // Moved to the end of its own partition, it joins its group at the end.
    settle(&bed.queue, &second[0].lease, move_to(&p)).await;
    assert_eq!(drain(&bed.queue, &p).await, ["3", "2"]);
}

#[tokio::test]
async fn a_delayed_member_joins_its_group_at_maturity_at_the_end() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let member = |text: &str| message(text).with_group("g");
    push(&bed.queue, &p, &[member("delayed").with_delay(Duration::from_secs(1)), member("1")]).await;
    push(&bed.queue, &p, &[member("2")]).await;
    clock.advance(Duration::from_secs(1));
    push(&bed.queue, &p, &[member("3")]).await;
    assert_eq!(drain(&bed.queue, &p).await, ["1", "2", "delayed", "3"]);
}

#[tokio::test]
async fn dead_letters_know_neither_groups_nor_keys() {
    let bed = Bed::new().await;
    let dead = part("p").dead_letters();
    let twin = |text: &str| message(text).with_group("g").with_dedup_key("k");
    push(&bed.queue, &dead, &[twin("1"), twin("2")]).await;
    let got = pull(&bed.queue, &dead, 10).await;
    assert_eq!(texts(&got), ["1", "2"]);
    // Redriven, the group counts again.
    for delivery in &got {
        assert_eq!(settle(&bed.queue, &delivery.lease, move_to(&part("p"))).await, SettleOutcome::Settled);
    }
    let live = pull(&bed.queue, &part("p"), 10).await;
    assert_eq!(texts(&live), ["1"]);
    assert_eq!(live[0].delivery_count, Some(1), "a move begins to count anew");
}

#[tokio::test]
async fn an_id_lives_once_in_a_partition_and_its_dead_letters() {
    let bed = Bed::new().await;
    let (p, q) = (part("p"), part("q"));
    let one = message("one");
    let stored = Ok(PushOutcome::Stored(one.id()));
    let twice = Ok(PushOutcome::Duplicate(Some(one.id())));
    let show = |outcomes: Vec<anyqueue::Result<PushOutcome>>| {
        outcomes.into_iter().map(|outcome| outcome.map_err(|e| e.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(show(bed.queue.push(&p, &[one.clone(), one.clone()]).await), [stored.clone(), twice.clone()]);
    let held = pull(&bed.queue, &p, 1).await;
    let dead = move_to(&p.dead_letters());
    assert_eq!(settle(&bed.queue, &held[0].lease, dead).await, SettleOutcome::Settled);
    let other = message("other");
    let other_stored = Ok(PushOutcome::Stored(other.id()));
    assert_eq!(show(bed.queue.push(&p, &[one.clone(), other]).await), [twice, other_stored]);
    assert_eq!(drain(&bed.queue, &p.dead_letters()).await, ["one"]);
    assert_eq!(show(bed.queue.push(&p, std::slice::from_ref(&one)).await), std::slice::from_ref(&stored));
    assert_eq!(show(bed.queue.push(&q, &[one]).await), [stored], "another partition's is another message");
    assert_eq!(drain(&bed.queue, &p).await, ["other", "one"]);
    assert_eq!(drain(&bed.queue, &q).await, ["one"]);
}

#[tokio::test]
async fn a_message_moved_to_where_its_id_lives_becomes_one_with_it() {
    let bed = Bed::new().await;
    let (p, q) = (part("p"), part("q"));
    let one = message("one").with_group("g");
    for place in [&p, &q] {
        push(&bed.queue, place, &[one.clone(), message("next").with_group("g")]).await;
    }
    let held = pull(&bed.queue, &p, 1).await;
    let there = move_to(&q);
    assert_eq!(settle(&bed.queue, &held[0].lease, there).await, SettleOutcome::Settled);
    assert_eq!(drain(&bed.queue, &p).await, ["next"], "its group goes on");
    assert_eq!(drain(&bed.queue, &q).await, ["one", "next"]);
}

#[tokio::test]
async fn a_key_is_held_while_its_message_lives_in_the_partition() {
    let bed = Bed::new().await;
    let (p, q) = (part("p"), part("q"));
    let keyed = |text: &str| message(text).with_dedup_key("k");
    let first = keyed("first");
    let push_one = async |p: &anyqueue::PartitionId, m: &MessageData| {
        bed.queue.push(p, std::slice::from_ref(m)).await.remove(0).unwrap()
    };
    let both = bed.queue.push(&p, &[first.clone(), keyed("same batch")]).await;
    assert_eq!(*both[1].as_ref().unwrap(), PushOutcome::Duplicate(Some(first.id())));
    assert_eq!(push_one(&p, &keyed("later")).await, PushOutcome::Duplicate(Some(first.id())));
    assert!(matches!(push_one(&q, &keyed("elsewhere")).await, PushOutcome::Stored(_)));
    let held = pull(&bed.queue, &p, 1).await;
    assert_eq!(push_one(&p, &keyed("while leased")).await, PushOutcome::Duplicate(Some(first.id())));
    settle(&bed.queue, &held[0].lease, postpone(LEASE)).await;
    assert_eq!(push_one(&p, &keyed("while postponed")).await, PushOutcome::Duplicate(Some(first.id())));
    let held = pull(&bed.queue, &q, 1).await;
    settle(&bed.queue, &held[0].lease, move_to(&q.dead_letters())).await;
    assert!(matches!(push_one(&q, &keyed("death frees")).await, PushOutcome::Stored(_)));
    // Redriven, the dead one does not take the key again.
    let dead = pull(&bed.queue, &q.dead_letters(), 1).await;
    settle(&bed.queue, &dead[0].lease, move_to(&q)).await;
    assert_eq!(drain(&bed.queue, &q).await, ["death frees", "elsewhere"]);
    assert!(matches!(push_one(&q, &keyed("removal frees")).await, PushOutcome::Stored(_)));
}

#[tokio::test]
async fn sixteen_pushes_of_one_key_at_once_make_one_message() {
    let bed = Bed::new().await;
    let p = part("p");
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (queue, p) = (bed.queue.clone(), p.clone());
            tokio::spawn(async move {
                queue.push(&p, &[message(&n.to_string()).with_dedup_key("k")]).await.remove(0)
            })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += usize::from(matches!(task.await.unwrap().unwrap(), PushOutcome::Stored(_)));
    }
    assert_eq!((stored, drain(&bed.queue, &p).await.len()), (1, 1));
}
