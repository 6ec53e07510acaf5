//! Giving waiting messages another priority.

use anyqueue::Amend;
use anyqueue::adapter::Action;

use super::{one_by_one, push};
use crate::case::Case;
use crate::cases::storage::helpers::removes;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.priority_among_equals", [Amendments, Order], among_equals)
        .needs(NEEDS)
        .kills(&[Fault::AmendIgnored, Fault::AmendedPriorityToEnd]),
    case!(Storage, "amend.priority_it_has", [Amendments, Order], the_one_it_has)
        .needs(NEEDS)
        .kills(&[Fault::AmendedPriorityToEnd]),
    case!(Storage, "amend.priority_shown", [Amendments, ContentIntact], shown)
        .needs(&[Need::Amend, Need::Priority])
        .kills(&[Fault::AmendedShowsOldPriority]),
    case!(Storage, "amend.priority_of_delayed", [Amendments, Delays], of_what_is_delayed)
        .needs(&[Need::Amend, Need::StrictPriority, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::AmendedPriorityForgetsDelayed]),
    case!(Storage, "amend.priority_behind_a_head", [Amendments, Groups], behind_a_head)
        .needs(&[Need::Amend, Need::StrictPriority, Need::PushOrder, Need::Groups])
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.priority_of_returned", [Amendments, SettleActions], of_what_was_returned)
        .needs(&[Need::Amend, Need::StrictPriority, Need::PushOrder, Need::RequeueFront])
        .kills(&[Fault::AmendedPriorityToEnd]),
];

const NEEDS: &[Need] = &[Need::Amend, Need::StrictPriority, Need::PushOrder];

/// A message that is raised or lowered stands among its new equals as if it had been pushed with that
/// priority.
async fn among_equals(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let of = |priority| c.message().with_priority(priority);
    let [first, lowered, raised, high, last] = push(c, &p, [of(0), of(1), of(0), of(1), of(0)]).await?;
    c.amended(&p, &[raised], Amend::new().with_priority(1)).await?;
    c.amended(&p, &[lowered], Amend::new().with_priority(0)).await?;
    let expected = [raised, high, first, lowered, last];
    removes(c, Clause::Amendments, "each in push order among its equals", &p, &expected).await
}

/// Amending a message to the priority that it already has moves it nowhere.
async fn the_one_it_has(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let high = || c.message().with_priority(1);
    let sent = push(c, &p, [high(), high(), high()]).await?;
    let [first, second, _] = sent;
    c.amended(&p, &[first, second], Amend::new().with_priority(1)).await?;
    removes(c, Clause::Amendments, "all where they stood", &p, &sent).await
}

/// A delivery shows the new priority, at the first delivery and later; everything else is as it was.
async fn shown(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message().with_header("a", "b").with_task_id("task").with_max_retries(3);
    let [id] = push(c, &p, [message.clone()]).await?;
    c.amended(&p, &[id], Amend::new().with_priority(1)).await?;
    for action in [Action::Release, Action::Remove] {
        let [got] = c.client().take_exact(&p).await?;
        let expected = message.clone().with_priority(1);
        c.equal(Clause::Amendments, &[id], "the message with its new priority", &expected, &got.message)?;
        c.client().settle_all(&[got], &action).await?;
    }
    Ok(())
}

/// A delayed message has its new priority when it is due, and keeps its due time.
async fn of_what_is_delayed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [delayed] = push(c, &p, [c.message().with_delay(t.delay)]).await?;
    c.amended(&p, &[delayed], Amend::new().with_priority(1)).await?;
    let [ready] = push(c, &p, [c.message()]).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    removes(c, Clause::Amendments, "the delayed one by its new priority", &p, &[delayed, ready]).await
}

/// A message behind the head of its group waits for the head, and then goes by its new priority.
async fn behind_a_head(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let member = || c.message().with_group("g");
    let [head, other, second] = push(c, &p, [member(), c.message(), member()]).await?;
    c.amended(&p, &[second], Amend::new().with_priority(1)).await?;
    one_by_one(c, "the head, and the second by its new priority", &p, &[head, second, other]).await
}

/// A returned message is still ahead of those that were never delivered.
async fn of_what_was_returned(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [older, returned] = push(c, &p, [c.message(), c.message().with_priority(1)]).await?;
    let held = c.client().take(&p, 1).await?;
    c.in_order(Clause::Order, "the one of higher priority", &[returned], &held)?;
    c.client().settle_all(&held, &Action::Release).await?;
    c.amended(&p, &[returned], Amend::new().with_priority(0)).await?;
    removes(c, Clause::Amendments, "what was returned, then the other", &p, &[returned, older]).await
}
