//! Options and states in combination: what each gets right alone, and wrong beside another.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Delivery};
use anyqueue::{Headers, MessageData, MessageId, PartitionId, PushOutcome, SettleOutcome};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Client, Context, SCHEDULING, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "together.key_over_priorities", [Deduplication], key_over_priorities)
        .needs(&[Need::Dedup, Need::Priority])
        .kills(&[Fault::DedupPerPriority]),
    case!(Storage, "together.long_keys", [Deduplication], long_keys)
        .needs(&[Need::Dedup])
        .kills(&[Fault::KeyCutAt255]),
    case!(Storage, "together.key_after_lease_end", [LeaseEnd, Deduplication], key_after_lease_end)
        .needs(&[Need::DedupWhileLive, Need::TimedLease])
        .kills(&[Fault::KeyFreeAtLeaseEnd]),
    case!(Storage, "together.purge_frees_keys", [Deduplication, Deletion], purge_frees_keys)
        .needs(&[Need::DedupWhileLive, Need::Purge])
        .kills(&[Fault::PurgeKeepsKeys]),
    case!(Storage, "together.group_over_clients", [Groups], group_over_clients)
        .needs(&[Need::Groups])
        .kills(&[Fault::GroupPerClient]),
    case!(Storage, "together.group_over_priorities", [Groups], group_over_priorities)
        .needs(&[Need::Groups, Need::Priority])
        .kills(&[Fault::GroupPerPriority]),
    case!(Storage, "together.group_with_priority", [Order], group_with_priority)
        .needs(&[Need::Groups, Need::StrictPriority])
        .kills(&[Fault::GroupForgetsPriority]),
    case!(Storage, "together.top_levels", [Order], top_levels)
        .needs(&[Need::StrictPriority])
        .kills(&[Fault::TopLevelClamped]),
    case!(Storage, "together.cancel_frees_group", [Groups, Deletion], cancel_frees_group)
        .needs(&[Need::Groups, Need::Cancel])
        .kills(&[Fault::CancelLocksGroup]),
    case!(Storage, "together.delete_frees_group", [Groups, Deletion], delete_frees_group)
        .needs(&[Need::Groups, Need::Delete])
        .kills(&[Fault::DeleteLocksGroup]),
    case!(Storage, "together.purge_frees_group", [Groups, Deletion], purge_frees_group)
        .needs(&[Need::Groups, Need::Purge])
        .kills(&[Fault::PurgeLocksGroup]),
    case!(Storage, "together.moved_once_delayed", [SettleActions], moved_once_delayed)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::MoveRepeatsDelay]),
    case!(Storage, "together.headers_taken_away", [SettleActions], headers_taken_away)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::EmptyHeadersIgnored]),
    case!(Storage, "together.new_headers_last", [ContentIntact, SettleActions], new_headers_last)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::NewHeadersOnce, Fault::NewHeadersLocal, Fault::PostponeMergesHeaders]),
    case!(Storage, "together.new_headers_browsed", [Inspection], new_headers_browsed)
        .needs(&[Need::PostponeHeaders, Need::Browse])
        .kills(&[Fault::BrowseShowsOldHeaders]),
    case!(Storage, "together.age_of_a_delayed", [Expiry], age_of_a_delayed)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::AgeFromMaturity]),
    case!(Storage, "together.age_of_a_postponed", [Expiry], age_of_a_postponed)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::AgeAnewAfterPostpone]),
    case!(Storage, "together.repeat_keeps_the_delay", [Delays], repeat_keeps_the_delay)
        .needs(&[Need::UniqueIds, Need::PushDelay])
        .kills(&[Fault::RepeatRestartsDelay]),
    case!(Storage, "together.postponed_outlives_client", [SettleActions, Delays], postponed_outlives_client)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::PostponedDieWithClient]),
    case!(Storage, "together.extend_one_of_two", [LeaseEnd, Extend], extend_one_of_two)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendTakesBatch]),
    case!(Storage, "together.dead_lease_ends", [LeaseEnd, DeadLetters], dead_lease_ends)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::DeadLeaseEndless]),
    case!(Storage, "together.counts_of_a_group", [Inspection], counts_of_a_group)
        .needs(&[Need::Groups, Need::Counts])
        .kills(&[Fault::CountsForgetBehind]),
    case!(Storage, "together.counts_of_held_dead", [Inspection], counts_of_held_dead)
        .needs(&[Need::Counts])
        .kills(&[Fault::DeadCountForgetsLeased]),
    case!(Storage, "together.cancel_delayed", [Deletion], cancel_delayed)
        .needs(&[Need::Cancel, Need::PushDelay])
        .kills(&[Fault::CancelLeavesDelayed]),
    case!(Storage, "together.purge_leaves_dead", [PartitionsApart, Deletion], purge_leaves_dead)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeTakesDead]),
    case!(Storage, "together.pause_leaves_dead", [PartitionsApart, Pause], pause_leaves_dead)
        .needs(&[Need::Pause])
        .kills(&[Fault::PauseTakesDead]),
    case!(Storage, "together.pause_of_an_empty", [Pause], pause_of_an_empty)
        .needs(&[Need::Pause])
        .kills(&[Fault::PauseForgottenWhenEmpty]),
    case!(Storage, "together.exchange_settles_first", [ReadyAtOnce, Groups], exchange_settles_first)
        .needs(&[Need::Groups])
        .kills(&[Fault::ExchangePullsFirst]),
    case!(Storage, "together.exchange_elsewhere", [PartitionsApart], exchange_elsewhere)
        .kills(&[Fault::ExchangeElsewhere]),
    case!(Storage, "together.exchanges_in_order", [Order], exchanges_in_order)
        .needs(&[Need::OverlappingExchanges, Need::PushOrder])
        .kills(&[Fault::ExchangeOvertakes]),
    case!(Storage, "together.answers_of_partitions", [SettleOutcomes], answers_of_partitions)
        .kills(&[Fault::AnswersByPartition]),
];

