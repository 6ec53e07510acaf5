//! Disabled messages and other calls: counted, browsed, deleted, purged, replaced.

use std::time::{Duration, Instant};

use anyqueue::{
    Amend, AmendOutcome, CancelOutcome, Counts, DeleteOutcome, MessageState, OnDuplicate, Page, PushOutcome,
};

use super::{nothing, one_by_one, push, push_alike};
use crate::case::Case;
use crate::cases::storage::helpers::{push_one, refused};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "amend.disabled_counted", [Amendments, Inspection], counted)
        .needs(&[Need::Amend, Need::Counts, Need::PushDelay])
        .kills(&[Fault::DisabledCountedReady]),
    case!(Storage, "amend.disabled_browsed", [Amendments, Inspection], browsed)
        .needs(&[Need::Amend, Need::Browse, Need::PushDelay])
        .kills(&[Fault::DisabledBrowsedReady]),
    case!(Storage, "amend.amended_browsed", [Amendments, Inspection], amended_browsed)
        .needs(&[Need::Amend, Need::Browse, Need::PushDelay, Need::Priority])
        .kills(&[Fault::LaterIgnored]),
    case!(Storage, "amend.disabled_deleted", [Amendments, Deletion], deleted)
        .needs(&[Need::Amend, Need::Delete, Need::DedupWhileLive])
        .kills(&[Fault::DisabledNotDeleted]),
    case!(Storage, "amend.disabled_cancelled", [Amendments, Deletion], cancelled)
        .needs(&[Need::Amend, Need::Cancel])
        .kills(&[Fault::DisabledNotCancelled]),
    case!(Storage, "amend.disabled_purged", [Amendments, Deletion], purged)
        .needs(&[Need::Amend, Need::Purge])
        .kills(&[Fault::PurgeLeavesDisabled]),
    case!(Storage, "amend.disabled_key", [Amendments, Deduplication], key)
        .needs(&[Need::Amend, Need::DedupWhileLive])
        .kills(&[Fault::DisabledFreesKey]),
    case!(Storage, "amend.disabled_replaced", [Amendments, Compaction], replaced)
        .needs(&[Need::Amend, Need::OnDuplicate])
        .kills(&[Fault::ReplaceEnables]),
    case!(Storage, "amend.disabled_brought_forward", [Amendments, Compaction], brought_forward)
        .needs(&[Need::Amend, Need::OnDuplicate, Need::PushDelay])
        .kills(&[Fault::ReplaceEnables, Fault::EarlierIgnored]),
];

/// A disabled message is counted separately, whatever state it was in, and again in that state when it is
/// enabled.
async fn counted(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let delayed = c.message().with_delay(t.delay * 40);
    let [first, second, third] = push(c, &p, [c.message(), c.message(), delayed]).await?;
    counts(c, &p, Counts::known(2, 1, 0, 0)).await?;
    c.amended(&p, &[second, third], Amend::new().disable()).await?;
    counts(c, &p, Counts::known(1, 0, 0, 0).with_disabled(2)).await?;
    c.amended(&p, &[third], Amend::new().enable()).await?;
    counts(c, &p, Counts::known(1, 1, 0, 0).with_disabled(1)).await?;
    c.amended(&p, &[second], Amend::new().enable()).await?;
    counts(c, &p, Counts::known(2, 1, 0, 0)).await?;
    c.amended(&p, &[third], Amend::new().now()).await?;
    one_by_one(c, "all of them", &p, &[first, second, third]).await
}

/// Waits for the declared staleness, then judges the counts, as a fresh client sees them.
async fn counts(c: &Context, p: &anyqueue::PartitionId, expected: Counts) -> CaseResult {
    let client = c.fresh().await?;
    let deadline = Instant::now() + c.capabilities().inspect.staleness;
    loop {
        let seen = c.ok(Clause::Inspection, "counts", client.inspect()?.counts(p).await)?;
        if seen == expected || Instant::now() >= deadline {
            return c.equal(Clause::Inspection, &[], "the counts", &expected, &seen);
        }
        tokio::time::sleep(c.timing().slack).await;
    }
}

/// Browsing shows it as disabled, with the due time for which it still waits.
async fn browsed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let delay = t.delay * 40;
    let [ready, delayed] = push(c, &p, [c.message(), c.message().with_delay(delay)]).await?;
    c.amended(&p, &[ready, delayed], Amend::new().disable()).await?;
    let page = c.client().inspect()?.browse(&p, Page::of(10)).await;
    let page = c.ok(Clause::Inspection, "browsing", page)?;
    for (id, has_moment) in [(ready, false), (delayed, true)] {
        let found = page.iter().find(|browsed| browsed.message.id() == id);
        let seen = found.map(|browsed| (browsed.state, browsed.due_in));
        let right = match seen {
            Some((MessageState::Disabled, None)) => !has_moment,
            Some((MessageState::Disabled, Some(due))) => has_moment && due <= delay && due > delay / 2,
            _ => false,
        };
        let expected =
            if has_moment { "Disabled, due later" } else { "Disabled, with no moment to wait for" };
        c.check(Clause::Inspection, &[id], right, expected, format!("{seen:?}"))?;
    }
    c.amended(&p, &[ready, delayed], Amend::new().now().enable()).await?;
    one_by_one(c, "both", &p, &[ready, delayed]).await
}

