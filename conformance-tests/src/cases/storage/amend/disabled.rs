//! Messages that are set aside, and come back to where they stood.

use std::time::Instant;

use anyqueue::adapter::Action;
use anyqueue::{Amend, MessageData, MessageId};

use super::{ORDERED, nothing, one_by_one, push, push_alike};
use crate::case::Case;
use crate::cases::storage::helpers::removes;
use crate::clause::Clause;
use crate::context::{Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.disabled", [Amendments], ready)
        .needs(ORDERED)
        .kills(&[Fault::DisabledLate, Fault::EnabledToEnd]),
    case!(Storage, "amend.disabled_twice", [Amendments], twice).needs(ORDERED).kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.disabled_returned", [Amendments, SettleActions], returned)
        .needs(&[Need::Amend, Need::PushOrder, Need::RequeueFront])
        .kills(&[Fault::EnabledToEnd]),
    case!(Storage, "amend.disabled_while_due", [Amendments, Delays], while_it_becomes_due)
        .needs(&[Need::Amend, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::DisabledComesDue]),
    case!(Storage, "amend.enabled_before_due", [Amendments, Delays], enabled_before_it_is_due)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::EnabledEarly]),
    case!(Storage, "amend.disabled_head", [Amendments, Groups], head)
        .needs(&[Need::Amend, Need::Groups, Need::PushOrder])
        .kills(&[Fault::DisabledBlocksGroup, Fault::EnabledToEnd]),
    case!(Storage, "amend.disabled_in_line", [Amendments, Groups], in_line)
        .needs(&[Need::Amend, Need::Groups, Need::PushOrder])
        .kills(&[Fault::EnabledToEnd]),
    case!(Storage, "amend.disabled_and_amended", [Amendments], and_amended)
        .needs(&[Need::Amend, Need::PushOrder, Need::StrictPriority, Need::PushDelay])
        .kills(&[Fault::AmendIgnored, Fault::AmendEnables]),
    case!(Storage, "amend.enabled_wakes", [Amendments, AllWaitersWake], enabled_wakes)
        .needs(&[Need::Amend])
        .kills(&[Fault::EnabledWakesNobody]),
    case!(Storage, "amend.disabled_wakes_nobody", [Amendments, PullWait], wakes_nobody)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::DisabledComesDue]),
    case!(Storage, "amend.disabled_keeps_what_it_is", [Amendments, DeliveryCount], keeps_what_it_is)
        .needs(&[Need::Amend, Need::DeliveryCount])
        .kills(&[Fault::DisabledStoredAnew]),
];

/// A ready message is given to nobody while it is disabled; then it stands where it stood.
async fn ready(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, second, third, fourth] = push_alike(c, &p).await?;
    c.amended(&p, &[first, third], Amend::new().disable()).await?;
    one_by_one(c, "what is not disabled", &p, &[second]).await?;
    c.amended(&p, &[third], Amend::new().enable()).await?;
    removes(c, Clause::Amendments, "what was enabled where it stood", &p, &[third, fourth]).await?;
    nothing(c, &p, "nothing of what is disabled").await?;
    c.amended(&p, &[first], Amend::new().enable()).await?;
    one_by_one(c, "what was enabled", &p, &[first]).await
}

/// Disabling a disabled message, and enabling one that is not disabled, changes nothing.
async fn twice(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent: [MessageId; 3] = push_alike(c, &p).await?;
    let [first, second, third] = sent;
    c.amended(&p, &[second], Amend::new().enable()).await?;
    for _ in 0..2 {
        c.amended(&p, &[first, second], Amend::new().disable()).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "the one that is not disabled", &[third], &got)?;
    nothing(c, &p, "nothing of what is disabled").await?;
    c.client().settle_all(&got, &Action::Remove).await?;
    for _ in 0..2 {
        c.amended(&p, &[second, first], Amend::new().enable()).await?;
    }
    removes(c, Clause::Amendments, "both where they stood", &p, &[first, second]).await
}

/// A returned message is ahead of those that were never delivered, even after it was disabled.
async fn returned(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [older, returned] = push_alike(c, &p).await?;
    c.amended(&p, &[older], Amend::new().disable()).await?;
    let out = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "the one that is not disabled", &[returned], &out)?;
    c.client().settle_all(&out, &Action::Release).await?;
    c.amended(&p, &[older], Amend::new().enable()).await?;
    c.amended(&p, &[returned], Amend::new().disable()).await?;
    c.amended(&p, &[returned], Amend::new().enable()).await?;
    removes(c, Clause::Amendments, "what was returned, then the other", &p, &[returned, older]).await
}