/// Pushes one message, which must be stored.
pub(super) async fn push_one(c: &Context, p: &PartitionId, message: MessageData) -> CaseResult<MessageId> {
    let id = message.id();
    c.client().push(p, &[message]).await.map(|_| id)
}

/// Pushes one message, which must be a duplicate.
async fn refused(c: &Context, clause: Clause, p: &PartitionId, message: MessageData) -> CaseResult {
    let id = message.id();
    let answer = c.client().storage().push(p, &[message]).await;
    let right = matches!(answer.as_slice(), [Ok(PushOutcome::Duplicate(_))]);
    c.check(clause, &[id], right, "a duplicate", format!("{answer:?}"))
}

/// Takes and removes exactly these, one pull after the other.
pub(super) async fn removes(
    c: &Context,
    clause: Clause,
    what: &str,
    p: &PartitionId,
    expected: &[MessageId],
) -> CaseResult {
    let got = c.client().take(p, expected.len()).await?;
    c.in_order(clause, what, expected, &got)?;
    c.client().remove(&got).await
}

/// A dead letter of the partition.
async fn dead_letter(c: &Context, p: &PartitionId) -> CaseResult<MessageId> {
    let id = push_one(c, p, c.message()).await?;
    let held = c.client().take(p, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: p.dead_letters(), headers: None }).await?;
    Ok(id)
}

async fn postpone(
    client: &Client,
    held: &[Delivery],
    delay: Duration,
    headers: Option<Headers>,
) -> CaseResult {
    client.settle_all(held, &Action::Postpone { delay, headers }).await
}

async fn key_over_priorities(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k").with_priority(1)).await?;
    removes(c, Clause::Deduplication, "the first", &p, &[first]).await
}

/// Keys of the largest size that differ in their last byte only.
async fn long_keys(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let key = |last: &str| "k".repeat(anyqueue::MAX_KEY_BYTES - 1) + last;
    let first = push_one(c, &p, c.message().with_dedup_key(key("a"))).await?;
    let second = push_one(c, &p, c.message().with_dedup_key(key("b"))).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "both", &[first, second], &got)?;
    c.client().remove(&got).await
}

