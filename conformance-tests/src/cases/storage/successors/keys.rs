//! Successors whose id or deduplication key is taken, by the delivery itself or by others.

use anyqueue::SettleOutcome;
use anyqueue::adapter::Action;
use futures_util::future::join_all;

use super::super::helpers::{push_one, refused};
use super::followed;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "successors.take_over_the_key", [Successors, Deduplication], take_over_the_key)
        .needs(&[Need::Successors, Need::DedupWhileLive])
        .kills(&[Fault::SuccessorsBeforeEnd]),
    case!(Storage, "successors.take_over_the_id", [Successors], take_over_the_id)
        .needs(&[Need::Successors, Need::UniqueIds, Need::AtomicSuccessors])
        .kills(&[Fault::SuccessorsBeforeEnd]),
    case!(Storage, "successors.key_in_use", [Successors, Deduplication], key_in_use)
        .needs(&[Need::Successors, Need::DedupWhileLive])
        .kills(&[Fault::DuplicateSuccessorFails, Fault::SuccessorsIgnoreKeys]),
    case!(Storage, "successors.id_in_use", [Successors], id_in_use)
        .needs(&[Need::Successors, Need::UniqueIds])
        .kills(&[Fault::DuplicateSuccessorFails, Fault::SuccessorsIgnoreKeys]),
    case!(Storage, "successors.one_key_from_many", [Successors, Deduplication], one_key_from_many)
        .needs(&[Need::Successors, Need::DedupWhileLive])
        .kills(&[Fault::SuccessorsIgnoreKeys]),
];

/// How many deliveries end at once, each with a successor of one key.
const MANY: usize = 20;

/// A task that is followed by the next of its kind keeps its deduplication key: it is free for the successor,
/// and for nothing else.
async fn take_over_the_key(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_dedup_key("k")).await?;
    for _ in 0..4 {
        let [held] = c.client().take_exact(&p).await?;
        let successor = c.message().with_dedup_key("k");
        let id = successor.id();
        c.client().settle(&[followed(&held, Action::Remove, &p, [successor])]).await?;
        refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k")).await?;
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::Successors, "the successor with the key", &[id], &got)?;
        c.client().settle_all(&got, &Action::Release).await?;
    }
    let last = c.client().take(&p, 1).await?;
    c.client().remove(&last).await
}

/// A message can follow itself: its id is free once it has ended.
async fn take_over_the_id(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, c.message()).await?;
    for round in 0..4 {
        let [held] = c.client().take_exact(&p).await?;
        c.equal(Clause::Successors, &[id], "the id", &id, &held.lease.id)?;
        let successors = (round < 3).then(|| held.message.clone());
        c.client().settle(&[followed(&held, Action::Remove, &p, successors)]).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::Successors, "nothing once it has no successor").await
}

/// A successor whose key another message has is left out, and the settlement takes effect.
async fn key_in_use(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let first = push_one(c, &next, c.message().with_dedup_key("k")).await?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let (taken, free) = (c.message().with_dedup_key("k"), c.message().with_dedup_key("other"));
    let expected = [first, free.id()];
    c.client().settle(&[followed(&held, Action::Remove, &next, [taken, free])]).await?;
    let got = c.client().take(&next, 2).await?;
    c.same(Clause::Successors, "the first with the key, and the other successor", &expected, &got)?;
    c.client().remove(&got).await?;
    c.client().nothing(&p, c.timing().slack, Clause::SettleActions, "the delivery to have ended").await?;
    c.client().nothing(&next, c.timing().slack, Clause::Deduplication, "no second with the key").await
}

/// A successor that is already there is left out, and the settlement takes effect.
async fn id_in_use(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let successor = c.message();
    let id = push_one(c, &next, successor.clone()).await?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let answer = c.client().storage().settle(&[followed(&held, Action::Remove, &next, [successor])]).await;
    let right = matches!(answer.as_slice(), [Ok(SettleOutcome::Settled)]);
    c.check(Clause::Successors, &[held.lease.id], right, "Settled", format!("{answer:?}"))?;
    let got = c.client().take(&next, 1).await?;
    c.in_order(Clause::Successors, "the successor, once", &[id], &got)?;
    c.client().remove(&got).await?;
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "no second copy").await
}

/// Many deliveries end at once with successors of one key: one of these is stored.
async fn one_key_from_many(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    c.client().push(&p, &c.messages(MANY, |_, message| message)).await?;
    let held = c.client().take(&p, MANY).await?;
    let settlements: Vec<_> = held
        .iter()
        .map(|held| followed(held, Action::Remove, &next, [c.message().with_dedup_key("k")]))
        .collect();
    let batches = settlements.chunks(3).enumerate().map(|(number, batch)| {
        let size = if number.is_multiple_of(2) { 1 } else { batch.len() };
        async move {
            for part in batch.chunks(size) {
                c.client().settle(part).await?;
            }
            Ok(())
        }
    });
    join_all(batches).await.into_iter().collect::<CaseResult>()?;
    let got = c.client().take(&next, 1).await?;
    c.client().nothing(&next, c.timing().slack, Clause::Deduplication, "one successor with the key").await?;
    c.client().remove(&got).await
}
