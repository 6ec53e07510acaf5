//! Members that were claimed together end, each in its own way: nobody gets another member of the group until
//! the last has ended.

use std::time::{Duration, Instant};

use anyqueue::MessageId;
use anyqueue::adapter::Action;

use super::{ALL, NEEDS, claim_exact, claims, nothing, push_members, whole};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "whole.removed_one_by_one", [WholeGroups, Groups], removed_one_by_one)
        .needs(NEEDS)
        .kills(&[Fault::FirstEndFreesGroup, Fault::GroupUnlocksAtDelivery]),
    case!(Storage, "whole.dead_one_by_one", [WholeGroups, DeadLetters], dead_one_by_one)
        .needs(NEEDS)
        .kills(&[Fault::FirstEndFreesGroup]),
    case!(Storage, "whole.released_one_by_one", [WholeGroups, SettleActions], released_one_by_one)
        .needs(NEEDS)
        .kills(&[Fault::ReleasedMemberOvertakes, Fault::ReleasedMemberToEnd]),
    case!(Storage, "whole.failed_one_by_one", [WholeGroups, SettleActions], failed_one_by_one)
        .needs(NEEDS)
        .kills(&[Fault::ReleasedMemberOvertakes, Fault::FailedHeadToEnd]),
    case!(Storage, "whole.released_in_the_middle", [WholeGroups, SettleActions], released_in_the_middle)
        .needs(NEEDS)
        .kills(&[Fault::ReleasedMemberOvertakes, Fault::ReleasedMemberToEnd]),
    case!(Storage, "whole.postponed_at_once", [WholeGroups, SettleActions], postponed_at_once)
        .needs(NEEDS)
        .kills(&[Fault::PostponedMemberFreesGroup]),
    case!(Storage, "whole.postponed_holds", [WholeGroups, Delays], postponed_holds)
        .needs(&[Need::WholeGroups, Need::PostponeDelay])
        .kills(&[Fault::PostponedMemberFreesGroup]),
    case!(Storage, "whole.due_while_others_are_held", [WholeGroups, Delays], due_while_others_are_held)
        .needs(&[Need::WholeGroups, Need::PostponeDelay])
        .kills(&[Fault::PostponedMemberFreesGroup]),
];

/// Three of four members are held and settled with this action, in turn: those of `comes_next` come, but not
/// before the last has ended.
async fn end_one_by_one(
    c: &Context,
    action: &Action,
    comes_next: impl FnOnce([MessageId; 4]) -> Vec<MessageId>,
) -> CaseResult {
    let p = c.partition("work")?;
    let held: [MessageId; 3] = push_members(c, &p).await?;
    let deliveries = claim_exact(c, "the whole group", &p, held).await?;
    let [behind] = push_members(c, &p).await?;
    for delivery in &deliveries {
        nothing(c, &p, "the group to wait for all that are held").await?;
        c.client().settle_all(std::slice::from_ref(delivery), action).await?;
    }
    let [first, second, third] = held;
    claims(c, "what is next in the group", &p, &comes_next([first, second, third, behind])).await
}

async fn removed_one_by_one(c: &Context) -> CaseResult {
    end_one_by_one(c, &Action::Remove, |[.., behind]| vec![behind]).await
}

async fn dead_one_by_one(c: &Context) -> CaseResult {
    let to = c.partition("work")?.dead_letters();
    end_one_by_one(c, &Action::Move { to, headers: None }, |[.., behind]| vec![behind]).await
}

async fn released_one_by_one(c: &Context) -> CaseResult {
    end_one_by_one(c, &Action::Release, |all| all.to_vec()).await
}

async fn failed_one_by_one(c: &Context) -> CaseResult {
    end_one_by_one(c, &Action::Retry, |all| all.to_vec()).await
}

async fn postponed_at_once(c: &Context) -> CaseResult {
    let delay = Duration::ZERO;
    end_one_by_one(c, &Action::Postpone { delay, headers: None }, |all| all.to_vec()).await
}

/// A member that is released while others are held waits for them, then is the first again.
async fn released_in_the_middle(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let [first, middle, last] = claim_exact(c, "the whole group", &p, sent).await?;
    let [behind] = push_members(c, &p).await?;
    c.client().settle_all(std::slice::from_ref(&middle), &Action::Release).await?;
    nothing(c, &p, "what was released to wait for two that are held").await?;
    c.client().remove(&[last]).await?;
    nothing(c, &p, "what was released to wait for the one that is held").await?;
    c.client().remove(&[first]).await?;
    claims(c, "what was released, then who came later", &p, &[middle.lease.id, behind]).await
}

/// A postponed member blocks its group while others of it are held, and afterwards, until it is due.
async fn postponed_holds(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let delay = t.delay * 2;
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let [first, middle, last] = claim_exact(c, "the whole group", &p, sent).await?;
    let [behind] = push_members(c, &p).await?;
    let postponed = Instant::now();
    c.client().settle_all(std::slice::from_ref(&middle), &Action::Postpone { delay, headers: None }).await?;
    nothing(c, &p, "the group to wait for two that are held, and one that was postponed").await?;
    c.client().remove(&[first, last]).await?;
    let left = (delay / 2).saturating_sub(postponed.elapsed());
    let expected = "the group to wait for the one that was postponed";
    c.client().nothing(&p, left, Clause::WholeGroups, expected).await?;
    let request = whole(c.client(), ALL, ALL, t.latest(delay));
    let got = c.client().pull_with(&p, request).await?;
    let bounds = (delay, t.latest(delay));
    c.took(Clause::Delays, &sent, "what was postponed", postponed.elapsed(), bounds)?;
    c.in_order(
        Clause::WholeGroups,
        "what was postponed, then who came later",
        &[middle.lease.id, behind],
        &got,
    )?;
    c.client().remove(&got).await
}

/// A member that becomes due while others are held waits for them, then is the first again.
async fn due_while_others_are_held(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let [first, middle, last] = claim_exact(c, "the whole group", &p, sent).await?;
    let [behind] = push_members(c, &p).await?;
    let later = Action::Postpone { delay: t.delay, headers: None };
    c.client().settle_all(std::slice::from_ref(&first), &later).await?;
    let expected = "what has become due to wait for those that are held";
    c.client().nothing(&p, t.delay + t.slack, Clause::WholeGroups, expected).await?;
    c.client().remove(&[middle]).await?;
    nothing(c, &p, expected).await?;
    c.client().remove(&[last]).await?;
    claims(c, "what became due, then who came later", &p, &[first.lease.id, behind]).await
}
