//! Giving waiting messages another group, or none.

use anyqueue::{Amend, MessageData};

use super::{nothing, one_by_one, push};
use crate::case::Case;
use crate::cases::storage::helpers::removes;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.joins_a_group", [Amendments, Groups], joins)
        .needs(NEEDS)
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.head_leaves", [Amendments, Groups], head_leaves)
        .needs(NEEDS)
        .kills(&[Fault::RegroupLocksGroup]),
    case!(Storage, "amend.head_of_three", [Amendments, Groups], head_of_three)
        .needs(NEEDS)
        .kills(&[Fault::RegroupLocksGroup]),
    case!(Storage, "amend.leaves_the_line", [Amendments, Groups], leaves_the_line)
        .needs(NEEDS)
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.group_it_has", [Amendments, Groups], the_one_it_has)
        .needs(NEEDS)
        .kills(&[Fault::SameGroupJoinedAnew]),
    case!(Storage, "amend.delayed_joins_another", [Amendments, Groups, Delays], delayed_joins_another)
        .needs(&[Need::Amend, Need::Groups, Need::PushOrder, Need::PushDelay])
        .kills(&[Fault::AmendIgnored]),
    case!(Storage, "amend.disabled_joins", [Amendments, Groups], disabled_joins)
        .needs(NEEDS)
        .kills(&[Fault::RegroupedWhenEnabled]),
];

const NEEDS: &[Need] = &[Need::Amend, Need::Groups, Need::PushOrder];

fn member(c: &Context) -> MessageData {
    c.message().with_group("g")
}

/// A message without a group joins the end of one, and waits for its turn from then on.
async fn joins(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [joins, head, second] = push(c, &p, [c.message(), member(c), member(c)]).await?;
    c.amended(&p, &[joins], Amend::new().with_group("g")).await?;
    let out = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "the head", &[head], &out)?;
    let group = out.first().and_then(|delivery| delivery.message.options().group.clone());
    c.equal(Clause::ContentIntact, &[head], "its group", &Some("g".into()), &group)?;
    nothing(c, &p, "the others to wait for the head").await?;
    c.client().remove(&out).await?;
    one_by_one(c, "the second", &p, &[second]).await?;
    let [last] = c.client().take_exact(&p).await?;
    let seen = (last.lease.id, last.message.options().group.clone());
    c.equal(Clause::Amendments, &[joins], "the one that joined", &(joins, Some("g".into())), &seen)?;
    c.client().remove(&[last]).await
}

/// A head that leaves its group stands at the end of its priority, and the next member becomes head.
async fn head_leaves(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [head, second, other] = push(c, &p, [member(c), member(c), c.message()]).await?;
    c.amended(&p, &[head], Amend::new().without_group()).await?;
    let got = c.client().take(&p, 3).await?;
    c.in_order(Clause::Amendments, "the new head, and who left at the end", &[second, other, head], &got)?;
    let groups: Vec<_> = got.iter().map(|delivery| delivery.message.options().group.clone()).collect();
    c.equal(Clause::Amendments, &[head], "their groups", &vec![Some("g".into()), None, None], &groups)?;
    c.client().remove(&got).await
}

/// The head of three that joins a group without members becomes its head; the second is head of the rest.
async fn head_of_three(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [head, second, third] = push(c, &p, [member(c), member(c), member(c)]).await?;
    c.amended(&p, &[head], Amend::new().with_group("empty")).await?;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Amendments, "the heads of both groups", &[second, head], &got)?;
    nothing(c, &p, "the third to wait for its new head").await?;
    c.client().remove(&got).await?;
    one_by_one(c, "the third", &p, &[third]).await
}

/// A message behind the head that joins another group, or none, no longer waits for the head.
async fn leaves_the_line(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [head, second, third, fourth] = push(c, &p, [member(c), member(c), member(c), member(c)]).await?;
    c.amended(&p, &[third], Amend::new().with_group("other")).await?;
    c.amended(&p, &[second], Amend::new().without_group()).await?;
    let got = c.client().take(&p, 3).await?;
    c.in_order(Clause::Amendments, "the head, and those that left", &[head, third, second], &got)?;
    nothing(c, &p, "the fourth to wait for the head").await?;
    c.client().remove(&got).await?;
    one_by_one(c, "the fourth", &p, &[fourth]).await
}

/// Amending a message to the group that it already has moves it nowhere, and neither does removing it from
/// none.
async fn the_one_it_has(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [head, second, third] = push(c, &p, [member(c), member(c), member(c)]).await?;
    c.amended(&p, &[head, second], Amend::new().with_group("g")).await?;
    one_by_one(c, "the group as it was", &p, &[head, second, third]).await?;
    let [first, last] = push(c, &p, [c.message(), c.message()]).await?;
    c.amended(&p, &[first], Amend::new().without_group()).await?;
    removes(c, Clause::Amendments, "both where they stood", &p, &[first, last]).await
}

/// A delayed message joins the new group when it is due, not the old one.
async fn delayed_joins_another(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let other = c.message().with_group("other");
    let [head, head_of_other, delayed] =
        push(c, &p, [member(c), other, member(c).with_delay(t.delay)]).await?;
    c.amended(&p, &[delayed], Amend::new().with_group("other")).await?;
    let out = c.client().take(&p, 2).await?;
    c.in_order(Clause::Groups, "both heads", &[head, head_of_other], &out)?;
    let [of_g, of_other] = out.as_slice() else { return Ok(()) };
    tokio::time::sleep(t.delay + t.slack).await;
    c.client().remove(std::slice::from_ref(of_g)).await?;
    nothing(c, &p, "what became due to wait for the head of its new group").await?;
    c.client().remove(std::slice::from_ref(of_other)).await?;
    one_by_one(c, "what became due", &p, &[delayed]).await
}

/// A disabled message joins the end of its new group at the moment of the amendment, and stands there once it
/// is enabled.
async fn disabled_joins(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let old = c.message().with_group("old");
    let [joins, head, second] = push(c, &p, [old, member(c), member(c)]).await?;
    c.amended(&p, &[joins], Amend::new().disable()).await?;
    c.amended(&p, &[joins], Amend::new().with_group("g")).await?;
    let [later] = push(c, &p, [member(c)]).await?;
    let out = c.client().take(&p, 1).await?;
    c.in_order(Clause::Amendments, "the head", &[head], &out)?;
    c.amended(&p, &[joins], Amend::new().enable()).await?;
    nothing(c, &p, "what was enabled to wait for the head").await?;
    c.client().remove(&out).await?;
    one_by_one(c, "what joined after the second, while it was disabled", &p, &[second, joins, later]).await
}
