//! Groups that are claimed whole: who comes, in what order, and what becomes of the others.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{Amend, DeleteOutcome, MessageData, PartitionId, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::amend::{DAY, amend_one, let_time_pass};
use crate::common::{Bed, LEASE, part, pull, remove, run, texts};
use crate::older_release::{make_old, push_old};
use crate::successors::{drain, removal, with};

pub(crate) fn member(text: &str) -> MessageData {
    MessageData::new(text).with_group("g")
}

pub(crate) async fn pull_whole(
    queue: &PostgresQueue,
    partition: &PartitionId,
    max: usize,
    members: usize,
) -> Vec<RawDelivery> {
    let request = PullRequest::new(max, Duration::ZERO, LEASE).with_group_members(members);
    queue.pull(partition, request).await.unwrap()
}

pub(crate) async fn settle(queue: &PostgresQueue, held: &RawDelivery, action: Action) {
    let settlement = Settlement::new(held.lease.clone(), action);
    assert_eq!(queue.settle(&[settlement]).await.remove(0).unwrap(), SettleOutcome::Settled);
}

async fn push_all(queue: &PostgresQueue, partition: &PartitionId, messages: &[MessageData]) {
    for outcome in queue.push(partition, messages).await {
        outcome.unwrap();
    }
}

fn members<const N: usize>(texts: [&str; N]) -> [MessageData; N] {
    texts.map(member)
}

#[tokio::test]
async fn members_come_behind_their_first_in_the_order_of_the_group_and_others_around_them() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let [a, urgent, c] = members(["a", "b", "c"]);
    let other = |text: &str| MessageData::new(text).with_group("h");
    let delayed = member("delayed").with_delay(DAY);
    let messages =
        [a, delayed, MessageData::new("alone"), other("x"), urgent.with_priority(9), other("y"), c];
    push_all(&queue, &p, &messages).await;
    let held = pull_whole(&queue, &p, 9, 9).await;
    assert_eq!(texts(&held), ["a", "b", "c", "alone", "x", "y"]);
    assert!(held.iter().all(|held| held.delivery_count == Some(1)));
    assert!(pull(&queue, &p, 9).await.is_empty(), "somebody holds all");
    assert_eq!(queue.counts(&p).await.unwrap().leased, Some(6));
}

#[tokio::test]
async fn the_most_members_and_max_cut_and_the_rest_stays_in_line() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b", "c", "d", "e"])).await;
    push_all(&queue, &p, &[MessageData::new("alone")]).await;
    let held = pull_whole(&queue, &p, 9, 2).await;
    assert_eq!(texts(&held), ["a", "b", "alone"]);
    let ends: Vec<_> = held.iter().map(|held| removal(held, &[])).collect();
    queue.settle(&ends).await;
    let held = pull_whole(&queue, &p, 2, 9).await;
    assert_eq!(texts(&held), ["c", "d"]);
    assert!(pull_whole(&queue, &p, 9, 9).await.is_empty());
    settle(&queue, &held[0], Action::Remove).await;
    assert!(pull_whole(&queue, &p, 9, 9).await.is_empty(), "one is still held");
    settle(&queue, &held[1], Action::Remove).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["e"]);
}

#[tokio::test]
async fn one_that_comes_back_waits_for_the_others_and_is_first_then() {
    let Some(bed) = Bed::find().await else { return };
    for (number, action) in [Action::Release, Action::Retry, postpone(Duration::ZERO)].into_iter().enumerate()
    {
        let (queue, p) = (bed.open().await, part(&format!("p{number}")));
        push_all(&queue, &p, &members(["a", "b", "c", "d"])).await;
        let held = pull_whole(&queue, &p, 3, 9).await;
        settle(&queue, &held[0], action.clone()).await;
        settle(&queue, &held[2], action).await;
        assert!(pull_whole(&queue, &p, 9, 9).await.is_empty());
        settle(&queue, &held[1], Action::Remove).await;
        assert_eq!(texts(&pull(&queue, &p, 9).await), ["a"]);
        assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
        let queue = end_leases(&bed).await;
        assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["a", "c", "d"]);
    }
}

