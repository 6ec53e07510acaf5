//! Groups: one member at a time, in push order.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest, RawDelivery};
use anyqueue::{MessageId, PartitionId};
use futures_util::future::join_all;

use super::helpers::{push_one, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "groups.one_at_a_time", [Groups], one_at_a_time).needs(NEEDS).kills(KILLS),
    case!(Storage, "groups.side_by_side", [Groups], side_by_side)
        .needs(NEEDS)
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::GroupCaseless]),
    case!(Storage, "groups.order_over_many", [Groups], order_over_many)
        .needs(NEEDS)
        .kills(&[Fault::TiesReversed]),
    case!(Storage, "groups.returned_head_first", [Groups], returned_head_first)
        .needs(NEEDS)
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::FailedHeadToEnd]),
    case!(Storage, "groups.expired_head_first", [LeaseEnd, Groups], expired_head_first)
        .needs(&[Need::Groups, Need::TimedLease])
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::LeaseEndNotCounted]),
    case!(Storage, "groups.dead_head_frees_next", [Groups, DeadLetters], dead_head_frees_next)
        .needs(NEEDS)
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::MoveToNewVanishes]),
    case!(Storage, "groups.postponed_head_holds", [Groups], postponed_head_holds)
        .needs(&[Need::Groups, Need::PostponeDelay])
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::PostponedHeadFreesGroup]),
    case!(Storage, "groups.delayed_joins_at_maturity", [Delays, Groups], delayed_joins_at_maturity)
        .needs(&[Need::Groups, Need::PushDelay])
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::DelayedForgetsGroup]),
    case!(Storage, "groups.matured_unseen_is_ahead", [Delays, Groups], matured_unseen_is_ahead)
        .needs(&[Need::Groups, Need::PushDelay])
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::MaturesAtPull]),
    case!(Storage, "groups.next_wakes_waiter", [PushWakes, Groups], next_wakes_waiter)
        .needs(NEEDS)
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::FreedGroupWakesNobody]),
    case!(Storage, "groups.moved_joins_at_end", [SettleActions, Groups], moved_joins_at_end)
        .needs(NEEDS)
        .kills(&[Fault::GroupUnlocksAtDelivery, Fault::MoveForgetsGroup]),
    case!(Storage, "groups.many_consumers", [Exclusive, Groups], many_consumers).needs(NEEDS).kills(KILLS),
    case!(Storage, "groups.names_by_bytes", [Groups], names_by_bytes)
        .needs(&[Need::Groups])
        .kills(&[Fault::GroupTrimmed, Fault::GroupCaseless]),
    case!(Storage, "groups.over_clients", [Groups], over_clients)
        .needs(&[Need::Groups])
        .kills(&[Fault::GroupPerClient]),
    case!(Storage, "groups.over_priorities", [Groups], over_priorities)
        .needs(&[Need::Groups, Need::Priority])
        .kills(&[Fault::GroupPerPriority]),
    case!(Storage, "groups.with_priority", [Order], with_priority)
        .needs(&[Need::Groups, Need::StrictPriority])
        .kills(&[Fault::GroupForgetsPriority]),
    case!(Storage, "groups.cancel_frees_next", [Groups, Deletion], cancel_frees_next)
        .needs(&[Need::Groups, Need::Cancel])
        .kills(&[Fault::CancelLocksGroup]),
    case!(Storage, "groups.delete_frees_next", [Groups, Deletion], delete_frees_next)
        .needs(&[Need::Groups, Need::Delete])
        .kills(&[Fault::DeleteLocksGroup]),
    case!(Storage, "groups.purge_frees_next", [Groups, Deletion], purge_frees_next)
        .needs(&[Need::Groups, Need::Purge])
        .kills(&[Fault::PurgeLocksGroup]),
];

const NEEDS: &[Need] = &[Need::Groups];

const KILLS: &[Fault] = &[Fault::GroupUnlocksAtDelivery];

async fn push_group(c: &Context, group: &str, n: usize) -> CaseResult<Vec<MessageId>> {
    let messages = c.messages(n, |_, message| message.with_group(group));
    c.client().push(&c.partition("work")?, &messages).await
}

