//! Times of day: what a pusher means by its clock, and what a consumer is shown by its own.

use std::time::{Duration, Instant, SystemTime};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "times.not_before", [Delays, ServerTime], not_before)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::EarlyDelay, Fault::TinyDelayForever]),
    case!(Queue, "times.expires_at", [Expiry, ServerTime], expires_at).kills(&[Fault::AgeZero]),
    case!(Queue, "times.received_at", [PullBounds, ServerTime], received_at).kills(&[Fault::OneTooMany]),
];

/// A message that must not come before a time of day does not, and comes soon after; one whose time is past
/// comes at once.
async fn not_before(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let (asked, due) = (Instant::now(), SystemTime::now() + t.delay);
    let later = c.store(&queue, &p, vec![c.message().with_not_before(due)]).await?;
    let past = SystemTime::now() - Duration::from_hours(1);
    let now = c.store(&queue, &p, vec![c.message().with_not_before(past)]).await?;
    let mut first = c.hold(&queue, &p, 1).await?;
    c.same_ids(Clause::Delays, "the one whose time is past", &now, &handler_ids(&first))?;
    let wait = t.latest(t.delay);
    let mut second = c.ok(Clause::Delays, "a pull", queue.pull(&p).wait(wait).await)?;
    c.took(Clause::Delays, &later, "the one that is due later", asked.elapsed(), (t.delay, wait))?;
    c.same_ids(Clause::Delays, "the one that is due later", &later, &handler_ids(&second))?;
    // A moment from now is still a time: it must not be mistaken for none at all, nor for never.
    let soon = SystemTime::now() + Duration::from_micros(400);
    let tiny = c.store(&queue, &p, vec![c.message().with_not_before(soon)]).await?;
    let mut third = c.hold(&queue, &p, 1).await?;
    c.same_ids(Clause::Delays, "the one that is due in a moment", &tiny, &handler_ids(&third))?;
    for held in [&mut first, &mut second, &mut third] {
        c.processed(&queue, held).await?;
    }
    Ok(())
}

/// A message that expires at a time of day is delivered before it, and not after.
async fn expires_at(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let expiry = SystemTime::now() + t.delay;
    c.store(&queue, &p, vec![c.message().with_expires_at(expiry)]).await?;
    let lasting = c.message().with_expires_at(SystemTime::now() + Duration::from_hours(1));
    let lasting = c.store(&queue, &p, vec![lasting]).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    let mut got = c.hold(&queue, &p, 1).await?;
    c.same_ids(Clause::Expiry, "the one whose time has not come", &lasting, &handler_ids(&got))?;
    c.client().nothing(&p, t.slack, Clause::Expiry, "nothing that has expired").await?;
    c.processed(&queue, &mut got).await
}

/// A delivery says when it was received, by the clock of the client that received it: after the pull began,
/// and before it ended.
async fn received_at(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    for _ in 0..2 {
        let before = SystemTime::now();
        let mut held = c.hold(&queue, &p, 1).await?;
        let after = SystemTime::now();
        for delivery in &held {
            let received = delivery.received_at();
            let right = (before..=after).contains(&received);
            let expected = format!("received between {before:?} and {after:?}");
            c.check(Clause::ServerTime, &[delivery.id()], right, expected, format!("{received:?}"))?;
        }
        c.processed(&queue, &mut held).await?;
    }
    Ok(())
}