fn postpone(delay: Duration) -> Action {
    Action::Postpone { delay, headers: None }
}

async fn end_leases(bed: &Bed) -> PostgresQueue {
    bed.run(format!(
        "UPDATE {}.message SET until = now() - interval '1 s', due = now() - interval '1 s' WHERE state = 1",
        bed.schema
    ))
    .await;
    bed.open().await
}

#[tokio::test]
async fn members_whose_leases_end_together_come_again_in_order_and_lost_ones_change_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b", "c"])).await;
    let lost = pull_whole(&queue, &p, 2, 9).await;
    let queue = end_leases(&bed).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["a"]);
    for lost in &lost {
        assert_eq!(remove(&queue, &lost.lease).await, SettleOutcome::Lost);
    }
    settle(&queue, &held[0], Action::Remove).await;
    assert_eq!(drain(&queue, &p).await, ["b", "c"]);
}

#[tokio::test]
async fn a_postponed_member_holds_its_group_and_comes_at_its_place() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b", "c"])).await;
    let held = pull_whole(&queue, &p, 2, 2).await;
    settle(&queue, &held[0], postpone(DAY)).await;
    settle(&queue, &held[1], Action::Release).await;
    assert!(pull_whole(&queue, &p, 9, 9).await.is_empty());
    let queue = let_time_pass(&bed).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["a", "b", "c"]);
}

#[tokio::test]
async fn members_that_are_taken_away_while_others_are_held_leave_the_others_their_places() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = members(["a", "b", "c", "d", "e", "f", "g"]);
    push_all(&queue, &p, &all).await;
    let held = pull_whole(&queue, &p, 2, 9).await;
    let [_, held_too, deleted, disabled, moved, _, _] = &all;
    assert_eq!(queue.delete(&p, &[deleted.id()]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    assert_eq!(queue.delete(&p, &[held_too.id()]).await.remove(0).unwrap(), DeleteOutcome::Leased);
    amend_one(&queue, &p, disabled, Amend::new().disable()).await;
    amend_one(&queue, &p, moved, Amend::new().with_group("h")).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["e"]);
    settle(&queue, &held[1], Action::Release).await;
    amend_one(&queue, &p, held_too, Amend::new().with_group("h")).await;
    settle(&queue, &held[0], Action::Remove).await;
    amend_one(&queue, &p, disabled, Amend::new().enable()).await;
    let queue = end_leases(&bed).await;
    assert_eq!(drain(&queue, &p).await, ["e", "f", "d", "b", "g"]);
}

#[tokio::test]
async fn one_that_joins_a_group_while_it_is_disabled_stands_where_it_joined() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let early = MessageData::new("early").with_group("other");
    push_all(&queue, &p, &[early.clone(), member("a"), member("b")]).await;
    amend_one(&queue, &p, &early, Amend::new().disable().with_group("g")).await;
    push_all(&queue, &p, &[member("c")]).await;
    amend_one(&queue, &p, &early, Amend::new().enable()).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["a", "b", "early", "c"]);
}

#[tokio::test]
async fn a_successor_joins_the_line_and_comes_when_all_members_have_ended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b"])).await;
    let held = pull_whole(&queue, &p, 9, 9).await;
    let back = with(&held[1].lease, Action::Release, &[(&p, member("c"))]);
    queue.settle(&[back]).await.remove(0).unwrap();
    let request = PullRequest::new(9, Duration::ZERO, LEASE).with_group_members(9);
    let (ended, next) = queue.exchange(&[removal(&held[0], &[(&p, member("d"))])], &p, request).await;
    assert_eq!(*ended[0].as_ref().unwrap(), SettleOutcome::Settled);
    let next = next.unwrap();
    assert_eq!(texts(&next), ["b", "c", "d"]);
    let ends: Vec<_> = next.iter().map(|held| removal(held, &[])).collect();
    push_all(&queue, &p, &members(["e", "f"])).await;
    let request = PullRequest::new(9, Duration::ZERO, LEASE).with_group_members(9);
    let (ended, next) = queue.exchange(&ends, &p, request).await;
    assert!(ended.iter().all(|ended| *ended.as_ref().unwrap() == SettleOutcome::Settled));
    assert_eq!(texts(&next.unwrap()), ["e", "f"]);
}

