//! Groups claimed whole: who comes with whom, and who is next when some come back.

use std::time::Duration;

use anyqueue::adapter::{Action, Extension, InspectQueueStorage, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue::{Amend, DeleteOutcome, ExtendOutcome, MessageData, PartitionId};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::Redis;
use redis::Value;

use crate::amend::{SHORT, amend, assert_left_nothing};
use crate::common::{Bed, LEASE, command, in_time, part, pull, pull_wait, push, settle, texts};
use crate::successors_across_slots::Beds;

const ALL: usize = 100;

fn members(group: &str, texts: &[&str]) -> Vec<MessageData> {
    texts.iter().map(|text| MessageData::new(text).with_group(group)).collect()
}

pub(crate) async fn pull_whole(
    queue: &RedisQueue,
    p: &PartitionId,
    max: usize,
    members: usize,
) -> Vec<RawDelivery> {
    let request = PullRequest::new(max, Duration::ZERO, LEASE).with_group_members(members);
    queue.pull(p, request).await.unwrap()
}

/// Takes and removes one after the other.
async fn drain(queue: &RedisQueue, p: &PartitionId) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let held = pull(queue, p, ALL).await;
        if held.is_empty() {
            return all;
        }
        all.extend(texts(&held));
        settle(queue, &held, Action::Remove).await;
    }
}

/// Pushes members 0 to 4 of one group, and takes the first three.
async fn hold_three(queue: &RedisQueue, p: &PartitionId) -> (Vec<MessageData>, Vec<RawDelivery>) {
    let all = members("g", &["0", "1", "2", "3", "4"]);
    push(queue, p, &all).await;
    let held = pull_whole(queue, p, ALL, 3).await;
    assert_eq!(texts(&held), ["0", "1", "2"]);
    (all, held)
}

#[tokio::test]
async fn members_come_in_order_behind_their_head_and_nobody_else_until_all_have_ended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut all = members("a", &["a0", "a1", "a2", "a3"]);
    all[2] = all[2].clone().with_priority(9); // in line, whatever its priority
    all.insert(1, MessageData::new("x"));
    all.extend(members("b", &["b0", "b1"]));
    push(&queue, &p, &all).await;
    let held = pull_whole(&queue, &p, ALL, 3).await;
    assert_eq!(texts(&held), ["a0", "a1", "a2", "x", "b0", "b1"]);
    assert!(held.iter().all(|one| one.delivery_count == Some(1)));
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(1), Some(6)));
    for one in [0, 2] {
        settle(&queue, &held[one..=one], Action::Remove).await;
        assert!(pull_whole(&queue, &p, ALL, 3).await.is_empty());
    }
    settle(&queue, &held[1..2], Action::Remove).await;
    assert_eq!(texts(&pull(&queue, &p, ALL).await), ["a3"]);
}

#[tokio::test]
async fn who_asks_for_the_first_alone_gets_it_alone() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (_, held) = hold_three(&queue, &p).await;
    settle(&queue, &held, Action::Remove).await;
    let held = pull(&queue, &p, ALL).await;
    assert_eq!(texts(&held), ["3"]);
    settle(&queue, &held, Action::Remove).await;
    assert_eq!(drain(&queue, &p).await, ["4"]);
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn max_counts_messages_and_cuts_the_last_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &members("a", &["a0", "a1", "a2"])).await;
    push(&queue, &p, &members("b", &["b0", "b1", "b2"])).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 5, 3).await), ["a0", "a1", "a2", "b0", "b1"]);
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(1), Some(5)));
    push(&queue, &p, &members("c", &["c0", "c1"])).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 1, 3).await), ["c0"]);
    assert_eq!(pull_whole(&queue, &p, ALL, 3).await.len(), 0);
    // What is on offer behind a group that fills it stays there.
    push(&queue, &p, &members("e", &["e0", "e1", "e2"])).await;
    push(&queue, &p, &members("f", &["f0"])).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 3, 3).await), ["e0", "e1", "e2"]);
    assert_eq!(texts(&pull_whole(&queue, &p, 3, 3).await), ["f0"]);
    // Also where heads without others fill it.
    for number in 0..30 {
        push(&queue, &p, &members(&format!("d{number}"), &["d"])).await;
    }
    assert_eq!(pull_whole(&queue, &p, 20, 7).await.len(), 20);
    assert_eq!(pull_whole(&queue, &p, 20, 7).await.len(), 10);
}