/// While one member is held, the next one is not offered; once it is removed, the next one is.
async fn one_at_a_time(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = push_group(c, "g", 3).await?;
    for id in sent {
        let got = c.client().pull(&p, 10).await?;
        c.in_order(Clause::Groups, "the group's head alone", &[id], &got)?;
        c.client()
            .nothing(&p, c.timing().slack, Clause::Groups, "the next member to wait for the head")
            .await?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// Each group has its own head; messages without a group wait for nobody.
async fn side_by_side(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (mut heads, mut rest) = (Vec::new(), Vec::new());
    for group in ["a", "b", "A"] {
        let sent = push_group(c, group, 2).await?;
        heads.extend(sent.first());
        rest.extend(sent.last());
    }
    heads.extend(c.client().push(&p, &c.messages(2, |_, message| message)).await?);
    let got = c.client().take(&p, heads.len()).await?;
    c.same(Clause::Groups, "the heads of all groups, and those in none", &heads, &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Groups, "the others to wait for their heads").await?;
    c.client().remove(&got).await?;
    let got = c.client().take(&p, rest.len()).await?;
    c.same(Clause::Groups, "the second of each group", &rest, &got)?;
    c.client().remove(&got).await
}

/// A long group comes in push order.
async fn order_over_many(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = push_group(c, "g", c.size(100, 1000)).await?;
    let mut seen = Vec::new();
    for _ in &sent {
        let got = c.client().take(&p, 1).await?;
        c.client().remove(&got).await?;
        seen.extend(got);
    }
    c.in_order(Clause::Groups, "push order", &sent, &seen)
}

/// A released or failed head comes first again.
async fn returned_head_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = push_group(c, "g", 2).await?;
    let (head, next) = sent.split_at(1);
    for action in [Action::Release, Action::Retry, Action::Release, Action::Remove] {
        let got = c.client().pull(&p, 10).await?;
        c.in_order(Clause::Groups, "the returned head, alone", head, &got)?;
        c.client().settle_all(&got, &action).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Groups, "the next, after the head was removed", next, &got)?;
    c.client().remove(&got).await
}

/// A head whose lease ended comes first again, alone.
async fn expired_head_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = push_group(c, "g", 2).await?;
    let head: Vec<_> = sent.iter().take(1).copied().collect();
    c.client().pull_with(&p, PullRequest::new(10, c.timing().soon, c.timing().lease)).await?;
    let wait = c.timing().latest(c.timing().lease);
    let got = c.client().pull_with(&p, c.client().request(10, wait)).await?;
    c.in_order(Clause::Groups, "the expired head, alone", &head, &got)?;
    c.client().remove(&got).await?;
    let next = c.client().take(&p, 1).await?;
    c.client().remove(&next).await
}

/// Death, and any other move away, frees the next member.
async fn dead_head_frees_next(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    let sent = push_group(c, "g", 3).await?;
    let mut out = Vec::new();
    for to in [p.dead_letters(), elsewhere.clone()] {
        let head = c.client().pull(&p, 10).await?;
        c.client().settle_all(&head, &Action::Move { to: to.clone(), headers: None }).await?;
        let moved = c.client().take(&to, 1).await?;
        c.in_order(Clause::Groups, "the head in its new place", &ids(&head), &moved)?;
        c.client().remove(&moved).await?;
        out.extend(moved);
    }
    let last = c.client().pull(&p, 10).await?;
    c.client().remove(&last).await?;
    out.extend(last);
    c.in_order(Clause::Groups, "one after the other", &sent, &out)
}