#[tokio::test]
async fn nobody_claims_past_a_member_that_somebody_has_locked_or_waits_for_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    push_all(&queue, &p, &members(["a", "b", "locked", "d"])).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let lock = format!("SELECT FROM {schema}.message WHERE position('locked'::bytea IN body) > 0 FOR UPDATE");
    run(&mut tx, lock).await;
    let held = pull_whole(&queue, &p, 9, 9).await;
    assert_eq!(texts(&held), ["a", "b"]);
    tx.rollback().await.unwrap();
    for held in &held {
        settle(&queue, held, Action::Remove).await;
    }
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["locked", "d"]);
}

#[tokio::test]
async fn members_from_a_transaction_of_the_application_join_while_others_are_held() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b"])).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &members(["c", "d"])).await.unwrap();
    let held = pull_whole(&queue, &p, 9, 9).await;
    assert_eq!(texts(&held), ["a", "b"]);
    tx.commit().await.unwrap();
    pushed.after_commit.notify();
    assert!(pull_whole(&queue, &p, 9, 9).await.is_empty());
    for held in &held {
        settle(&queue, held, Action::Remove).await;
    }
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["c", "d"]);
}

/// The head was postponed before, so that its position is behind those of the others.
#[tokio::test]
async fn a_held_head_of_an_older_release_is_still_the_first_of_its_group() {
    let Some(bed) = Bed::empty().await else { return };
    let (mut conn, schema, p) = (bed.connect().await, &bed.schema, part("p"));
    make_old(&mut conn, schema, 2).await;
    for text in ["head", "b", "c"] {
        push_old(&mut conn, schema, &member(text)).await;
    }
    let all = "ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL";
    let claim = format!("{schema}.pull('p', false, 9, 60000, gen_random_uuid(), {all})");
    run(&mut conn, format!("SELECT FROM {claim}")).await;
    run(&mut conn, format!(
        "SELECT b.* FROM {schema}.message m, {schema}.give_back(ARRAY[m.part], ARRAY[m.id], ARRAY[m.token], ARRAY[3]::smallint[], ARRAY[0]::bigint[], ARRAY[NULL]::bytea[]) b
         WHERE m.state = 1"
    ))
    .await;
    run(&mut conn, format!("SELECT FROM {claim}")).await;
    let queue = bed.open().await;
    push_all(&queue, &p, &members(["d"])).await;
    assert!(pull_whole(&queue, &p, 9, 9).await.is_empty(), "the head is held");
    let queue = {
        drop(queue);
        end_leases(&bed).await
    };
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["head", "b", "c", "d"]);
}

#[tokio::test]
async fn dead_letters_are_pulled_one_by_one_whatever_groups_they_were_of() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push_all(&queue, &p, &members(["a", "b", "c"])).await;
    let dead = p.dead_letters();
    let held = pull_whole(&queue, &p, 2, 9).await;
    settle(&queue, &held[0], Action::Move { to: dead.clone(), headers: None }).await;
    settle(&queue, &held[1], Action::Move { to: dead.clone(), headers: None }).await;
    let held = pull_whole(&queue, &dead, 9, 9).await;
    assert_eq!(texts(&held), ["a", "b"]);
    settle(&queue, &held[0], Action::Move { to: p.clone(), headers: None }).await;
    assert_eq!(texts(&pull_whole(&queue, &p, 9, 9).await), ["c", "a"]);
}
