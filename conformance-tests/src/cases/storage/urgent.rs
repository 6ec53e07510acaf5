//! Messages that become urgent at a given moment.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Settlement, Successor};
use anyqueue::{Amend, MessageData, MessageId, PartitionId};

use super::helpers::{push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "urgent.lifts", [Urgency, Order], lifts).needs(NEEDS).kills(&[Fault::UrgentNever]),
    case!(Storage, "urgent.not_before", [Urgency, Order], not_before)
        .needs(NEEDS)
        .kills(&[Fault::UrgentAtOnce]),
    case!(Storage, "urgent.keeps_its_place", [Urgency, Order], keeps_its_place)
        .needs(NEEDS)
        .kills(&[Fault::UrgentToEnd]),
    case!(Storage, "urgent.delayed", [Urgency, Delays], delayed)
        .needs(&[Need::UrgentAfter, Need::StrictPriority, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::UrgentForgetsDelayed, Fault::UrgentEndsDelay]),
    case!(Storage, "urgent.behind_a_head", [Urgency, Groups], behind_a_head)
        .needs(&[Need::UrgentAfter, Need::StrictPriority, Need::PushOrder, Need::Groups])
        .kills(&[Fault::UrgentNever]),
    case!(Storage, "urgent.held", [Urgency, SettleActions], held)
        .needs(NEEDS)
        .kills(&[Fault::UrgentForgetsHeld]),
    case!(Storage, "urgent.returned", [Urgency, SettleActions], returned)
        .needs(NEEDS)
        .kills(&[Fault::UrgentForgetsReturned]),
    case!(Storage, "urgent.shown_as_pushed", [Urgency, ContentIntact], shown_as_pushed)
        .needs(&[Need::UrgentAfter, Need::Priority])
        .kills(&[Fault::UrgentShown]),
    case!(Storage, "urgent.beside_many", [Urgency, Order], beside_many)
        .needs(NEEDS)
        .kills(&[Fault::UrgentNever])
        .deadline(Duration::from_mins(1)),
    case!(Storage, "urgent.successor", [Urgency, Successors], successor)
        .needs(&[Need::UrgentAfter, Need::StrictPriority, Need::PushOrder, Need::AtomicSuccessors])
        .kills(&[Fault::SuccessorsWithoutOptions]),
    case!(Storage, "urgent.amended_before", [Urgency, Amendments], amended_before)
        .needs(AMENDED)
        .kills(&[Fault::AmendmentEndsUrgency]),
    case!(Storage, "urgent.amended_afterwards", [Urgency, Amendments], amended_afterwards)
        .needs(AMENDED)
        .kills(&[Fault::UrgentForGood]),
    case!(Storage, "urgent.disabled", [Urgency, Amendments], disabled)
        .needs(AMENDED)
        .kills(&[Fault::UrgentForgetsDisabled]),
];

/// Some cases need a level between the lowest and the highest.
const NEEDS: &[Need] = &[Need::UrgentAfter, Need::TenPriorities, Need::PushOrder];
const AMENDED: &[Need] = &[Need::UrgentAfter, Need::TenPriorities, Need::PushOrder, Need::Amend];

/// A message that becomes urgent soon.
fn urgent(c: &Context) -> MessageData {
    c.message().with_urgent_after(c.timing().delay)
}

/// A message that is as urgent as possible from the start.
fn top(c: &Context) -> MessageData {
    c.message().with_priority(c.capabilities().priority_levels.saturating_sub(1))
}

/// Waits until messages pushed before this call are urgent.
async fn moment_passes(c: &Context) {
    tokio::time::sleep(c.timing().delay + c.timing().slack).await;
}

async fn in_this_order(c: &Context, what: &str, p: &PartitionId, expected: &[MessageId]) -> CaseResult {
    removes(c, Clause::Urgency, what, p, expected).await
}

/// From its moment on, a message goes ahead of less urgent ones, however it was pushed.
async fn lifts(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let higher = push_one(c, &p, c.message().with_priority(1)).await?;
    let lower = push_one(c, &p, c.message()).await?;
    let lifted = push_one(c, &p, urgent(c)).await?;
    moment_passes(c).await;
    in_this_order(c, "the urgent one as if of the highest level", &p, &[lifted, higher, lower]).await
}

/// Until its moment, a message is as it was pushed.
async fn not_before(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let lower = push_one(c, &p, c.message()).await?;
    let to_be = push_one(c, &p, c.message().with_urgent_after(Duration::from_hours(1))).await?;
    let higher = push_one(c, &p, c.message().with_priority(1)).await?;
    in_this_order(c, "each as it was pushed", &p, &[higher, lower, to_be]).await
}

/// Among equally urgent messages it has the place of its push, however late it became urgent; several become
/// urgent at once.
async fn keeps_its_place(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let first = push_one(c, &p, top(c)).await?;
    let second = push_one(c, &p, urgent(c)).await?;
    let sooner = c.message().with_urgent_after(t.delay / 2);
    let lower = push_one(c, &p, c.message()).await?;
    let third = push_one(c, &p, sooner).await?;
    let fourth = push_one(c, &p, top(c)).await?;
    moment_passes(c).await;
    in_this_order(c, "all that are urgent in push order", &p, &[first, second, third, fourth, lower]).await
}

