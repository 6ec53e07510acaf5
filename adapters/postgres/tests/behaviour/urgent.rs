//! Messages that become urgent at a moment, wherever they are then.

use std::time::Duration;

use anyqueue::OnDuplicate::{Behind, Replace};
use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage, RawDelivery};
use anyqueue::{Amend, MessageData, PushOutcome};
use anyqueue_postgres::PostgresQueue;

use crate::amend::{DAY, amend_one, let_time_pass};
use crate::common::{Bed, part, pull, push, remove, texts};
use crate::compaction::{keyed, push_one};
use crate::successors::{drain, removal, with};

const NOW: Duration = Duration::ZERO;

fn urgent(text: &str) -> MessageData {
    MessageData::new(text).with_urgent_after(DAY)
}

async fn settle(queue: &PostgresQueue, held: &RawDelivery, action: Action) {
    queue.settle(&[with(&held.lease, action, &[])]).await.remove(0).unwrap();
}

#[tokio::test]
async fn what_is_urgent_by_now_comes_first_in_push_order_and_shows_the_priority_it_was_pushed_with() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let high = |text| MessageData::new(text).with_priority(9);
    queue
        .push(&p, &[MessageData::new("low"), urgent("a").with_priority(3), high("b"), urgent("c"), high("d")])
        .await;
    queue.push(&p, &[urgent("e").with_urgent_after(2 * DAY + DAY / 2)]).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["b", "d", "a", "low", "c", "e"], "not before its moment");
    for held in &held {
        settle(&queue, held, Action::Postpone { delay: NOW, headers: None }).await;
    }
    let queue = let_time_pass(&bed).await;
    push(&queue, &p, &["new"]).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["b", "d", "a", "c", "low", "e", "new"]);
    assert_eq!(held[2].message.options().priority, 3);
    assert!(held.iter().all(|held| held.message.options().urgent_after.is_none()));
}

/// Each way to become ready again after the moment.
#[tokio::test]
async fn what_was_not_ready_at_its_moment_is_of_the_highest_level_once_it_is() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str| urgent(text).with_group("g");
    let disabled = urgent("disabled");
    let delayed = urgent("delayed").with_delay(DAY + DAY / 2);
    let set = [urgent("released"), urgent("postponed"), urgent("lapsed"), member("head")];
    queue.push(&p, &set).await;
    let held = pull(&queue, &p, 4).await;
    queue.push(&p, &[member("behind"), disabled.clone(), delayed]).await;
    amend_one(&queue, &p, &disabled, Amend::new().disable()).await;
    settle(&queue, &held[1], Action::Postpone { delay: DAY, headers: None }).await;
    push(&queue, &p, &["low"]).await;
    let high = MessageData::new("high").with_priority(9);
    queue.push(&p, &[high]).await;
    bed.run(format!(
        "UPDATE {}.message SET until = until - interval '1 day', due = due - interval '1 day'
         WHERE state = 1 AND position('lapsed'::bytea IN body) > 0",
        bed.schema
    ))
    .await;
    bed.run(format!("UPDATE {}.message SET urgent = urgent - interval '2 days'", bed.schema)).await;
    settle(&queue, &held[0], Action::Release).await;
    remove(&queue, &held[3].lease).await;
    amend_one(&queue, &p, &disabled, Amend::new().enable()).await;
    let queue = let_time_pass(&bed).await;
    // What was delayed stands where its delay ended, which was before all others.
    let mut came = drain(&queue, &p).await;
    came[..2].sort(); // their order is not specified
    let expected = ["lapsed", "released", "postponed", "delayed", "behind", "disabled", "high", "low"];
    assert_eq!(came, expected);
}

#[tokio::test]
async fn a_later_priority_counts_and_a_moment_still_to_come_lifts_it_all_the_same() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (soon, later) = (urgent("soon"), urgent("later").with_urgent_after(3 * DAY));
    let behind = urgent("behind").with_group("g");
    queue
        .push(&p, &[soon.clone(), later.clone(), MessageData::new("head").with_group("g"), behind.clone()])
        .await;
    let queue = let_time_pass(&bed).await;
    // Nobody has pulled meanwhile, so nothing has been lifted yet.
    for message in [&soon, &later, &behind] {
        amend_one(&queue, &p, message, Amend::new().with_priority(4)).await;
    }
    queue.push(&p, &[MessageData::new("five").with_priority(5)]).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["five", "soon", "later", "head"]);
    for held in &held[..3] {
        settle(&queue, held, Action::Release).await;
    }
    let queue = let_time_pass(&bed).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["later", "five", "soon"]);
}