/// Browsing shows an amended message with its new priority and due time.
async fn amended_browsed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let [id] = push_alike(c, &p).await?;
    c.amended(&p, &[id], Amend::new().with_priority(1).due_in(t.delay * 40)).await?;
    let page = c.client().inspect()?.browse(&p, Page::of(10)).await;
    let page = c.ok(Clause::Inspection, "browsing", page)?;
    let seen: Vec<_> = page
        .iter()
        .map(|browsed| (browsed.message.id(), browsed.message.options().priority, browsed.state))
        .collect();
    c.equal(Clause::Amendments, &[id], "the page", &vec![(id, 1, MessageState::Delayed)], &seen)?;
    c.amended(&p, &[id], Amend::new().now()).await?;
    one_by_one(c, "it", &p, &[id]).await
}

/// A disabled message can be deleted, and its key is free then.
async fn deleted(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [id] = push(c, &p, [c.message().with_dedup_key("k")]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let seen = c.client().inspect()?.delete(&p, &[id]).await;
    let right = matches!(seen.as_slice(), [Ok(DeleteOutcome::Deleted)]);
    c.check(Clause::Deletion, &[id], right, "Deleted", format!("{seen:?}"))?;
    c.amends(&p, Amend::new().enable(), &[(id, AmendOutcome::NotFound)]).await?;
    nothing(c, &p, "nothing of what was deleted").await?;
    let free = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    one_by_one(c, "one with the key that is free again", &p, &[free]).await
}

/// Cancelling a disabled message removes it, as nobody holds it.
async fn cancelled(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [id] = push_alike(c, &p).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let seen = c.client().inspect()?.request_cancel(&p, &[id]).await;
    let right = matches!(seen.as_slice(), [Ok(CancelOutcome::Removed)]);
    c.check(Clause::Deletion, &[id], right, "Removed", format!("{seen:?}"))?;
    c.amends(&p, Amend::new().enable(), &[(id, AmendOutcome::NotFound)]).await?;
    nothing(c, &p, "nothing of what was cancelled").await
}

/// A purge takes disabled messages too.
async fn purged(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [first, second, third] = push_alike(c, &p).await?;
    c.amended(&p, &[first, second], Amend::new().disable()).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[first, second, third], "messages purged", &3, &purged)?;
    let gone = [first, second, third].map(|id| (id, AmendOutcome::NotFound));
    c.amends(&p, Amend::new().enable(), &gone).await?;
    nothing(c, &p, "nothing of what was purged").await
}

/// A disabled message keeps its deduplication key.
async fn key(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [id] = push(c, &p, [c.message().with_dedup_key("k")]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k")).await?;
    nothing(c, &p, "nothing beside what is disabled").await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    one_by_one(c, "the one of the key", &p, &[id]).await?;
    let free = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    one_by_one(c, "one with the key that is free again", &p, &[free]).await
}

/// A disabled message is replaced like a waiting one, and stays disabled.
async fn replaced(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let keyed = || c.message().with_dedup_key("k");
    let [id] = push(c, &p, [keyed()]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let newer = keyed().with_on_duplicate(OnDuplicate::Replace);
    replaces(c, &p, &newer, id).await?;
    nothing(c, &p, "nothing, as it is disabled still").await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    takes_as(c, &p, id, &newer).await
}

async fn replaces(
    c: &Context,
    p: &anyqueue::PartitionId,
    newer: &anyqueue::MessageData,
    id: anyqueue::MessageId,
) -> CaseResult {
    let answer = c.client().storage().push(p, std::slice::from_ref(newer)).await;
    let right = matches!(answer.as_slice(), [Ok(PushOutcome::Replaced(replaced))] if *replaced == id);
    let expected = format!("Replaced({})", c.label(id));
    c.check(Clause::Compaction, &[id, newer.id()], right, expected, format!("{answer:?}"))
}

async fn takes_as(
    c: &Context,
    p: &anyqueue::PartitionId,
    id: anyqueue::MessageId,
    newer: &anyqueue::MessageData,
) -> CaseResult {
    let [got] = c.client().take_exact(p).await?;
    let seen = (got.lease.id, got.message.payload());
    c.equal(Clause::Compaction, &[id], "the newer payload", &(id, newer.payload()), &seen)?;
    c.client().remove(&[got]).await
}

/// A push that would be due earlier changes the due time of a disabled message, and leaves it disabled.
async fn brought_forward(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let keyed = |delay: Duration| c.message().with_dedup_key("k").with_delay(delay);
    let [id] = push(c, &p, [keyed(t.delay * 40)]).await?;
    c.amended(&p, &[id], Amend::new().disable()).await?;
    let newer = keyed(t.delay).with_on_duplicate(OnDuplicate::Earlier);
    replaces(c, &p, &newer, id).await?;
    let waiting = t.delay + t.slack;
    c.client().nothing(&p, waiting, Clause::Amendments, "nothing, as it is disabled still").await?;
    c.amended(&p, &[id], Amend::new().enable()).await?;
    takes_as(c, &p, id, &newer).await
}