async fn key_after_lease_end(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_dedup_key("k")).await?;
    let lost = c
        .client()
        .pull_with(&p, anyqueue::adapter::PullRequest::new(1, c.timing().soon, c.timing().lease))
        .await?;
    c.equal(Clause::PullBounds, &ids(&lost), "deliveries", &1, &lost.len())?;
    tokio::time::sleep(c.timing().never()).await;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k")).await?;
    removes(c, Clause::LeaseEnd, "the first again", &p, &ids(&lost)).await
}

async fn purge_frees_keys(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_dedup_key("k")).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    let next = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    removes(c, Clause::Deduplication, "the next with the key", &p, &[next]).await
}

async fn group_over_clients(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let first = push_one(c, &p, c.message().with_group("g")).await?;
    let second = other.push(&p, &[c.message().with_group("g")]).await?;
    head_then_next(c, &p, first, &second).await
}

async fn group_over_priorities(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, c.message().with_group("g")).await?;
    let second = push_one(c, &p, c.message().with_group("g").with_priority(1)).await?;
    head_then_next(c, &p, first, &[second]).await
}

async fn head_then_next(c: &Context, p: &PartitionId, head: MessageId, next: &[MessageId]) -> CaseResult {
    let got = c.client().pull(p, 10).await?;
    c.in_order(Clause::Groups, "the group's head alone", &[head], &got)?;
    c.client().remove(&got).await?;
    removes(c, Clause::Groups, "then the next", p, next).await
}

async fn group_with_priority(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let low = push_one(c, &p, c.message()).await?;
    let high = push_one(c, &p, c.message().with_group("g").with_priority(1)).await?;
    removes(c, Clause::Order, "the higher priority first, though of a group", &p, &[high, low]).await
}

/// The highest priority goes before the second highest that came earlier.
async fn top_levels(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let top = c.capabilities().priority_levels.saturating_sub(1);
    let second = push_one(c, &p, c.message().with_priority(top.saturating_sub(1))).await?;
    let first = push_one(c, &p, c.message().with_priority(top)).await?;
    removes(c, Clause::Order, "the highest priority first", &p, &[first, second]).await
}

async fn cancel_frees_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let head = push_one(c, &p, c.message().with_group("g")).await?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    for outcome in c.client().inspect()?.request_cancel(&p, &[head]).await {
        c.ok(Clause::Deletion, "a request for cancellation", outcome)?;
    }
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}

async fn delete_frees_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let head = push_one(c, &p, c.message().with_group("g")).await?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    for outcome in c.client().inspect()?.delete(&p, &[head]).await {
        c.ok(Clause::Deletion, "a deletion", outcome)?;
    }
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}

async fn purge_frees_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_group("g")).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    let next = push_one(c, &p, c.message().with_group("g")).await?;
    removes(c, Clause::Groups, "the next of the group", &p, &[next]).await
}

/// The delay was for the push; a move does not repeat it.
async fn moved_once_delayed(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let delay = SCHEDULING;
    let id = push_one(c, &p, c.message().with_delay(delay)).await?;
    let held = c.client().pull_with(&p, c.client().request(1, c.timing().latest(delay))).await?;
    c.in_order(Clause::Delays, "the matured one", &[id], &held)?;
    c.client().settle_all(&held, &Action::Move { to: other.clone(), headers: None }).await?;
    let moved = c.client().pull_with(&other, c.client().request(1, delay / 2)).await?;
    c.in_order(Clause::SettleActions, "the moved one, without another delay", &[id], &moved)?;
    c.client().remove(&moved).await
}

async fn headers_taken_away(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_header("name", "value")).await?;
    let held = c.client().take(&p, 1).await?;
    postpone(c.client(), &held, Duration::ZERO, Some(Headers::new())).await?;
    let [again] = c.client().take_exact(&p).await?;
    c.equal(
        Clause::SettleActions,
        &[again.lease.id],
        "the headers",
        &Headers::new(),
        again.message.headers(),
    )?;
    c.client().remove(&[again]).await
}

/// New headers are there for every client and on every later delivery.
async fn new_headers_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    push_one(c, &p, c.message().with_header("name", "old")).await?;
    let held = c.client().take(&p, 1).await?;
    let new = Headers::from([("another".to_owned(), "new".to_owned())]);
    postpone(c.client(), &held, Duration::ZERO, Some(new.clone())).await?;
    for client in [&other, c.client(), &other] {
        let got = client.take(&p, 1).await?;
        for delivery in &got {
            c.equal(
                Clause::SettleActions,
                &[delivery.lease.id],
                "the headers",
                &new,
                delivery.message.headers(),
            )?;
        }
        client.settle_all(&got, &Action::Release).await?;
    }
    Ok(())
}