#[tokio::test]
async fn every_way_to_store_a_message_keeps_its_moment_and_moves_take_it_along() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, next) = (bed.open().await, part("p"), part("next"));
    push(&queue, &p, &["x", "y", "z"]).await;
    // Over a free key, behind what is held, and after a delivery, with a key or without.
    queue.push(&p, &[keyed("over", Replace).with_urgent_after(DAY)]).await;
    let held = pull(&queue, &p, 9).await;
    push(&queue, &p, &["low"]).await;
    let behind = keyed("behind", Behind).with_urgent_after(DAY);
    assert_eq!(push_one(&queue, &p, behind.clone()).await, PushOutcome::Stored(behind.id()));
    // What is replaced keeps its own.
    let replacing = keyed("replaced", Replace).with_urgent_after(10 * DAY);
    assert_eq!(push_one(&queue, &p, replacing).await, PushOutcome::Replaced(behind.id()));
    let then = [(&p, urgent("then")), (&p, urgent("then keyed").with_dedup_key("other"))];
    let then_over = [(&p, keyed("then over", Replace).with_dedup_key("third").with_urgent_after(DAY))];
    let brought: [&[_]; 3] = [&then[..1], &then[1..], &then_over];
    for (held, then) in held.iter().zip(brought) {
        queue.settle(&[removal(held, then)]).await.remove(0).unwrap();
    }
    settle(&queue, &held[3], Action::Release).await;
    let queue = let_time_pass(&bed).await;
    let came = drain(&queue, &p).await;
    assert_eq!(came, ["over", "replaced", "then", "then keyed", "then over", "low"]);

    queue.push(&p, &[MessageData::new("middle").with_priority(5)]).await;
    let messages =
        [urgent("in"), urgent("in g").with_group("g"), keyed("in k", Replace).with_urgent_after(DAY)];
    let pushed = queue.push_in(&mut bed.connect().await, &p, &messages).await.unwrap();
    assert!(pushed.outcomes.iter().all(Result::is_ok));
    let queue = let_time_pass(&bed).await;
    assert_eq!(drain(&queue, &p).await, ["in", "in g", "in k", "middle"]);

    let moving = [urgent("dead"), urgent("moved"), urgent("moved g").with_group("g")];
    queue.push(&next, &moving).await;
    for held in pull(&queue, &next, 3).await {
        let to = if held.message.payload() == &b"dead"[..] { next.dead_letters() } else { part("to") };
        settle(&queue, &held, Action::Move { to, headers: None }).await;
    }
    let high = [MessageData::new("high").with_priority(9), MessageData::new("middle").with_priority(5)];
    queue.push(&next.dead_letters(), &high).await;
    queue.push(&part("to"), &[high[1].clone()]).await;
    let queue = let_time_pass(&bed).await;
    assert_eq!(drain(&queue, &next.dead_letters()).await, ["dead", "high", "middle"]);
    assert_eq!(drain(&queue, &part("to")).await, ["moved", "moved g", "middle"]);
}

#[tokio::test]
async fn what_becomes_urgent_is_counted_once_and_purged_like_any_other() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let messages: Vec<_> = (0..6).map(|n| urgent(&format!("{n}"))).collect();
    queue.push(&p, &messages).await;
    for _ in 0..2 {
        let counts = queue.counts(&p).await.unwrap();
        assert_eq!((counts.ready, counts.delayed, counts.leased), (Some(6), Some(0), Some(0)));
        assert_eq!(queue.purge(&p, 2).await.unwrap(), 2);
        queue.push(&p, &[urgent("more"), urgent("more")]).await;
        drop(let_time_pass(&bed).await);
    }
    assert_eq!(queue.purge(&p, 1000).await.unwrap(), 6);
}

/// As while a long transaction keeps dead entries: pulls look only where the last one found something.
#[tokio::test]
async fn a_pull_that_looks_at_a_part_finds_what_has_become_urgent_at_an_old_place() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    queue.push(&p, &[urgent("old").with_urgent_after(NOW), urgent("older").with_urgent_after(NOW)]).await;
    queue.push(&p, &[MessageData::new("high").with_priority(9)]).await;
    let call = format!(
        "SELECT 1 / (count(*) FILTER (WHERE position('old'::bytea IN body) > 0 AND looked_us IS NULL) = 1)::integer
         FROM {schema}.pull('p', false, 1, 30000, gen_random_uuid(), ARRAY[0, 1, 2]::smallint[],
             ARRAY[0, {schema}.place_at(clock_timestamp()), 0], ARRAY[0, 1, 19]::smallint[], 10000)"
    );
    bed.run(call).await;
    assert_eq!(drain(&queue, &p).await, ["older", "high"]);
}
