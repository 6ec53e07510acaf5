//! Leases of members that were claimed together, and what comes back when they end.

use std::time::{Duration, Instant};

use anyqueue::MessageId;
use anyqueue::adapter::{Action, PullRequest};

use super::{ALL, claim, nothing, push_members, whole};
use crate::case::Case;
use crate::cases::storage::kill::taken;
use crate::child::{ChildEvent, Role};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "whole.lease_ends", [WholeGroups, LeaseEnd], lease_ends)
        .needs(NEEDS)
        .kills(&[Fault::LeaseEndLeavesGroup]),
    case!(Storage, "whole.one_extended", [WholeGroups, Extend, LeaseEnd], one_extended)
        .needs(NEEDS)
        .kills(&[Fault::ExtendTakesBatch, Fault::LeaseEndLeavesGroup]),
    case!(Storage, "whole.holder_dies", [WholeGroups, LeaseEnd], holder_dies)
        .needs(&[Need::WholeGroups, Need::TimedLease, Need::Children])
        .kills(&[Fault::LeaseEndedByItsHolder]),
];

const NEEDS: &[Need] = &[Need::WholeGroups, Need::TimedLease];

fn request(lease: Duration, wait: Duration) -> PullRequest {
    PullRequest::new(ALL, wait, lease).with_group_members(ALL)
}

/// A group that was held as a whole comes back as a whole when the leases end, in order, ahead of members
/// that came later.
async fn lease_ends(c: &Context) -> CaseResult {
    let (p, t, other) = (c.partition("work")?, c.timing(), c.fresh().await?);
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let held = c.client().pull_with(&p, request(t.lease, t.soon)).await?;
    c.in_order(Clause::WholeGroups, "the whole group", &sent, &held)?;
    let later: [MessageId; 1] = push_members(c, &p).await?;
    let all = [&sent[..], &later[..]].concat();
    let got = other.pull_with(&p, whole(&other, ALL, ALL, t.latest(t.lease))).await?;
    c.in_order(Clause::WholeGroups, "all that were held, then who came later", &all, &got)?;
    other.remove(&got).await
}

/// Each member has its own lease: those that were not extended come back, when the one that was has ended.
async fn one_extended(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let sent: [MessageId; 3] = push_members(c, &p).await?;
    let [first, middle, last] = sent;
    let pulled = Instant::now();
    let held = c.client().pull_with(&p, request(t.act_lease, t.soon)).await?;
    c.in_order(Clause::WholeGroups, "the whole group", &sent, &held)?;
    let Some(extended) = held.get(1) else { return Ok(()) };
    c.client().extend(extended, t.long_lease).await?;
    c.still_within(pulled, t.act_lease)?;
    let expected = "what is no longer held to wait for the one that is";
    c.client().nothing(&p, t.act_lease + t.slack, Clause::WholeGroups, expected).await?;
    nothing(c, &p, expected).await?;
    c.client().settle_all(std::slice::from_ref(extended), &Action::Release).await?;
    let got = claim(c, "the whole group again", &p, &[first, middle, last]).await?;
    c.client().remove(&got).await
}

/// A group that a killed process held as a whole goes to another as a whole, in order, when its leases have
/// ended.
async fn holder_dies(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let sent: [MessageId; 4] = push_members(c, &p).await?;
    let (first, _) = sent.split_at(3);
    let lease = t.lease * 3;
    let mut child = c.spawn(&role(first.len(), lease))?;
    let events = child.wait_for(first.len(), |event| matches!(event, ChildEvent::Took { .. })).await?;
    child.kill().await?;
    let took = taken(&events);
    let told = format!("{} taken by the process", c.history().labels(first));
    c.check(Clause::WholeGroups, &sent, took == first, told, c.history().labels(&took))?;
    let got = c.client().pull_with(&p, whole(c.client(), ALL, ALL, t.latest(lease))).await?;
    c.in_order(Clause::WholeGroups, "what the process held, then the next", &sent, &got)?;
    c.client().remove(&got).await
}

/// Holds this many members of a group.
fn role(members: usize, lease: Duration) -> Role {
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    Role::GroupHolder { partition: "work".to_owned(), members, lease_ms }
}
