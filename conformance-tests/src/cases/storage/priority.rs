//! Priority: the more urgent message goes first, always.

use std::time::{Duration, Instant};

use anyqueue::MessageId;
use anyqueue::adapter::Action;

use super::helpers::{push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "priority.highest_first", [Order], highest_first)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityInverted, Fault::PriorityIgnored]),
    case!(Storage, "priority.every_level_in_one_pull", [Order], every_level_in_one_pull)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityInverted, Fault::PriorityIgnored]),
    case!(Storage, "priority.ties_in_push_order", [Order], ties_in_push_order)
        .needs(&[Need::StrictPriority, Need::PushOrder])
        .kills(&[Fault::TiesReversed]),
    case!(Storage, "priority.default_is_lowest", [Order], default_is_lowest)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityInverted]),
    case!(Storage, "priority.lowest_alone", [ReadyAtOnce, PullWait], lowest_alone)
        .needs(&[Need::Priority])
        .kills(&[Fault::SleepsThroughPush]),
    case!(Storage, "priority.late_but_urgent", [Order], late_but_urgent)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityIgnored]),
    case!(Storage, "priority.kept_when_returned", [Order, SettleActions], kept_when_returned)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::RequeueLosesPriority]),
    case!(Storage, "priority.kept_when_postponed", [Order, SettleActions], kept_when_postponed)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::PriorityIgnored]),
    case!(Storage, "priority.few_urgent_among_many", [PullBounds, Order], few_urgent_among_many)
        .needs(&[Need::StrictPriority, Need::PushOrder])
        .kills(&[Fault::PriorityInverted, Fault::TiesReversed]),
    case!(Storage, "priority.top_levels", [Order], top_levels)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::TopLevelClamped]),
];

/// Pushes one message per level, lowest first or in random order; returns the ids from the highest level
/// down.
async fn one_per_level(c: &Context, shuffled: bool) -> CaseResult<Vec<MessageId>> {
    let p = c.partition("work")?;
    let mut levels: Vec<u8> = (0..c.capabilities().priority_levels).collect();
    if shuffled {
        c.random().shuffle(&mut levels);
    }
    let mut sent = Vec::new();
    for level in levels {
        let id = c.client().push(&p, &[c.message().with_priority(level)]).await?;
        sent.push((std::cmp::Reverse(level), id));
    }
    sent.sort();
    Ok(sent.into_iter().flat_map(|(_, id)| id).collect())
}

/// Messages pushed from the least to the most urgent are pulled one by one from the most urgent down.
async fn highest_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let expected = one_per_level(c, false).await?;
    let mut got = Vec::new();
    for _ in &expected {
        got.extend(c.client().pull(&p, 1).await?);
    }
    c.in_order(Clause::Order, "the highest priority first", &expected, &got)?;
    c.client().remove(&got).await
}

async fn every_level_in_one_pull(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let expected = one_per_level(c, true).await?;
    let max = expected.len().min(c.capabilities().limits.pull_batch);
    let got = c.client().take(&p, max).await?;
    c.in_order(Clause::Order, "the highest priority first", &expected, &got)?;
    c.client().remove(&got).await
}

async fn ties_in_push_order(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut expected = Vec::new();
    for level in [1, 0, 1] {
        let sent = c.client().push(&p, &c.messages(5, |_, message| message.with_priority(level))).await?;
        expected.push((std::cmp::Reverse(level), sent));
    }
    expected.sort_by_key(|(level, _)| *level); // stable: pushes of one level stay in order
    let expected: Vec<_> = expected.into_iter().flat_map(|(_, sent)| sent).collect();
    let got = c.client().take(&p, 15).await?;
    c.in_order(Clause::Order, "push order within a priority", &expected, &got)?;
    c.client().remove(&got).await
}

async fn default_is_lowest(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let plain = c.client().push(&p, &[c.message()]).await?;
    let urgent = c.client().push(&p, &[c.message().with_priority(1)]).await?;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Order, "level 1 before the default", &[urgent, plain].concat(), &got)?;
    c.client().remove(&got).await
}

