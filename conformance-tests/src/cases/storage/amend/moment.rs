//! Giving waiting messages another due time.

use std::time::Instant;

use anyqueue::adapter::PullRequest;
use anyqueue::{Amend, MessageId, PartitionId};

use super::{ORDERED, nothing, one_by_one, push, push_alike};
use crate::case::Case;
use crate::cases::storage::helpers::{postpone, removes};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.now_joins_the_end", [Amendments, Delays], now_joins_the_end)
        .needs(&[Need::Amend, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.now_of_ready", [Amendments, Order], now_of_what_is_ready)
        .needs(ORDERED)
        .kills(&[Fault::NowMovesReady]),
    case!(Storage, "amend.now_of_postponed", [Amendments, Groups], now_of_a_postponed_head)
        .needs(&[Need::Amend, Need::Groups, Need::PostponeDelay])
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.now_wakes", [Amendments, AllWaitersWake], now_wakes)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::NowWakesNobody]),
    case!(Storage, "amend.later", [Amendments, Delays], later)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::LaterIgnored]),
    case!(Storage, "amend.later_joins_the_end", [Amendments, Delays], later_joins_the_end)
        .needs(&[Need::Amend, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::LaterKeepsPlace]),
    case!(Storage, "amend.later_of_a_head", [Amendments, Groups], later_of_a_head)
        .needs(&[Need::Amend, Need::Groups, Need::PushDelay])
        .kills(&[Fault::LaterKeepsPlace, Fault::LaterIgnored]),
    case!(Storage, "amend.later_behind_a_head", [Amendments, Groups], later_behind_a_head)
        .needs(&[Need::Amend, Need::Groups, Need::PushDelay])
        .kills(&[Fault::LaterKeepsPlace]),
    case!(Storage, "amend.delayed_anew", [Amendments, Delays], delayed_anew)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::LaterIgnored]),
];

/// A delayed message that is made due at once goes behind the ready ones.
async fn now_joins_the_end(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let later = || c.message().with_delay(t.delay * 40);
    let [first, second, ready] = push(c, &p, [later(), later(), c.message()]).await?;
    c.amended(&p, &[second], Amend::new().now()).await?;
    c.amended(&p, &[first], Amend::new().now()).await?;
    removes(c, Clause::Amendments, "each as it became due", &p, &[ready, second, first]).await
}

/// A message that could already be pulled stays where it is.
async fn now_of_what_is_ready(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 3] = push_alike(c, &p).await?;
    let [first, second, _] = sent;
    c.amended(&p, &[first, second], Amend::new().now()).await?;
    removes(c, Clause::Amendments, "all where they stood", &p, &sent).await
}

/// A postponed head becomes due at once, still ahead of its group.
async fn now_of_a_postponed_head(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let member = || c.message().with_group("g");
    let [head, second] = push(c, &p, [member(), member()]).await?;
    let out = c.client().take(&p, 1).await?;
    postpone(c.client(), &out, t.delay * 40, None).await?;
    c.amended(&p, &[second], Amend::new().now()).await?;
    nothing(c, &p, "the group to wait for its postponed head").await?;
    c.amended(&p, &[head], Amend::new().now()).await?;
    one_by_one(c, "the head, then the second", &p, &[head, second]).await
}

/// A message that is made due at once goes to a waiting pull.
async fn now_wakes(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [id] = push(c, &p, [c.message().with_delay(t.delay * 40)]).await?;
    let got = c.wakes(&p, c.amended(&p, &[id], Amend::new().now())).await?;
    c.in_order(Clause::Amendments, "what became due", &[id], &got)?;
    c.client().remove(&got).await
}

/// Pulls a message that was made due `t.delay` after `asked`: not before, and soon after.
async fn comes_when_due(c: &Context, p: &PartitionId, asked: Instant, id: MessageId) -> CaseResult {
    let t = c.timing();
    let got = c.client().pull_with(p, PullRequest::new(1, t.latest(t.delay), t.long_lease)).await?;
    c.took(Clause::Amendments, &[id], "what was made due", asked.elapsed(), (t.delay, t.latest(t.delay)))?;
    c.in_order(Clause::Amendments, "what was made due", &[id], &got)?;
    c.client().remove(&got).await
}

/// A ready message can be made to wait: a waiting pull gets it then, and not before.
async fn later(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [id, other] = push_alike(c, &p).await?;
    let asked = Instant::now();
    c.amended(&p, &[id], Amend::new().due_in(t.delay)).await?;
    one_by_one(c, "the one that was left as it was", &p, &[other]).await?;
    comes_when_due(c, &p, asked, id).await
}

/// When it becomes due, it is behind the messages that were ready.
async fn later_joins_the_end(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [amended, other] = push_alike(c, &p).await?;
    c.amended(&p, &[amended], Amend::new().due_in(t.delay)).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    removes(c, Clause::Amendments, "the amended one at the end", &p, &[other, amended]).await
}

/// The head of a group holds its group until it is due.
async fn later_of_a_head(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let member = || c.message().with_group("g");
    let [head, second] = push(c, &p, [member(), member()]).await?;
    let asked = Instant::now();
    c.amended(&p, &[head], Amend::new().due_in(t.delay)).await?;
    comes_when_due(c, &p, asked, head).await?;
    one_by_one(c, "the second", &p, &[second]).await
}

/// A message behind the head leaves the line, and joins the end of its group when it is due.
async fn later_behind_a_head(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let member = || c.message().with_group("g");
    let [head, second, third] = push(c, &p, [member(), member(), member()]).await?;
    let out = c.client().take(&p, 1).await?;
    c.in_order(Clause::Groups, "the head", &[head], &out)?;
    c.amended(&p, &[second], Amend::new().due_in(t.delay)).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    nothing(c, &p, "the group to wait for its head, whoever became due").await?;
    c.client().remove(&out).await?;
    one_by_one(c, "the third, then the second", &p, &[third, second]).await
}

/// A delayed message can be made due earlier, or later.
async fn delayed_anew(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let early = c.message().with_delay(t.delay);
    let late = c.message().with_delay(t.delay * 40);
    let [to_be_late, to_be_early] = push(c, &p, [early, late]).await?;
    c.amended(&p, &[to_be_late], Amend::new().due_in(t.delay * 40)).await?;
    let asked = Instant::now();
    c.amended(&p, &[to_be_early], Amend::new().due_in(t.delay)).await?;
    comes_when_due(c, &p, asked, to_be_early).await?;
    nothing(c, &p, "the other to wait still").await?;
    c.amended(&p, &[to_be_late], Amend::new().now()).await?;
    one_by_one(c, "the other", &p, &[to_be_late]).await
}
