//! Moves: to another partition, or to the end of the same one.

use anyqueue::adapter::Action;

use super::super::helpers::push_one;
use super::action::counted;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, scheduling};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "settle.move", [PartitionsApart, SettleActions], move_on)
        .kills(&[Fault::MoveCopies, Fault::MoveKeepsCount]),
    case!(Storage, "settle.move_to_itself", [SettleActions], move_to_itself).kills(&[Fault::MoveKeepsCount]),
    case!(Storage, "settle.moved_once_delayed", [SettleActions], moved_once_delayed)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::MoveRepeatsDelay]),
];

/// A moved message is in its new place, only there, and its count starts anew.
async fn move_on(c: &Context) -> CaseResult {
    let (from, to) = (c.partition("from")?, c.partition("to")?);
    let sent = c.client().push(&from, &[c.message()]).await?;
    for _ in 0..2 {
        let got = c.client().take(&from, 1).await?;
        c.client().settle_all(&got, &Action::Retry).await?;
    }
    let got = c.client().take(&from, 1).await?;
    c.client().settle_all(&got, &Action::Move { to: to.clone(), headers: None }).await?;
    let moved = c.client().take(&to, 1).await?;
    c.in_order(Clause::SettleActions, "the moved message", &sent, &moved)?;
    counted(c, &moved, 1)?;
    c.client()
        .nothing(&from, c.timing().slack, Clause::SettleActions, "nothing left where it was moved from")
        .await?;
    c.client()
        .nothing(&to, c.timing().slack, Clause::SettleActions, "no second copy where it was moved to")
        .await?;
    c.client().remove(&moved).await
}

/// A move to the same partition puts the message at the end, and its count starts anew.
async fn move_to_itself(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let head = c.client().pull(&p, 1).await?;
    c.client().settle_all(&head, &Action::Move { to: p.clone(), headers: None }).await?;
    let got = c.client().take(&p, 3).await?;
    if Need::PushOrder.is_declared(c.capabilities()) {
        sent.rotate_left(1);
        c.in_order(Clause::SettleActions, "the moved message behind the others", &sent, &got)?;
    } else {
        c.same(Clause::SettleActions, "each message once", &sent, &got)?;
    }
    counted(c, &got, 1)?;
    c.client().remove(&got).await
}

/// The delay was for the push; a move does not repeat it.
async fn moved_once_delayed(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let delay = scheduling();
    let id = push_one(c, &p, c.message().with_delay(delay)).await?;
    let held = c.client().pull_with(&p, c.client().request(1, c.timing().latest(delay))).await?;
    c.in_order(Clause::Delays, "the matured one", &[id], &held)?;
    c.client().settle_all(&held, &Action::Move { to: other.clone(), headers: None }).await?;
    let moved = c.client().pull_with(&other, c.client().request(1, delay / 2)).await?;
    c.in_order(Clause::SettleActions, "the moved one, without another delay", &[id], &moved)?;
    c.client().remove(&moved).await
}
