//! Delays: never early, late by at most the slack, and in nobody's way.

use std::time::{Duration, Instant};

use anyqueue::DeleteOutcome;
use anyqueue::adapter::Action;

use super::helpers::{postpone, push_one, refused};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

pub(super) const CASES: &[Case] = &[
    case!(Storage, "delay.never_early", [PushWakes, Delays], never_early)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::EarlyDelay, Fault::DelayWholeSeconds]),
    case!(Storage, "delay.fractional_seconds", [Delays], fractional_seconds)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::DelayWholeSeconds, Fault::EarlyDelay]),
    case!(Storage, "delay.does_not_block", [Delays], does_not_block)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::DelayBlocks]),
    case!(Storage, "delay.zero_is_now", [Delays], zero_is_now)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::ZeroDelayForever]),
    case!(Storage, "delay.outlives_pusher", [Stored, Delays], outlives_pusher)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::EarlyDelay, Fault::DelayedDieWithPusher]),
    case!(Storage, "delay.each_its_own", [Delays], each_its_own)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::EarlyDelay, Fault::DelayWholeSeconds]),
    case!(Storage, "delay.matured_by_priority", [Order, Delays], matured_by_priority)
        .needs(&[Need::PushDelay, Need::StrictPriority])
        .kills(&[Fault::PriorityIgnored, Fault::DelayedForgetsPriority]),
    case!(Storage, "delay.matured_goes_last", [Order, Delays], matured_goes_last)
        .needs(&[Need::PushDelay, Need::PushOrder, Need::RejoinLast])
        .kills(&[Fault::MaturedGoesFirst]),
    case!(Storage, "delay.postponed", [SettleActions, Delays], postponed)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::PostponeAtOnce, Fault::EarlyDelay, Fault::DelayWholeSeconds, Fault::PostponeCounts]),
    case!(Storage, "delay.postponed_goes_last", [SettleActions, Delays], postponed_goes_last)
        .needs(&[Need::PostponeDelay, Need::PushOrder, Need::RejoinLast])
        .kills(&[Fault::PostponeToFront, Fault::PostponedGoesVeryLast]),
    case!(Storage, "delay.longest", [Limits, Delays], longest)
        .needs(&[Need::PushDelay, Need::Delete])
        .kills(&[Fault::LongDelayOverflows, Fault::DeleteMissesDelayed]),
    case!(Storage, "delay.repeat_keeps_the_delay", [Delays], repeat_keeps_the_delay)
        .needs(&[Need::UniqueIds, Need::PushDelay])
        .kills(&[Fault::RepeatRestartsDelay]),
    case!(Storage, "delay.postponed_outlives_client", [SettleActions, Delays], postponed_outlives_client)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::PostponedDieWithClient]),
];

/// A waiting pull gets a delayed message when it is due.
async fn never_early(c: &Context) -> CaseResult {
    due(c, c.timing().delay).await
}

/// A delay of a second and a fraction is neither cut nor rounded down.
async fn fractional_seconds(c: &Context) -> CaseResult {
    due(c, c.timing().delay + Duration::from_secs(1)).await
}

async fn due(c: &Context, delay: Duration) -> CaseResult {
    let p = c.partition("work")?;
    let start = Instant::now();
    let sent = c.client().push(&p, &[c.message().with_delay(delay)]).await?;
    let latest = c.timing().latest(delay);
    let got = c.client().pull_with(&p, c.client().request(1, latest)).await?;
    c.in_order(Clause::Delays, "the delayed message", &sent, &got)?;
    c.took(Clause::Delays, &sent, "its delivery", start.elapsed(), (delay, latest + c.timing().soon))?;
    c.client().remove(&got).await
}

/// A ready message behind a delayed one is delivered at once.
async fn does_not_block(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay + c.timing().soon;
    let late = c.client().push(&p, &[c.message().with_delay(delay)]).await?;
    let start = Instant::now();
    let ready = c.client().push(&p, &[c.message()]).await?;
    let got = c.client().pull_with(&p, c.client().request(10, c.timing().latest(delay))).await?;
    c.in_order(Clause::Delays, "only what is ready", &ready, &got)?;
    c.took(Clause::Delays, &ready, "its delivery", start.elapsed(), (Duration::ZERO, c.timing().soon))?;
    c.client().remove(&got).await?;
    let got = c.client().pull_with(&p, c.client().request(10, c.timing().latest(delay))).await?;
    c.in_order(Clause::Delays, "the delayed message, later", &late, &got)?;
    c.client().remove(&got).await
}

async fn zero_is_now(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message().with_delay(Duration::ZERO)]).await?;
    let start = Instant::now();
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Delays, "the message", &sent, &got)?;
    c.took(Clause::Delays, &sent, "its delivery", start.elapsed(), (Duration::ZERO, c.timing().soon))?;
    c.client().remove(&got).await
}

/// A delay continues without the client that asked for it.
async fn outlives_pusher(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (pusher, delay, start) = (c.fresh().await?, c.timing().delay, Instant::now());
    let sent = pusher.push(&p, &[c.message().with_delay(delay)]).await?;
    pusher.close().await?;
    let consumer = c.fresh().await?;
    let got = consumer.pull_with(&p, consumer.request(1, c.timing().latest(delay))).await?;
    c.in_order(Clause::Delays, "the delayed message", &sent, &got)?;
    c.took(
        Clause::Delays,
        &sent,
        "its delivery",
        start.elapsed(),
        (delay, c.timing().latest(delay) + c.timing().soon),
    )?;
    consumer.remove(&got).await
}