#[tokio::test]
async fn one_that_is_released_waits_for_the_others_and_comes_first_then() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for (action, count) in [(Action::Release, 1), (Action::Retry, 2)] {
        let (_, held) = hold_three(&queue, &p).await;
        settle(&queue, &held[..1], action).await;
        assert!(pull(&queue, &p, ALL).await.is_empty());
        assert_eq!(queue.counts(&p).await.unwrap().ready, Some(3));
        settle(&queue, &held[1..], Action::Remove).await;
        let again = pull_whole(&queue, &p, ALL, 2).await;
        let counts: Vec<_> = again.iter().map(|one| one.delivery_count.unwrap()).collect();
        assert_eq!((texts(&again), counts), (vec!["0".into(), "3".into()], vec![count, 1]));
        settle(&queue, &again, Action::Remove).await;
        assert_eq!(drain(&queue, &p).await, ["4"]);
    }
    assert_left_nothing(&bed, &p).await;
}

/// As it was released, it is ahead of what was never delivered when its turn comes.
#[tokio::test]
async fn those_that_were_released_keep_their_order_and_go_ahead_of_what_is_new() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (_, held) = hold_three(&queue, &p).await;
    push(&queue, &p, &[MessageData::new("new")]).await;
    settle(&queue, &[held[1].clone(), held[0].clone()], Action::Release).await;
    settle(&queue, &held[2..], Action::Remove).await;
    for text in ["0", "1"] {
        let held = pull(&queue, &p, 1).await;
        assert_eq!(texts(&held), [text]);
        settle(&queue, &held, Action::Remove).await;
    }
    assert_eq!(drain(&queue, &p).await, ["new", "3", "4"]);
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn a_group_whose_leases_end_one_after_the_other_comes_again_in_its_order() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let longer = |one: &RawDelivery, times| Extension { lease: one.lease.clone(), duration: SHORT * times };
    let (p, (held, outcomes)) = in_time(SHORT, async |p| {
        push(&queue, &p, &members("g", &["0", "1", "2", "3"])).await;
        let request = PullRequest::new(ALL, Duration::ZERO, SHORT).with_group_members(3);
        let held = queue.pull(&p, request).await.unwrap();
        let outcomes = queue.extend(&[longer(&held[0], 4), longer(&held[2], 100)]).await;
        (held, outcomes)
    })
    .await;
    for outcome in outcomes {
        assert_eq!(outcome.unwrap(), ExtendOutcome::Extended);
    }
    tokio::time::sleep(SHORT * 2).await;
    assert!(pull(&queue, &p, ALL).await.is_empty(), "one lease ended");
    tokio::time::sleep(SHORT * 4).await;
    assert!(pull(&queue, &p, ALL).await.is_empty(), "two leases ended");
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(3));
    settle(&queue, &held[2..], Action::Retry).await;
    let again = pull_whole(&queue, &p, ALL, ALL).await;
    assert_eq!(texts(&again), ["0", "1", "2", "3"]);
    let counts: Vec<_> = again.iter().map(|one| one.delivery_count.unwrap()).collect();
    assert_eq!(counts, [2, 2, 2, 1]);
    // All in one piece.
    let ends: Vec<_> = again.iter().map(|one| longer(one, 1)).collect();
    assert!(queue.extend(&ends).await.into_iter().all(|outcome| outcome.is_ok()));
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(drain(&queue, &p).await, ["0", "1", "2", "3"]);
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn a_postponed_member_holds_its_group_and_stands_at_its_own_place_when_it_is_due() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let (p, early) = in_time(SHORT * 4, async |p| {
        let (_, held) = hold_three(&queue, &p).await;
        settle(&queue, &held[..1], Action::Postpone { delay: SHORT, headers: None }).await;
        settle(&queue, &held[1..2], Action::Remove).await;
        tokio::time::sleep(SHORT * 2).await;
        assert!(pull(&queue, &p, ALL).await.is_empty(), "it is due, and another is held");
        settle(&queue, &held[2..], Action::Release).await;
        let held = pull_whole(&queue, &p, ALL, 2).await;
        assert_eq!(texts(&held), ["0", "2"]);
        settle(&queue, &held[..1], Action::Postpone { delay: SHORT * 2, headers: None }).await;
        settle(&queue, &held[1..], Action::Release).await;
        // As all of them take no longer than both delays, the second is not over.
        pull(&queue, &p, ALL).await
    })
    .await;
    assert!(early.is_empty(), "a postponed one holds the group");
    assert_eq!(texts(&pull_wait(&queue, &p, ALL).await), ["0"]);
}