async fn new_headers_browsed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_header("name", "old")).await?;
    let held = c.client().take(&p, 1).await?;
    let new = Headers::from([("name".to_owned(), "new".to_owned())]);
    postpone(c.client(), &held, Duration::ZERO, Some(new.clone())).await?;
    let shown = c.ok(Clause::Inspection, "a page", c.client().inspect()?.browse(&p, None, 10).await)?;
    let headers: Vec<_> = shown.iter().map(|shown| shown.message.headers().clone()).collect();
    c.equal(Clause::Inspection, &ids(&held), "the headers shown", &vec![new], &headers)
}

async fn age_of_a_delayed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_delay(c.timing().delay)).await?;
    aged(c, &p, Instant::now()).await
}

async fn age_of_a_postponed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let pushed_by = Instant::now();
    tokio::time::sleep(c.timing().delay).await;
    let held = c.client().take(&p, 1).await?;
    postpone(c.client(), &held, c.timing().delay, None).await?;
    aged(c, &p, pushed_by).await
}

/// What comes next is at least as old as the time since its push was answered.
async fn aged(c: &Context, p: &PartitionId, pushed_by: Instant) -> CaseResult {
    tokio::time::sleep(c.timing().delay).await;
    let age = pushed_by.elapsed().saturating_sub(CLOCK_GRAIN);
    let [got] = c.client().take_exact(p).await?;
    let told = format!("an age of at least {age:?}");
    c.check(Clause::Expiry, &[got.lease.id], got.age >= age, told, format!("{:?}", got.age))?;
    c.client().remove(&[got]).await
}

/// A message pushed again while it is delayed comes when the first push said.
async fn repeat_keeps_the_delay(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().soon + c.timing().delay;
    let message = c.message().with_delay(delay);
    let pushed = Instant::now();
    let id = push_one(c, &p, message.clone()).await?;
    tokio::time::sleep(delay.saturating_sub(c.timing().delay / 2)).await;
    refused(c, Clause::Delays, &p, message).await?;
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

async fn extend_one_of_two(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let lease = c.timing().act_lease;
    let held =
        c.client().pull_with(&p, anyqueue::adapter::PullRequest::new(2, c.timing().soon, lease)).await?;
    let [first, second] = held.as_slice() else {
        return Err(c.failed(Clause::ReadyAtOnce, &sent, "both in one pull", format!("{}", held.len())));
    };
    c.client().extend(first, c.timing().long_lease).await?;
    let got = c.client().pull_with(&p, c.client().request(2, c.timing().latest(lease))).await?;
    c.in_order(Clause::Extend, "only the one that was not extended", &[second.lease.id], &got)?;
    c.client().remove(&got).await?;
    c.client().remove(std::slice::from_ref(first)).await
}

async fn dead_lease_ends(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = dead_letter(c, &p).await?;
    let dead = p.dead_letters();
    let request = anyqueue::adapter::PullRequest::new(1, c.timing().soon, c.timing().lease);
    let held = c.client().pull_with(&dead, request).await?;
    c.in_order(Clause::DeadLetters, "the dead letter", &[id], &held)?;
    let again =
        c.client().pull_with(&dead, c.client().request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::LeaseEnd, "the dead letter again, as its lease has ended", &[id], &again)?;
    c.client().remove(&again).await
}

async fn counts_of_a_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message.with_group("g"))).await?;
    let counts = c.ok(Clause::Inspection, "counts", c.client().inspect()?.counts(&p).await)?;
    c.equal(
        Clause::Inspection,
        &[],
        "ready, with those that wait behind their head:",
        &Some(3),
        &counts.ready,
    )
}

async fn counts_of_held_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    dead_letter(c, &p).await?;
    let held = c.client().take(&p.dead_letters(), 1).await?;
    let counts = c.ok(Clause::Inspection, "counts", c.client().inspect()?.counts(&p).await)?;
    c.equal(Clause::Inspection, &ids(&held), "dead, with the one that is held:", &Some(1), &counts.dead)?;
    c.client().remove(&held).await
}