/// A message does not come before its delay is over, and is urgent then.
async fn delayed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let later = c.message().with_urgent_after(t.delay / 3).with_delay(t.delay);
    let pushed = Instant::now();
    let id = push_one(c, &p, later).await?;
    let expected = "nothing before its delay is over, though it is urgent";
    if let Err(stop) = c.client().nothing(&p, t.delay / 2, Clause::Urgency, expected).await {
        c.still_within(pushed, t.delay)?;
        return Err(stop);
    }
    let ready = push_one(c, &p, c.message()).await?;
    moment_passes(c).await;
    in_this_order(c, "the urgent one, as its delay is over", &p, &[id, ready]).await
}

/// A message behind the head of its group waits for the head, and then is as urgent as it became meanwhile.
async fn behind_a_head(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let head = push_one(c, &p, c.message().with_group("g")).await?;
    let other = push_one(c, &p, c.message()).await?;
    let second = push_one(c, &p, urgent(c).with_group("g")).await?;
    moment_passes(c).await;
    in_this_order(c, "the head first", &p, &[head]).await?;
    in_this_order(c, "the second, as it is urgent", &p, &[second, other]).await
}

/// A message that is held at its moment is urgent when it comes back.
async fn held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, urgent(c)).await?;
    let held = c.client().take(&p, 1).await?;
    moment_passes(c).await;
    let higher = push_one(c, &p, c.message().with_priority(1)).await?;
    c.client().settle_all(&held, &Action::Release).await?;
    in_this_order(c, "what came back, as it is urgent", &p, &[id, higher]).await
}

/// A message that came back before its moment becomes urgent too.
async fn returned(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, urgent(c)).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().settle_all(&held, &Action::Retry).await?;
    let higher = push_one(c, &p, c.message().with_priority(1)).await?;
    moment_passes(c).await;
    in_this_order(c, "what came back, as it is urgent", &p, &[id, higher]).await
}

/// A delivery shows the priority with which the message was pushed.
async fn shown_as_pushed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, urgent(c)).await?;
    moment_passes(c).await;
    let got = c.client().take(&p, 1).await?;
    let seen: Vec<_> = got.iter().map(|delivery| delivery.message.options().priority).collect();
    c.equal(Clause::Urgency, &[id], "its priority", &vec![0], &seen)?;
    c.client().remove(&got).await
}

/// Urgent messages come first, however many others wait.
async fn beside_many(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let count = c.size(1000, 10_000);
    c.client()
        .push(&p, &c.messages(count, |index, message| message.with_priority(u8::from(index % 2 == 0))))
        .await?;
    let lifted = c.client().push(&p, &c.messages(3, |_, message| message.with_urgent_after(t.delay))).await?;
    moment_passes(c).await;
    let first = c.client().take(&p, lifted.len()).await?;
    c.in_order(Clause::Urgency, "the urgent ones", &lifted, &first)?;
    c.client().remove(&first).await?;
    if let Some(inspect) = c.client().storage().inspect().filter(|_| c.capabilities().inspect.purge) {
        let purged = c.ok(Clause::Deletion, "a purge", inspect.purge(&p, count).await)?;
        c.equal(Clause::Deletion, &[], "messages purged", &count, &purged)?;
    }
    Ok(())
}

/// A successor can become urgent too, counted from the end of its delivery.
async fn successor(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    push_one(c, &p, c.message()).await?;
    let [parent] = c.client().take_exact(&p).await?;
    let lower = push_one(c, &next, c.message()).await?;
    let message = urgent(c);
    let (id, then) = (message.id(), vec![Successor { partition: next.clone(), message }]);
    c.client().settle(&[Settlement::new(parent.lease, Action::Remove).with_then(then)]).await?;
    moment_passes(c).await;
    in_this_order(c, "the successor, as it is urgent", &next, &[id, lower]).await
}

/// A new priority before the moment applies until then; the moment comes all the same.
async fn amended_before(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let lower = push_one(c, &p, c.message()).await?;
    let id = push_one(c, &p, urgent(c).with_priority(1)).await?;
    c.amended(&p, &[id], Amend::new().with_priority(0)).await?;
    moment_passes(c).await;
    in_this_order(c, "the one that is urgent", &p, &[id, lower]).await
}

/// A new priority after the moment counts: the message is no longer urgent.
async fn amended_afterwards(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let lifted = push_one(c, &p, urgent(c)).await?;
    let higher = push_one(c, &p, c.message().with_priority(1)).await?;
    moment_passes(c).await;
    c.amended(&p, &[lifted], Amend::new().with_priority(0)).await?;
    let lower = push_one(c, &p, c.message()).await?;
    in_this_order(c, "each by its last priority, in push order", &p, &[higher, lifted, lower]).await
}

/// A message that is disabled at its moment is urgent when it is enabled.
async fn disabled(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let lower = push_one(c, &p, c.message()).await?;
    let id = push_one(c, &p, urgent(c)).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    moment_passes(c).await;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    in_this_order(c, "the one that became urgent", &p, &[id, lower]).await
}