/// A postponed head keeps its group waiting until it is done.
async fn postponed_head_holds(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let sent = push_group(c, "g", 2).await?;
    let (start, mut seen) = (Instant::now(), Vec::new());
    let head = c.client().pull(&p, 10).await?;
    c.client().settle_all(&head, &Action::Postpone { delay, headers: None }).await?;
    for _ in 0..2 {
        let got = c.client().pull_with(&p, c.client().request(10, c.timing().latest(delay))).await?;
        c.check(Clause::Groups, &sent, got.len() == 1, "one member at a time", format!("{}", got.len()))?;
        c.client().remove(&got).await?;
        seen.extend(got);
    }
    c.in_order(Clause::Groups, "the postponed head, then the next", &sent, &seen)?;
    let bounds = (delay, c.timing().latest(delay) + c.timing().soon);
    c.took(Clause::Delays, &sent, "both", start.elapsed(), bounds)?;
    // Postponed without a delay, it holds its group as well.
    let sent = push_group(c, "h", 2).await?;
    let head = c.client().pull(&p, 10).await?;
    c.client().settle_all(&head, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let again = c.client().pull(&p, 10).await?;
    c.in_order(Clause::Groups, "the postponed head again, alone", &ids(&head), &again)?;
    c.client().remove(&again).await?;
    let next = c.client().pull(&p, 10).await?;
    c.client().remove(&next).await?;
    c.in_order(Clause::Groups, "the head, then the next", &sent, &[again, next].concat())
}

/// A delayed member does not hold up its group: it joins at the end when it is due.
async fn delayed_joins_at_maturity(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let late = c.client().push(&p, &[c.message().with_group("g").with_delay(delay)]).await?;
    let ready = push_group(c, "g", 1).await?;
    let head = c.client().pull(&p, 10).await?;
    c.in_order(Clause::Groups, "the member that is ready", &ready, &head)?;
    let watch = c.timing().never_after(delay);
    c.client().nothing(&p, watch, Clause::Groups, "the matured member to wait for the head").await?;
    c.client().remove(&head).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Groups, "the matured member", &late, &got)?;
    c.client().remove(&got).await
}

/// A member whose delay is over is ahead of members pushed after that, even if nobody has pulled since, and
/// even behind a head that goes.
async fn matured_unseen_is_ahead(c: &Context) -> CaseResult {
    let (p, delay) = (c.partition("work")?, c.timing().delay);
    for has_head in [false, true] {
        let mut sent = push_group(c, "g", usize::from(has_head)).await?;
        let head = if has_head { c.client().pull(&p, 10).await? } else { Vec::new() };
        sent.extend(c.client().push(&p, &[c.message().with_group("g").with_delay(delay)]).await?);
        tokio::time::sleep(delay + c.timing().slack).await;
        sent.extend(push_group(c, "g", 1).await?);
        c.client().remove(&head).await?;
        let mut out = head;
        for _ in 0..2 {
            let got = c.client().pull(&p, 10).await?;
            c.check(Clause::Groups, &sent, got.len() == 1, "one member at a time", format!("{}", got.len()))?;
            c.client().remove(&got).await?;
            out.extend(got);
        }
        c.in_order(Clause::Groups, "members in the order in which they joined", &sent, &out)?;
    }
    Ok(())
}

/// A waiting client gets the next member as soon as the head is removed.
async fn next_wakes_waiter(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = push_group(c, "g", 2).await?;
    let head = c.client().pull(&p, 1).await?;
    let waiting = async {
        let got = other.pull_with(&p, other.request(10, c.timing().latest(c.timing().soon))).await?;
        CaseResult::Ok((got, Instant::now()))
    };
    let removing = async {
        tokio::time::sleep(c.timing().lease / 2).await;
        let at = Instant::now();
        c.client().remove(&head).await?;
        CaseResult::Ok(at)
    };
    let (got, removed) = futures_util::join!(waiting, removing);
    let ((got, came), removed) = (got?, removed?);
    c.check(
        Clause::Groups,
        &sent,
        came >= removed,
        "the next member not before the head was removed",
        "it came before",
    )?;
    let took = came.saturating_duration_since(removed);
    c.took(Clause::PushWakes, &sent, "the next member", took, (Duration::ZERO, c.timing().soon))?;
    other.remove(&got).await?;
    c.in_order(Clause::Groups, "the head, then the next", &sent, &[head, got].concat())
}

/// A message that is moved into a partition joins the end of its group there.
async fn moved_joins_at_end(c: &Context) -> CaseResult {
    let (p, from) = (c.partition("work")?, c.partition("from")?);
    let moved = c.client().push(&from, &[c.message().with_group("g")]).await?;
    let sent = push_group(c, "g", 2).await?;
    let held = c.client().take(&from, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: p.clone(), headers: None }).await?;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let got = c.client().pull(&p, 10).await?;
        c.check(Clause::Groups, &[], got.len() == 1, "one member at a time", format!("{}", got.len()))?;
        c.client().remove(&got).await?;
        seen.extend(got);
    }
    c.in_order(Clause::Groups, "the moved member last", &[sent, moved].concat(), &seen)
}

