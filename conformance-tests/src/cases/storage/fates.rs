//! Every field through every fate: a message with all possible fields, after each way of coming back.

use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest, RawDelivery};
use anyqueue::{MessageData, Page, PartitionId, PushOutcome};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "fates.released", [ContentIntact, SettleActions], released)
        .kills(&[Fault::ReleaseLosesTask]),
    case!(Storage, "fates.failed", [ContentIntact, SettleActions], failed)
        .kills(&[Fault::RetryLosesMaxRetries]),
    case!(Storage, "fates.postponed", [ContentIntact, SettleActions], postponed)
        .kills(&[Fault::PostponeLosesSession]),
    case!(Storage, "fates.lease_ended", [ContentIntact, LeaseEnd], lease_ended)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::RedeliveryLosesExpiry]),
    case!(Storage, "fates.moved", [ContentIntact, SettleActions], moved)
        .kills(&[Fault::MoveLosesMaxDuration]),
    case!(Storage, "fates.redriven", [ContentIntact, SettleActions, DeadLetters], redriven)
        .kills(&[Fault::RedriveForgetsPriority, Fault::RedriveForgetsGroup]),
    case!(Storage, "fates.paused", [ContentIntact, Pause], paused)
        .needs(&[Need::Pause])
        .kills(&[Fault::RedeliveryLosesExpiry]),
    case!(Storage, "fates.client_gone", [ContentIntact, Close], client_gone)
        .kills(&[Fault::RedeliveryLosesExpiry]),
];

const GROUP: &str = "group of the full one";
const KEY: &str = "key of the full one";

/// Numbers that would not fit into 8 bits, 16 bits, or 32 bits of milliseconds.
const MAX_RETRIES: u32 = 70_000;
const MAX_DURATION: Duration = Duration::from_hours(3);
const TIME_TO_LIVE: Duration = Duration::from_hours(60 * 24);

/// Returns a message with every field that the backend declares to keep.
fn full(c: &Context) -> MessageData {
    let declared = c.capabilities();
    let mut full = c
        .message()
        .with_task_id("the task")
        .with_session_id("the session")
        .with_header("name", "value")
        .with_max_retries(MAX_RETRIES)
        .with_max_duration(MAX_DURATION)
        .with_time_to_live(TIME_TO_LIVE);
    if declared.priority_levels > 1 {
        full = full.with_priority(1);
    }
    if declared.groups {
        full = full.with_group(GROUP);
    }
    if Need::DedupWhileLive.is_declared(declared) {
        full = full.with_dedup_key(KEY);
    }
    full
}

/// Pushes the full message and takes it.
async fn held(c: &Context, p: &PartitionId) -> CaseResult<(MessageData, RawDelivery)> {
    let full = full(c);
    c.client().push(p, std::slice::from_ref(&full)).await?;
    let [held] = c.client().take_exact(p).await?;
    whole(c, &full, &held.message, false)?;
    Ok((full, held))
}

/// Judges that nothing of the message is lost.
fn whole(c: &Context, pushed: &MessageData, seen: &MessageData, moved: bool) -> CaseResult {
    let mut expected = pushed.clone();
    if moved {
        // The move has freed the key, which the message may still show.
        let mut options = expected.options().clone();
        options.dedup_key.clone_from(&seen.options().dedup_key);
        expected = expected.with_options(options);
    }
    let about = [pushed.id()];
    c.equal(Clause::ContentIntact, &about, "the headers", expected.headers(), seen.headers())?;
    c.equal(Clause::ContentIntact, &about, "the payload", &expected.payload(), &seen.payload())?;
    let rest = |message: &MessageData| {
        let texts = (message.task_id().map(str::to_owned), message.session_id().map(str::to_owned));
        (texts, message.options().clone())
    };
    c.equal(Clause::ContentIntact, &about, "task, session and options", &rest(&expected), &rest(seen))
}

/// Judges that the message came back as it was pushed, and stands where its fields put it: ahead of lower
/// priorities, alone in its group, and in the way of another message with its key.
async fn back(c: &Context, p: &PartitionId, full: &MessageData, moved: bool) -> CaseResult {
    let (declared, client) = (c.capabilities(), c.client());
    let mut expected = vec![full.id()];
    if Need::StrictPriority.is_declared(declared) {
        expected.extend(client.push(p, &[c.message()]).await?);
    }
    let next = if declared.groups {
        let next = c.message().with_group(GROUP).with_priority(full.options().priority);
        client.push(p, &[next]).await?
    } else {
        Vec::new()
    };
    if Need::DedupWhileLive.is_declared(declared) && (declared.inspect.delete || !moved) {
        another_with_the_key(c, p, moved).await?;
    }
    if declared.inspect.browse {
        let shown = c.ok(Clause::Inspection, "a page", client.inspect()?.browse(p, Page::of(10)).await)?;
        let shown = shown.iter().find(|shown| shown.message.id() == full.id());
        let shown =
            shown.ok_or_else(|| c.failed(Clause::Inspection, &[full.id()], "it on the page", "it is not"))?;
        whole(c, full, &shown.message, moved)?;
    }
    let got = client.take(p, expected.len()).await?;
    c.in_order(
        Clause::SettleActions,
        "the full one, by its priority, and none of its group beside it",
        &expected,
        &got,
    )?;
    for delivery in got.iter().filter(|delivery| delivery.lease.id == full.id()) {
        whole(c, full, &delivery.message, moved)?;
    }
    if !next.is_empty() {
        client.nothing(p, Duration::ZERO, Clause::Groups, "no other of its group while it is held").await?;
    }
    client.remove(&got).await?;
    let got = client.take(p, next.len()).await?;
    c.in_order(Clause::Groups, "the next of its group", &next, &got)?;
    client.remove(&got).await
}

