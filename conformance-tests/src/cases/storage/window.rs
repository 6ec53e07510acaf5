//! Deduplication that lasts for a time: a message that is pushed again with a key is dropped, whether or not
//! that is reported.

use std::collections::HashSet;

use anyqueue::adapter::Action;
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, Result};
use futures_util::future::join_all;

use super::helpers::{push_one, removes};
use super::successors::followed;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "window.second_is_dropped", [Deduplication], second_is_dropped)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowIgnored, Fault::WindowPerClient]),
    case!(Storage, "window.in_one_batch", [PushResults, Deduplication], in_one_batch)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowIgnored]),
    case!(Storage, "window.outlives_its_message", [Deduplication], outlives_its_message)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowEndsWithMessage]),
    case!(Storage, "window.sixteen_at_once", [Deduplication], sixteen_at_once)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowRace]),
    case!(Storage, "window.of_partition_and_key", [PartitionsApart, Deduplication], of_partition_and_key)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowAcrossPartitions, Fault::WindowKeysCaseless]),
    case!(Storage, "window.moves_are_no_pushes", [Deduplication, SettleActions], moves_are_no_pushes)
        .needs(&[Need::DedupWindow])
        .kills(&[Fault::WindowDropsMoved]),
    case!(Storage, "window.successors_are_no_pushes", [Deduplication, Successors], successors_are_no_pushes)
        .needs(&[Need::DedupWindow, Need::Successors])
        .kills(&[Fault::WindowDropsSuccessors]),
];

fn keyed(c: &Context) -> MessageData {
    c.message().with_dedup_key("the key")
}

/// Each push is stored, or a duplicate of a message that this partition has had.
fn told(c: &Context, pushed: &[MessageId], answers: Vec<Result<PushOutcome>>) -> CaseResult {
    let count = answers.len();
    c.equal(Clause::PushResults, pushed, "the number of answers", &pushed.len(), &count)?;
    for (own, answer) in pushed.iter().zip(answers) {
        let right = match c.ok(Clause::Deduplication, "each push", answer)? {
            PushOutcome::Stored(id) => id == *own,
            PushOutcome::Duplicate(first) => first.is_none_or(|first| first != *own),
            PushOutcome::Replaced(_) => false,
        };
        c.check(Clause::Deduplication, &[*own], right, "Stored or Duplicate", "another answer")?;
    }
    Ok(())
}

/// Pushes a second message with the key.
async fn again(c: &Context, p: &PartitionId) -> CaseResult {
    let message = keyed(c);
    let answers = c.client().storage().push(p, std::slice::from_ref(&message)).await;
    told(c, &[message.id()], answers)
}

async fn second_is_dropped(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, keyed(c)).await?;
    again(c, &p).await?;
    let other = keyed(c);
    let answers = c.fresh().await?.storage().push(&p, std::slice::from_ref(&other)).await;
    told(c, &[other.id()], answers)?;
    let without = push_one(c, &p, c.message()).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "the first with the key, and one without", &[first, without], &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "nothing else").await?;
    c.client().remove(&got).await
}

/// The neighbours in the batch are not affected.
async fn in_one_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let batch = [keyed(c), keyed(c), c.message()];
    let pushed = batch.each_ref().map(MessageData::id);
    let answers = c.client().storage().push(&p, &batch).await;
    told(c, &pushed, answers)?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "the first and the one without a key", &[pushed[0], pushed[2]], &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "nothing else").await?;
    c.client().remove(&got).await
}

/// The key is still remembered when its message is done.
async fn outlives_its_message(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, keyed(c)).await?;
    removes(c, Clause::Deduplication, "the first", &p, &[first]).await?;
    again(c, &p).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "nothing within the window").await
}

async fn sixteen_at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = [c.client().clone(), c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let messages: Vec<_> = (0..16).map(|_| keyed(c)).collect();
    let pushed: Vec<_> = messages.iter().map(MessageData::id).collect();
    let each = messages.iter().zip(clients.iter().cycle());
    let calls = each.map(|(message, client)| client.storage().push(&p, std::slice::from_ref(message)));
    told(c, &pushed, join_all(calls).await.concat())?;
    let got = c.client().take(&p, 1).await?;
    let one_of_them = ids(&got).iter().all(|id| pushed.contains(id));
    c.check(Clause::Deduplication, &ids(&got), one_of_them, "one of the sixteen", "another message")?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "one message only").await?;
    c.client().remove(&got).await
}

/// Each partition has its own keys, and keys that differ in one byte are different.
async fn of_partition_and_key(c: &Context) -> CaseResult {
    for name in ["a", "b"] {
        let p = c.partition(name)?;
        let keyed = |key: &&str| c.message().with_dedup_key(*key);
        let sent = c.client().push(&p, &super::dedup::NEARLY_EQUAL.each_ref().map(keyed)).await?;
        let got = c.client().take(&p, sent.len()).await?;
        c.same(Clause::Deduplication, "one for each key", &sent, &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// A message that is moved away, dies, or is redriven is not dropped because of the key that its push has
/// used up.
async fn moves_are_no_pushes(c: &Context) -> CaseResult {
    let (p, to) = (c.partition("work")?, c.partition("to")?);
    let there = push_one(c, &to, keyed(c)).await?;
    removes(c, Clause::Deduplication, "the first there", &to, &[there]).await?;
    let id = push_one(c, &p, keyed(c)).await?;
    for (from, next) in [(&p, p.dead_letters()), (&p.dead_letters(), p.clone()), (&p, to.clone())] {
        let held = c.client().take(from, 1).await?;
        c.in_order(Clause::Deduplication, "the one with the key", &[id], &held)?;
        c.client().settle_all(&held, &Action::Move { to: next, headers: None }).await?;
    }
    removes(c, Clause::Deduplication, "the moved one", &to, &[id]).await
}

/// A successor with the key of its predecessor, such as a task's next attempt, is stored.
async fn successors_are_no_pushes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, keyed(c)).await?;
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let [held] = c.client().take_exact(&p).await?;
        let new = seen.insert(held.lease.id);
        c.check(Clause::Successors, &[held.lease.id], new, "the next one", "one that has ended")?;
        c.client().settle(&[followed(&held, Action::Remove, &p, [keyed(c)])]).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}