/// A message that becomes due while it is disabled stays; enabled, it joins the end.
async fn while_it_becomes_due(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [id] = push(c, &p, [c.message().with_delay(t.delay)]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    c.client()
        .nothing(&p, t.delay + t.slack, Clause::Amendments, "nothing, as what becomes due is disabled")
        .await?;
    let [ready] = push_alike(c, &p).await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    removes(c, Clause::Amendments, "what was enabled at the end", &p, &[ready, id]).await
}

/// A message that is enabled before its due time still waits for that.
async fn enabled_before_it_is_due(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let pushed = Instant::now();
    let [id] = push(c, &p, [c.message().with_delay(t.delay)]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    let got = c.client().pull_with(&p, c.client().request(1, t.latest(t.delay))).await?;
    let bounds = (t.delay, t.latest(t.delay));
    c.took(Clause::Amendments, &[id], "what was delayed", pushed.elapsed(), bounds)?;
    c.in_order(Clause::Amendments, "what was delayed", &[id], &got)?;
    c.client().remove(&got).await
}

fn member(c: &Context) -> MessageData {
    c.message().with_group("g")
}

/// A group goes on past a disabled head; when it is enabled, it is next again once the new head is gone.
async fn head(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [head, second, third] = push(c, &p, [member(c), member(c), member(c)]).await?;
    c.amended(&p, &[head], Amend::new().disable()).await?;
    let out = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "the second, as the head is disabled", &[second], &out)?;
    c.amended(&p, &[head], Amend::new().enable()).await?;
    nothing(c, &p, "one member at a time").await?;
    c.client().remove(&out).await?;
    one_by_one(c, "by their old places", &p, &[head, third]).await
}

/// A message behind the head is skipped while it is disabled; enabled in time, it has its old place.
async fn in_line(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let members = [member(c), member(c), member(c), member(c)];
    let [head, second, third, fourth] = push(c, &p, members).await?;
    c.amended(&p, &[second, third], Amend::new().disable()).await?;
    c.amended(&p, &[third], Amend::new().enable()).await?;
    one_by_one(c, "past the second", &p, &[head, third, fourth]).await?;
    nothing(c, &p, "nothing of what is disabled").await?;
    c.amended(&p, &[second], Amend::new().enable()).await?;
    one_by_one(c, "the second", &p, &[second]).await
}

/// A disabled message can be amended, stays disabled, and has the amendment afterwards.
async fn and_amended(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [first, second, delayed] =
        push(c, &p, [c.message(), c.message(), c.message().with_delay(t.delay * 40)]).await?;
    c.amended(&p, &[second, delayed], Amend::new().disable()).await?;
    c.amended(&p, &[second], Amend::new().with_priority(1)).await?;
    c.amended(&p, &[delayed], Amend::new().now()).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "what is not disabled", &[first], &got)?;
    nothing(c, &p, "nothing of what is disabled").await?;
    c.client().settle_all(&got, &Action::Release).await?;
    c.amended(&p, &[second, delayed], Amend::new().enable()).await?;
    removes(c, Clause::Amendments, "by priority; what became due last", &p, &[second, first, delayed]).await
}

/// A message that is enabled goes to a waiting pull.
async fn enabled_wakes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [id] = push_alike(c, &p).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let got = c.wakes(&p, c.amended(&p, &[id], Amend::new().enable())).await?;
    c.in_order(Clause::Amendments, "what was enabled", &[id], &got)?;
    c.client().remove(&got).await
}

/// A pull that waits for a message to become due does not get it if it is disabled meanwhile: it waits to its
/// end.
async fn wakes_nobody(c: &Context) -> CaseResult {
    let (p, t, waiter) = (c.partition("work")?, c.timing(), c.fresh().await?);
    let [id] = push(c, &p, [c.message().with_delay(t.delay)]).await?;
    let wait = t.delay * 2 + t.slack;
    let (got, disabled) = futures_util::future::join(waiter.pull_with(&p, waiter.request(1, wait)), async {
        c.pull_begins(&waiter).await?;
        c.amended(&p, &[id], Amend::new().disable()).await
    })
    .await;
    disabled?;
    c.equal(Clause::Amendments, &[id], "deliveries to who waited", &Vec::new(), &ids(&got?))?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    one_by_one(c, "what was enabled", &p, &[id]).await
}

/// Its delivery count and its age continue; disabling is not a delivery.
async fn keeps_what_it_is(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let message = c.message().with_header("a", "b").with_task_id("task");
    let [id] = push(c, &p, [message.clone()]).await?;
    let pushed = Instant::now();
    let out = c.client().take(&p, 1).await?;
    c.client().settle_all(&out, &Action::Retry).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    tokio::time::sleep(t.delay).await;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    let least = pushed.elapsed();
    let [got] = c.client().take_exact(&p).await?;
    c.equal(Clause::Amendments, &[id], "the message", &message, &got.message)?;
    c.equal(Clause::DeliveryCount, &[id], "its deliveries", &Some(2), &got.delivery_count)?;
    let grain = crate::context::CLOCK_GRAIN;
    let old = got.age + grain >= least;
    c.check(Clause::Amendments, &[id], old, format!("an age of {least:?}"), format!("{:?}", got.age))?;
    c.client().remove(&[got]).await
}