/// Messages with different delays each come at their own time, whatever the order of the pushes.
async fn each_its_own(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let step = c.timing().delay;
    let mut due = Vec::new();
    for steps in [3, 1, 2, 0, 2] {
        let start = Instant::now();
        let sent = c.client().push(&p, &[c.message().with_delay(step * steps)]).await?;
        due.extend(sent.into_iter().map(|id| (id, start, step * steps)));
    }
    let mut got = 0;
    while got < due.len() {
        let pulled = c.client().pull_with(&p, c.client().request(10, c.timing().latest(step * 3))).await?;
        c.check(
            Clause::Delays,
            &[],
            !pulled.is_empty(),
            "five messages in their time",
            format!("{got} came"),
        )?;
        for delivery in &pulled {
            let id = delivery.lease.id;
            for (_, start, delay) in due.iter().filter(|(due, ..)| *due == id) {
                let bounds = (*delay, c.timing().latest(*delay));
                c.took(Clause::Delays, &[id], "its delivery", start.elapsed(), bounds)?;
            }
        }
        got += pulled.len();
        c.client().remove(&pulled).await?;
    }
    Ok(())
}

/// Once due, a delayed message is like any other: higher priorities go first.
async fn matured_by_priority(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let urgent = c.client().push(&p, &[c.message().with_priority(1).with_delay(delay)]).await?;
    let low = c.client().push(&p, &[c.message()]).await?;
    tokio::time::sleep(c.timing().never_after(delay)).await;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Order, "the matured urgent message first", &[urgent, low].concat(), &got)?;
    c.client().remove(&got).await
}

/// A delayed message takes its place when it is due: behind messages that were pushed meanwhile, ahead of
/// those that come later.
async fn matured_goes_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay + Duration::from_secs(1);
    let (start, late) = (Instant::now(), c.client().push(&p, &[c.message().with_delay(delay)]).await?);
    let before = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    c.still_within(start, delay)?;
    tokio::time::sleep(c.timing().never_after(delay)).await;
    let after = c.client().push(&p, &[c.message()]).await?;
    let got = c.client().take(&p, 4).await?;
    c.in_order(Clause::Order, "the order in which they became ready", &[before, late, after].concat(), &got)?;
    c.client().remove(&got).await
}

/// A postponed message stays away for as long as requested.
async fn postponed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for _ in 0..2 {
        let held = c.client().take(&p, 1).await?;
        let start = Instant::now();
        c.client().settle_all(&held, &Action::Postpone { delay, headers: None }).await?;
        let latest = c.timing().latest(delay);
        let got = c.client().pull_with(&p, c.client().request(1, latest)).await?;
        c.in_order(Clause::Delays, "the postponed message", &sent, &got)?;
        c.took(Clause::Delays, &sent, "its return", start.elapsed(), (delay, latest + c.timing().soon))?;
        c.client().settle_all(&got, &Action::Release).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}

/// When its delay is over, a postponed message goes behind those that are there, and ahead of those that come
/// later.
async fn postponed_goes_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let mut sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, &Action::Postpone { delay, headers: None }).await?;
    tokio::time::sleep(c.timing().never_after(delay)).await;
    sent.rotate_left(1);
    sent.extend(c.client().push(&p, &[c.message()]).await?);
    let got = c.client().take(&p, 4).await?;
    c.in_order(
        Clause::SettleActions,
        "the postponed message behind those before its end, ahead of the one after it",
        &sent,
        &got,
    )?;
    c.client().remove(&got).await
}

/// The longest declared delay is accepted and kept.
async fn longest(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let longest = c.capabilities().push_delay.map_or(Duration::ZERO, |delay| delay.max);
    let sent = c.client().push(&p, &[c.message().with_delay(longest)]).await?;
    if longest > c.timing().never() {
        c.client()
            .nothing(&p, c.timing().never(), Clause::Delays, "nothing before the longest delay is over")
            .await?;
    }
    let deleted = c.client().inspect()?.delete(&p, &sent).await;
    let deleted =
        c.ok(Clause::Deletion, "deleting", deleted.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    c.equal(Clause::Deletion, &sent, "the outcome of deleting it", &vec![DeleteOutcome::Deleted], &deleted)
}

/// A message that is pushed again while it is delayed comes when the first push said.
async fn repeat_keeps_the_delay(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().soon + c.timing().delay * 2;
    let message = c.message().with_delay(delay);
    let pushed = Instant::now();
    let id = push_one(c, &p, message.clone()).await?;
    // A delay that started again now would end later than the first one may.
    tokio::time::sleep(c.timing().soon + c.timing().delay / 2).await;
    refused(c, Clause::Delays, &p, message).await?;
    if pushed.elapsed() >= delay {
        return Err(Stop::Inconclusive("the second push was late: the delay was over".to_owned()));
    }
    let got = c.client().pull_with(&p, c.client().request(1, delay)).await?;
    c.in_order(Clause::Delays, "the delayed one", &[id], &got)?;
    c.took(Clause::Delays, &[id], "its delivery", pushed.elapsed(), (delay, c.timing().latest(delay)))?;
    c.client().remove(&got).await
}

async fn postponed_outlives_client(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, c.message()).await?;
    let other = c.fresh().await?;
    let held = other.take(&p, 1).await?;
    postpone(&other, &held, c.timing().delay, None).await?;
    other.close().await?;
    let got = c.client().pull_with(&p, c.client().request(1, c.timing().latest(c.timing().delay))).await?;
    c.in_order(Clause::Delays, "the postponed one, though its client is gone", &[id], &got)?;
    c.client().remove(&got).await
}