#[tokio::test]
async fn members_that_are_deleted_disabled_or_regrouped_leave_the_front_of_the_held_as_it_is() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (all, held) = hold_three(&queue, &p).await;
    settle(&queue, &held[..2], Action::Release).await;
    assert_eq!(queue.delete(&p, &[all[0].id()]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    amend(&queue, &p, &[&all[1]], Amend::new().disable()).await;
    amend(&queue, &p, &[&all[3]], Amend::new().with_group("h")).await;
    assert_eq!(texts(&pull(&queue, &p, ALL).await), ["3"], "in its new group it is the first");
    assert!(pull(&queue, &p, ALL).await.is_empty());
    amend(&queue, &p, &[&all[1]], Amend::new().enable()).await;
    assert!(pull(&queue, &p, ALL).await.is_empty());
    settle(&queue, &held[2..], Action::Release).await;
    assert_eq!(drain(&queue, &p).await, ["1", "2", "4"]);
}

#[tokio::test]
async fn one_that_is_enabled_goes_before_a_later_one_that_comes_back() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = members("g", &["0", "1", "2"]);
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0]], Amend::new().disable()).await;
    let held = pull(&queue, &p, ALL).await;
    assert_eq!(texts(&held), ["1"]);
    amend(&queue, &p, &[&all[0]], Amend::new().enable()).await;
    settle(&queue, &held, Action::Release).await;
    assert_eq!(drain(&queue, &p).await, ["0", "1", "2"]);
    // Its place in a new group is the one of the moment at which it was put there.
    push(&queue, &p, &members("g", &["3"])).await;
    let moved = members("f", &["moved"]);
    push(&queue, &p, &moved).await;
    amend(&queue, &p, &[&moved[0]], Amend::new().disable()).await;
    amend(&queue, &p, &[&moved[0]], Amend::new().with_group("g")).await;
    push(&queue, &p, &members("g", &["4"])).await;
    amend(&queue, &p, &[&moved[0]], Amend::new().enable()).await;
    assert_eq!(texts(&pull_whole(&queue, &p, ALL, ALL).await), ["3", "moved", "4"]);
}

