//! What a pull of whole groups leaves alone, and what joins the group meanwhile.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;
use anyqueue::{Amend, MessageId};

use super::{ALL, NEEDS, claim, claims, member, nothing, push, push_members, whole};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "whole.delayed_is_left", [WholeGroups, Delays], delayed_is_left)
        .needs(&[Need::WholeGroups, Need::PushDelay])
        .kills(&[Fault::WholeGroupsTakeDelayed]),
    case!(Storage, "whole.disabled_is_left", [WholeGroups, Amendments], disabled_is_left)
        .needs(AMENDED)
        .kills(&[Fault::WholeGroupsTakeDisabled]),
    case!(Storage, "whole.pushed_meanwhile", [WholeGroups, Groups], pushed_meanwhile)
        .needs(NEEDS)
        .kills(&[Fault::ReleasedMemberToEnd]),
    case!(Storage, "whole.removed_from_the_line", [WholeGroups, Deletion], removed_from_the_line)
        .needs(&[Need::WholeGroups, Need::Delete])
        .kills(&[Fault::WholeGroupsHeadOnly]),
    case!(Storage, "whole.freed_wakes_waiter", [WholeGroups, PushWakes], freed_wakes_waiter)
        .needs(NEEDS)
        .kills(&[Fault::FreedGroupWakesNobody]),
];

const AMENDED: &[Need] = &[Need::WholeGroups, Need::Amend];

/// A delayed member is not taken before its time; when it is due, it joins the end.
async fn delayed_is_left(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let pushed = Instant::now();
    let [first, delayed, last] = push(c, &p, [member(c), member(c).with_delay(t.delay), member(c)]).await?;
    let got = claim(c, "the members that are due", &p, &[first, last]).await?;
    let watch = (t.delay + t.slack).saturating_sub(pushed.elapsed());
    let expected = "what has become due to wait for those that are held";
    c.client().nothing(&p, watch, Clause::WholeGroups, expected).await?;
    c.client().settle_all(&got, &Action::Release).await?;
    claims(c, "what became due at the end", &p, &[first, last, delayed]).await
}

/// A disabled member is skipped; when it is enabled, it stands where it stood.
async fn disabled_is_left(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, disabled, last] = push_members(c, &p).await?;
    c.amended(&p, &[disabled], Amend::new().disable()).await?;
    let got = claim(c, "the members that are not disabled", &p, &[first, last]).await?;
    c.amended(&p, &[disabled], Amend::new().enable()).await?;
    nothing(c, &p, "what was enabled to wait for those that are held").await?;
    c.client().settle_all(&got, &Action::Release).await?;
    claims(c, "all where they stood", &p, &[first, disabled, last]).await
}

/// Members that are pushed while others are held wait for these, and come after them.
async fn pushed_meanwhile(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, second] = push_members(c, &p).await?;
    let got = claim(c, "the whole group", &p, &[first, second]).await?;
    let [third, fourth] = push_members(c, &p).await?;
    nothing(c, &p, "who came later to wait for those that are held").await?;
    c.client().settle_all(&got, &Action::Release).await?;
    claims(c, "who came later at the end", &p, &[first, second, third, fourth]).await
}

/// A member that is deleted while it waits leaves no gap.
async fn removed_from_the_line(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, deleted, third] = push_members(c, &p).await?;
    for outcome in c.client().inspect()?.delete(&p, &[deleted]).await {
        c.ok(Clause::Deletion, "a deletion", outcome)?;
    }
    claims(c, "the members that are left", &p, &[first, third]).await
}

/// A pull that waits for whole groups gets the rest of one as soon as the last held member has ended.
async fn freed_wakes_waiter(c: &Context) -> CaseResult {
    let (p, t, waiter) = (c.partition("work")?, c.timing(), c.fresh().await?);
    let held: [MessageId; 2] = push_members(c, &p).await?;
    let held = claim(c, "the whole group", &p, &held).await?;
    let rest: [MessageId; 2] = push_members(c, &p).await?;
    let waiting = async {
        let got = waiter.pull_with(&p, whole(&waiter, ALL, ALL, t.soon * 3)).await?;
        CaseResult::Ok((got, Instant::now()))
    };
    let removing = async {
        c.pull_begins(&waiter).await?;
        tokio::time::sleep(t.delay / 3).await; // so that it waits, and does not look for the first time
        for delivery in &held {
            c.client().remove(std::slice::from_ref(delivery)).await?;
        }
        CaseResult::Ok(Instant::now())
    };
    let (came, removed) = futures_util::join!(waiting, removing);
    let ((got, came), removed) = (came?, removed?);
    let bounds = (Duration::ZERO, t.soon);
    c.took(Clause::PushWakes, &rest, "the rest", came.saturating_duration_since(removed), bounds)?;
    c.in_order(Clause::WholeGroups, "the rest of the group", &rest, &got)?;
    waiter.remove(&got).await
}
