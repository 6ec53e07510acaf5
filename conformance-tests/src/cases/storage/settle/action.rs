//! Settling: each action does what it says, once, and nothing else.

use std::time::{Duration, Instant};

use anyqueue::SettleOutcome;
use anyqueue::adapter::{Action, DeliveryCount, PullRequest, RawDelivery};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "settle.remove", [SettleActions, SettleOutcomes, SettleTwice], remove)
        .kills(&[Fault::RemoveDoesNothing, Fault::LeaseUntilTooLate]),
    case!(Storage, "settle.release", [SettleActions], release)
        .kills(&[Fault::ReleaseWaitsForLease, Fault::AutoAck]),
    case!(Storage, "settle.retry", [SettleActions, DeliveryCount], retry).kills(&[
        Fault::RetryDrops,
        Fault::ThirdRetryDrops,
        Fault::CountStuck,
    ]),
    case!(Storage, "settle.released_goes_first", [SettleActions], released_goes_first)
        .needs(&[Need::RequeueFront, Need::PushOrder])
        .kills(&[Fault::ReleaseWaitsForLease]),
    case!(Storage, "settle.failed_goes_first", [SettleActions], failed_goes_first)
        .needs(&[Need::RequeueFront, Need::PushOrder])
        .kills(&[Fault::RetryToBack]),
    case!(Storage, "settle.postponed_goes_last", [SettleActions], postponed_goes_last)
        .needs(&[Need::PushOrder, Need::RejoinLast])
        .kills(&[Fault::PostponeToFront]),
    case!(Storage, "settle.postponed_alone", [SettleActions], postponed_alone).kills(&[Fault::PostponeDrops]),
];

/// A removed message does not come back, not even when its lease is over.
async fn remove(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let (start, lease) = (Instant::now(), c.timing().act_lease);
    let got = c.client().pull_with(&p, PullRequest::new(3, c.timing().soon, lease)).await?;
    let mut outcomes = Vec::new();
    for delivery in &got {
        outcomes.push(c.client().try_settle(delivery, Action::Remove).await?);
    }
    c.still_within(start, lease)?;
    c.equal(Clause::SettleOutcomes, &[], "the outcomes", &vec![SettleOutcome::Settled; 3], &outcomes)?;
    let never = c.timing().never_after(lease);
    c.client()
        .nothing(&p, never, Clause::SettleActions, "nothing after the removals, when the lease is long over")
        .await
}

/// A released message is available again at once, as often as it is released.
async fn release(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for round in 1..=4_u32 {
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::SettleActions, "the released message", &sent, &got)?;
        let count = if c.capabilities().delivery_count == DeliveryCount::ExceptReleases { 1 } else { round };
        counted(c, &got, count)?;
        let action = if round < 4 { Action::Release } else { Action::Remove };
        c.client().settle_all(&got, &action).await?;
    }
    Ok(())
}

/// A failed message comes back, counted, as often as it fails.
async fn retry(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for round in 1..=6_u32 {
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::SettleActions, "the failed message", &sent, &got)?;
        counted(c, &got, round)?;
        let action = if round < 6 { Action::Retry } else { Action::Remove };
        c.client().settle_all(&got, &action).await?;
    }
    Ok(())
}

/// Judges the delivery count, where the backend counts.
pub(super) fn counted(c: &Context, got: &[RawDelivery], count: u32) -> CaseResult {
    if c.capabilities().delivery_count == DeliveryCount::None {
        return Ok(());
    }
    got.iter().try_for_each(|delivery| {
        c.equal(
            Clause::DeliveryCount,
            &[delivery.lease.id],
            "a delivery count of",
            &Some(count),
            &delivery.delivery_count,
        )
    })
}

async fn released_goes_first(c: &Context) -> CaseResult {
    goes_first(c, &Action::Release).await
}

async fn failed_goes_first(c: &Context) -> CaseResult {
    goes_first(c, &Action::Retry).await
}

/// A message that comes back goes ahead of those that were never delivered.
async fn goes_first(c: &Context, action: &Action) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, action).await?;
    let got = c.client().take(&p, 4).await?;
    c.in_order(Clause::SettleActions, "the returned message ahead of those never delivered", &sent, &got)?;
    c.client().remove(&got).await
}

/// A postponed message goes behind all messages that are there.
async fn postponed_goes_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let got = c.client().take(&p, 4).await?;
    sent.rotate_left(1);
    c.in_order(Clause::SettleActions, "the postponed message behind the others", &sent, &got)?;
    c.client().remove(&got).await
}

/// A postponed message that is alone is delivered again, although it is the last.
async fn postponed_alone(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let got = c.client().take(&p, 1).await?;
    c.client().settle_all(&got, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::SettleActions, "the postponed message", &sent, &got)?;
    c.client().remove(&got).await
}