/// While the full message lives, its key is taken; a move frees it.
async fn another_with_the_key(c: &Context, p: &PartitionId, moved: bool) -> CaseResult {
    let other = c.message().with_dedup_key(KEY);
    let id = other.id();
    let answer = c.client().storage().push(p, &[other]).await;
    if !moved {
        let right = matches!(answer.as_slice(), [Ok(PushOutcome::Duplicate(_))]);
        return c.check(
            Clause::Deduplication,
            &[id],
            right,
            "a duplicate, as its key is taken",
            format!("{answer:?}"),
        );
    }
    let right = matches!(answer.as_slice(), [Ok(PushOutcome::Stored(_))]);
    c.check(
        Clause::Deduplication,
        &[id],
        right,
        "another stored, as a move frees the key",
        format!("{answer:?}"),
    )?;
    let gone = c.client().inspect()?.delete(p, &[id]).await;
    c.ok(Clause::Deletion, "deleting", gone.into_iter().collect::<anyqueue::Result<Vec<_>>>()).map(drop)
}

async fn settled(c: &Context, action: Action) -> CaseResult {
    let p = c.partition("work")?;
    let (full, held) = held(c, &p).await?;
    c.client().settle_all(&[held], &action).await?;
    back(c, &p, &full, false).await
}

async fn released(c: &Context) -> CaseResult {
    settled(c, Action::Release).await
}

async fn failed(c: &Context) -> CaseResult {
    settled(c, Action::Retry).await
}

async fn postponed(c: &Context) -> CaseResult {
    settled(c, Action::Postpone { delay: Duration::ZERO, headers: None }).await
}

async fn lease_ended(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let full = full(c);
    c.client().push(&p, std::slice::from_ref(&full)).await?;
    let request = PullRequest::new(1, c.timing().soon, c.timing().lease);
    let lost = c.client().pull_with(&p, request).await?;
    c.equal(Clause::PullBounds, &[full.id()], "deliveries", &1, &lost.len())?;
    let again = c.client().pull_with(&p, c.client().request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::LeaseEnd, "it again, when its lease is over", &[full.id()], &again)?;
    c.client().settle_all(&again, &Action::Release).await?;
    back(c, &p, &full, false).await
}

async fn moved(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let (full, held) = held(c, &p).await?;
    c.client().settle_all(&[held], &Action::Move { to: other.clone(), headers: None }).await?;
    back(c, &other, &full, true).await
}

async fn redriven(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (full, held) = held(c, &p).await?;
    c.client().settle_all(&[held], &Action::Move { to: p.dead_letters(), headers: None }).await?;
    let [dead] = c.client().take_exact(&p.dead_letters()).await?;
    whole(c, &full, &dead.message, true)?;
    c.client().settle_all(&[dead], &Action::Move { to: p.clone(), headers: None }).await?;
    back(c, &p, &full, true).await
}

async fn paused(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (full, held) = held(c, &p).await?;
    c.ok(Clause::Pause, "a pause", c.client().pause()?.set_paused(&p, true).await)?;
    c.client().settle_all(&[held], &Action::Release).await?;
    c.ok(Clause::Pause, "a resumption", c.client().pause()?.set_paused(&p, false).await)?;
    back(c, &p, &full, false).await
}

async fn client_gone(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let full = full(c);
    c.client().push(&p, std::slice::from_ref(&full)).await?;
    let other = c.fresh().await?;
    let request = PullRequest::new(1, c.timing().soon, c.timing().lease);
    let lost = other.pull_with(&p, request).await?;
    c.equal(Clause::PullBounds, &[full.id()], "deliveries", &1, &lost.len())?;
    other.close().await?;
    let again = c.client().pull_with(&p, c.client().request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::Close, "what the closed client held", &[full.id()], &again)?;
    c.client().settle_all(&again, &Action::Release).await?;
    back(c, &p, &full, false).await
}