/// What becomes urgent while it is held or waits in line has its level when its turn comes.
#[tokio::test]
async fn a_member_that_becomes_urgent_stays_at_its_place_in_its_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut all = members("g", &["0", "1", "2"]);
    all[1] = all[1].clone().with_urgent_after(SHORT);
    push(&queue, &p, &all).await;
    let held = pull_whole(&queue, &p, ALL, 2).await;
    settle(&queue, &held[1..], Action::Release).await;
    tokio::time::sleep(SHORT * 2).await;
    push(&queue, &p, &[MessageData::new("x").with_priority(5)]).await;
    assert_eq!(texts(&pull(&queue, &p, ALL).await), ["x"]);
    settle(&queue, &held[..1], Action::Release).await;
    let first = pull(&queue, &p, ALL).await;
    settle(&queue, &first, Action::Remove).await;
    push(&queue, &p, &[MessageData::new("y").with_priority(5)]).await;
    assert_eq!(
        (texts(&first), drain(&queue, &p).await),
        (vec!["0".into()], vec!["1".into(), "y".into(), "2".into()])
    );
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn one_on_offer_that_becomes_urgent_stays_on_offer() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut all = members("g", &["0", "1", "2"]);
    all[1] = all[1].clone().with_urgent_after(SHORT);
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0]], Amend::new().disable()).await; // now the next one is on offer
    amend(&queue, &p, &[&all[0]], Amend::new().enable()).await;
    push(&queue, &p, &[MessageData::new("x").with_priority(5)]).await;
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(drain(&queue, &p).await, ["1", "x", "0", "2"]);
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn a_partition_is_of_the_fourth_layout_once_a_group_was_claimed_whole_and_not_before() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let layout = || async { bed.run(&format!("ZSCORE {}:partitions p", bed.prefix)).await };
    push(&queue, &p, &members("alone", &["x"])).await;
    settle(&queue, &pull_whole(&queue, &p, ALL, 3).await, Action::Remove).await;
    assert_eq!(layout().await, Value::BulkString(b"2".to_vec()));
    let (_, held) = hold_three(&queue, &p).await;
    assert_eq!(layout().await, Value::BulkString(b"4".to_vec()));
    settle(&bed.open().await, &held, Action::Remove).await;
}

#[tokio::test]
async fn purging_leaves_what_is_held_and_nothing_else() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (all, held) = hold_three(&queue, &p).await;
    settle(&queue, &held[..1], Action::Release).await;
    settle(&queue, &held[1..2], Action::Postpone { delay: LEASE, headers: None }).await;
    amend(&queue, &p, &[&all[4]], Amend::new().disable()).await;
    assert_eq!(queue.purge(&p, 100).await.unwrap(), 4);
    settle(&queue, &held[2..], Action::Remove).await;
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn in_a_cluster_a_member_dies_in_its_slot_or_moves_to_another_and_its_group_goes_on() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let ([p, q, _], queue) = (beds.names(), beds.open().await);
    let (p, q) = (part(p), part(q));
    let (_, held) = hold_three(&queue, &p).await;
    settle(&queue, &held[..1], Action::Move { to: q.dead_letters(), headers: None }).await;
    settle(&queue, &held[1..2], Action::Move { to: p.dead_letters(), headers: None }).await;
    assert!(pull(&queue, &p, ALL).await.is_empty());
    settle(&queue, &held[2..], Action::Move { to: q.clone(), headers: None }).await;
    assert_eq!(drain(&queue, &p).await, ["3", "4"]);
    assert_eq!(texts(&pull_whole(&queue, &q, ALL, 9).await), ["2"]);
    // Dead letters know no groups; those that are redriven join at the end.
    let dead = pull_whole(&queue, &q.dead_letters(), ALL, 9).await;
    settle(&queue, &dead, Action::Move { to: q.clone(), headers: None }).await;
    assert_eq!(queue.counts(&q).await.unwrap().ready, Some(1));
    let score = format!("ZSCORE anyqueue:partitions {}", p.name());
    let owner = slot_owner(&beds, "anyqueue:partitions").await;
    assert_eq!(command(&beds.cluster.nodes()[owner], &score).await, Value::BulkString(b"4".to_vec()));
}

/// Which of the masters a key is on.
async fn slot_owner(beds: &Beds, key: &str) -> usize {
    let slot = command(&beds.cluster.nodes()[0], &format!("CLUSTER KEYSLOT {key}")).await;
    let Value::Int(slot) = slot else { panic!("{slot:?}") };
    usize::try_from(slot / 5462).unwrap()
}