/// If only the lowest level has messages, a pull does not wait for the other levels first.
async fn lowest_alone(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message().with_priority(0)]).await?;
    let start = Instant::now();
    let mut got = c.client().pull_with(&p, c.client().request(10, c.timing().soon * 2)).await?;
    c.in_order(Clause::ReadyAtOnce, "the only message", &sent, &got)?;
    c.took(Clause::ReadyAtOnce, &sent, "an answer", start.elapsed(), (Duration::ZERO, c.timing().soon))?;
    let waiting = c.client().pull_with(&p, c.client().request(10, c.timing().soon * 2));
    let pushing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        c.client().push(&p, &[c.message().with_priority(0)]).await
    };
    let (woken, sent) = futures_util::join!(waiting, pushing);
    let woken = woken?;
    c.in_order(Clause::PushWakes, "the message pushed at the lowest level", &sent?, &woken)?;
    got.extend(woken);
    c.client().remove(&got).await
}

/// An urgent message goes next, however late it comes.
async fn late_but_urgent(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let mut got = c.client().take(&p, 1).await?;
    let highest = c.capabilities().priority_levels - 1;
    let urgent = c.client().push(&p, &[c.message().with_priority(highest)]).await?;
    let next = c.client().pull(&p, 1).await?;
    c.in_order(Clause::Order, "the urgent message next", &urgent, &next)?;
    got.extend(next);
    got.extend(c.client().take(&p, 4).await?);
    c.client().remove(&got).await
}

/// A returned message keeps its level: behind higher ones, ahead of lower ones.
async fn kept_when_returned(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let top = c.capabilities().priority_levels - 1;
    for action in [Action::Release, Action::Retry] {
        let middle = c.client().push(&p, &[c.message().with_priority(top.div_ceil(2))]).await?;
        let held = c.client().take(&p, 1).await?;
        let low = c.client().push(&p, &[c.message()]).await?;
        c.client().settle_all(&held, &action).await?;
        let mut expected = [middle, low].concat();
        if top >= 2 {
            let high = c.client().push(&p, &[c.message().with_priority(top)]).await?;
            expected = [high, expected].concat();
        }
        let got = c.client().take(&p, expected.len()).await?;
        c.in_order(Clause::Order, "the returned message at its level", &expected, &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// A postponed message keeps its level: it goes behind others of that level, not behind less urgent ones.
async fn kept_when_postponed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let urgent = c.client().push(&p, &[c.message().with_priority(1)]).await?;
    let held = c.client().take(&p, 1).await?;
    let low = c.client().push(&p, &[c.message()]).await?;
    c.client().settle_all(&held, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Order, "the postponed message at its level", &[urgent, low].concat(), &got)?;
    c.client().remove(&got).await
}

/// A pull of ten with three urgent and many other messages returns the three, then the oldest of the others.
async fn few_urgent_among_many(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let low = c.client().push(&p, &c.messages(20, |_, message| message)).await?;
    let high = c.client().push(&p, &c.messages(3, |_, message| message.with_priority(1))).await?;
    let expected: Vec<_> = high.iter().chain(&low).copied().collect();
    let mut got = c.client().pull(&p, 10).await?;
    c.in_order(
        Clause::Order,
        "three urgent, then the oldest others",
        expected.get(..10).unwrap_or_default(),
        &got,
    )?;
    got.extend(c.client().take(&p, 13).await?);
    c.in_order(Clause::Order, "the rest in order", &expected, &got)?;
    c.client().remove(&got).await
}

/// The highest priority goes before the second highest that came earlier.
async fn top_levels(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let top = c.capabilities().priority_levels.saturating_sub(1);
    let second = push_one(c, &p, c.message().with_priority(top.saturating_sub(1))).await?;
    let first = push_one(c, &p, c.message().with_priority(top)).await?;
    removes(c, Clause::Order, "the highest priority first", &p, &[first, second]).await
}