/// Eight consumers and twenty groups: each group comes in order, and never two members of one at once.
async fn many_consumers(c: &Context) -> CaseResult {
    let mut sent = Vec::new();
    for group in 0..20 {
        sent.push(push_group(c, &format!("g{group}"), 5).await?);
    }
    let other = c.fresh().await?;
    let consumers = (0..8).map(|index| consume(c, if index % 2 == 0 { c.client() } else { &other }));
    let mut seen = join_all(consumers).await.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    seen.sort_by_key(|taken| taken.came);
    for group in sent {
        let members: Vec<_> = seen.iter().filter(|taken| group.contains(&taken.delivery.lease.id)).collect();
        let got: Vec<_> = members.iter().map(|taken| taken.delivery.clone()).collect();
        c.in_order(Clause::Groups, "push order within the group", &group, &got)?;
        for pair in members.windows(2) {
            let [head, next] = pair else { continue };
            let about = [head.delivery.lease.id, next.delivery.lease.id];
            let waited = next.came >= head.removing;
            c.check(
                Clause::Groups,
                &about,
                waited,
                "the next member not before the head was removed",
                "both were out",
            )?;
        }
    }
    Ok(())
}

/// A delivery, when it arrived, and when its removal began.
#[derive(Clone)]
struct Taken {
    came: Instant,
    removing: Instant,
    delivery: RawDelivery,
}

/// Takes and removes messages until nothing has come for a while.
async fn consume(c: &Context, client: &Client) -> CaseResult<Vec<Taken>> {
    let p = c.partition("work")?;
    let mut seen = Vec::new();
    loop {
        let got = client.pull_with(&p, client.request(3, c.timing().never())).await?;
        if got.is_empty() {
            return Ok(seen);
        }
        let came = Instant::now();
        tokio::task::yield_now().await;
        let removing = Instant::now();
        client.remove(&got).await?;
        seen.extend(got.into_iter().map(|delivery| Taken { came, removing, delivery }));
    }
}

/// Groups whose names differ in one byte are different: none waits for another.
async fn names_by_bytes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages: Vec<_> =
        super::dedup::NEARLY_EQUAL.iter().map(|group| c.message().with_group(*group)).collect();
    let sent = c.client().push(&p, &messages).await?;
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::Groups, "one of each group", &sent, &got)?;
    c.client().remove(&got).await
}

async fn over_clients(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let first = push_one(c, &p, c.message().with_group("g")).await?;
    let second = other.push(&p, &[c.message().with_group("g")]).await?;
    head_then_next(c, &p, first, &second).await
}

async fn head_then_next(c: &Context, p: &PartitionId, head: MessageId, next: &[MessageId]) -> CaseResult {
    let got = c.client().pull(p, 10).await?;
    c.in_order(Clause::Groups, "the group's head alone", &[head], &got)?;
    c.client().remove(&got).await?;
    removes(c, Clause::Groups, "then the next", p, next).await
}

async fn over_priorities(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, c.message().with_group("g")).await?;
    let second = push_one(c, &p, c.message().with_group("g").with_priority(1)).await?;
    head_then_next(c, &p, first, &[second]).await
}

async fn with_priority(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let low = push_one(c, &p, c.message()).await?;
    let high = push_one(c, &p, c.message().with_group("g").with_priority(1)).await?;
    removes(c, Clause::Order, "the higher priority first, though of a group", &p, &[high, low]).await
}

async fn cancel_frees_next(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let head = push_one(c, &p, c.message().with_group("g")).await?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    for outcome in c.client().inspect()?.request_cancel(&p, &[head]).await {
        c.ok(Clause::Deletion, "a request for cancellation", outcome)?;
    }
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}

async fn delete_frees_next(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let head = push_one(c, &p, c.message().with_group("g")).await?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    for outcome in c.client().inspect()?.delete(&p, &[head]).await {
        c.ok(Clause::Deletion, "a deletion", outcome)?;
    }
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}

async fn purge_frees_next(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_group("g")).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}