async fn cancel_delayed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, c.message().with_delay(c.timing().delay)).await?;
    for outcome in c.client().inspect()?.request_cancel(&p, &[id]).await {
        c.ok(Clause::Deletion, "a request for cancellation", outcome)?;
    }
    let during = c.timing().delay + c.timing().slack + c.timing().delay / 2;
    c.client().nothing(&p, during, Clause::Deletion, "a cancelled message to be gone").await
}

async fn purge_leaves_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let dead = dead_letter(c, &p).await?;
    push_one(c, &p, c.message()).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    removes(c, Clause::PartitionsApart, "the dead letter", &p.dead_letters(), &[dead]).await
}

async fn pause_leaves_dead(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let dead = dead_letter(c, &p).await?;
    c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
    removes(c, Clause::PartitionsApart, "the dead letter", &p.dead_letters(), &[dead]).await
}

/// A pause outlives the last message.
async fn pause_of_an_empty(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let held = c.client().take(&p, 1).await?;
    c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
    c.client().remove(&held).await?;
    let next = push_one(c, &p, c.message()).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Pause, "nothing from a paused partition").await?;
    c.ok(Clause::Pause, "a resumption", c.client().pause()?.set_paused(&p, false).await)?;
    removes(c, Clause::Pause, "the next, once it is resumed", &p, &[next]).await
}

/// The settlement frees the next of the group, and the same call gets it.
async fn exchange_settles_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message.with_group("g"))).await?;
    let [held] = c.client().take_exact(&p).await?;
    let batch = [settlement(&held, Action::Remove)];
    let request = c.client().request(1, Duration::ZERO);
    let (_, pulled) = c.client().storage().exchange(&batch, &p, request).await;
    let got = c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?;
    c.in_order(Clause::Groups, "the next of the group", sent.get(1..).unwrap_or_default(), &got)?;
    c.client().remove(&got).await
}

async fn exchange_elsewhere(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let there = push_one(c, &other, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let batch = [settlement(&held, Action::Remove)];
    let request = c.client().request(1, c.timing().soon);
    let (_, pulled) = c.client().storage().exchange(&batch, &other, request).await;
    let got = c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?;
    c.in_order(Clause::PartitionsApart, "from the partition that was asked for", &[there], &got)?;
    c.client().remove(&got).await
}

/// Those that overlap claim in the order in which they were begun, whichever is answered first.
async fn exchanges_in_order(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let sent = client.push(&p, &c.messages(32, |_, message| message)).await?;
    let held: [Delivery; 16] = client.take_exact(&p).await?;
    let batches = held.each_ref().map(|held| [settlement(held, Action::Remove)]);
    let exchanges =
        batches.iter().map(|batch| client.storage().exchange(batch, &p, client.request(1, Duration::ZERO)));
    let mut got = Vec::new();
    for (_, pulled) in join_all(exchanges).await {
        got.extend(c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?);
    }
    // One that did not wait may have brought nothing.
    got.extend(client.take(&p, 16 - got.len()).await?);
    c.in_order(Clause::Order, "what overlapping exchanges bring", sent.get(16..).unwrap_or_default(), &got)?;
    client.remove(&got).await
}

async fn answers_of_partitions(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    push_one(c, &other, c.message()).await?;
    let ([first, last], [gone]) = (c.client().take_exact(&p).await?, c.client().take_exact(&other).await?);
    c.client().remove(std::slice::from_ref(&gone)).await?;
    let batch = [&first, &gone, &last].map(|delivery| settlement(delivery, Action::Remove));
    let outcomes = c.client().storage().settle(&batch).await;
    let outcomes =
        c.ok(Clause::SettleOutcomes, "a batch", outcomes.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let expected = vec![SettleOutcome::Settled, SettleOutcome::Lost, SettleOutcome::Settled];
    c.equal(
        Clause::SettleOutcomes,
        &[gone.lease.id],
        "the outcomes, in the order of the batch:",
        &expected,
        &outcomes,
    )
}
