//! The limits of what is allowed: the longest, the most, the least, and nothing. Each works like anything in
//! between.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Extension, PullRequest, RawDelivery};
use anyqueue::{
    ExtendOutcome, MAX_HEADER_NAME_BYTES, MAX_KEY_BYTES, MAX_PAGE, MessageData, Page, Result, SettleOutcome,
};
use futures_util::future::join;
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "bounds.fields", [ContentIntact, Limits], fields).kills(&[
        Fault::LongNamesCut,
        Fault::HeadersBeyond255Lost,
        Fault::RetriesOf31Bits,
        Fault::ZeroRetriesLost,
    ]),
    case!(Storage, "bounds.batches", [PullBounds, SettleOutcomes], batches)
        .kills(&[Fault::LastOfFullSettlement, Fault::LosesEleventh])
        .deadline(LONG),
    case!(Storage, "bounds.extensions", [Extend], extensions)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LastOfFullExtension, Fault::ExtendsFirstHundred])
        .deadline(LONG),
    case!(Storage, "bounds.leases", [LeaseEnd], leases)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeastLeaseEndless]),
    case!(Storage, "bounds.waits", [ReadyAtOnce, PullWait, PushWakes], waits).kills(&[Fault::WaitOverflows]),
    case!(Storage, "bounds.pages", [Inspection, Deletion], pages)
        .needs(&[Need::Browse, Need::Purge, Need::Delete, Need::List])
        .kills(&[Fault::LimitZeroIsNone]),
];

const LONG: Duration = Duration::from_mins(2);

/// A larger batch would measure the machine.
const MAX_BATCH: usize = 1000;

/// Returns a text of this many bytes, which differs from others of the same length only in its last one.
fn of_bytes(bytes: usize, last: char) -> String {
    let mut text = "k".repeat(bytes - 1);
    text.push(last);
    text
}

/// Returns a message for each limit of each field that the backend has.
fn at_the_ends(c: &Context) -> Vec<MessageData> {
    let declared = c.capabilities();
    let wide = "🦀".repeat(MAX_KEY_BYTES / 4);
    let mut all = Vec::new();
    for text in
        [1, MAX_KEY_BYTES - 1, MAX_KEY_BYTES].map(|bytes| of_bytes(bytes, 'a')).into_iter().chain([wide])
    {
        all.push(c.message().with_task_id(text.as_str()).with_session_id(text.as_str()));
        let mut keyed = c.message();
        if declared.groups {
            keyed = keyed.with_group(text.as_str());
        }
        if Need::DedupWhileLive.is_declared(declared) {
            keyed = keyed.with_dedup_key(text);
        }
        all.push(keyed);
    }
    let retries = [0, 1, i32::MAX.unsigned_abs(), 1 << 31, u32::MAX];
    all.extend(retries.map(|retries| c.message().with_max_retries(retries)));
    let milliseconds = [0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX].map(Duration::from_millis);
    all.extend(milliseconds.map(|time| c.message().with_max_duration(time).with_time_to_live(time)));
    all.push(c.message().with_priority(declared.priority_levels.saturating_sub(1)));
    all.push(c.message().with_header(of_bytes(MAX_HEADER_NAME_BYTES, 'a'), ""));
    all.push(c.message().with_header("h", of_bytes(1 << 16, 'a')));
    for count in [255, 256, 1000] {
        all.push(c.message().with_headers((0..count).map(|n| (format!("h{n}"), n.to_string())).collect()));
    }
    let limit = declared.limits.message_bytes;
    all.retain(|message| c.client().storage().encoded_len(message) <= limit);
    all
}

/// Every field at its limits is the same at each delivery.
async fn fields(c: &Context) -> CaseResult {
    let (p, client, messages) = (c.partition("work")?, c.client(), at_the_ends(c));
    let sent = client.push(&p, &messages).await?;
    for action in [Action::Retry, Action::Remove] {
        let held = client.take(&p, sent.len()).await?;
        c.same(Clause::ContentIntact, "one of each kind", &sent, &held)?;
        for delivery in &held {
            let pushed = messages.iter().find(|message| message.id() == delivery.lease.id);
            c.equal(
                Clause::ContentIntact,
                &[delivery.lease.id],
                "the message",
                &pushed,
                &Some(&delivery.message),
            )?;
        }
        client.settle_all(&held, &action).await?;
    }
    Ok(())
}

/// Takes as many messages as one call may have, all held.
async fn full_batch(c: &Context) -> CaseResult<Vec<RawDelivery>> {
    let (p, batch) = (c.partition("work")?, c.capabilities().limits.settle_batch.min(MAX_BATCH));
    c.client().push(&p, &c.messages(batch, |_, message| message)).await?;
    c.client().take(&p, batch).await
}

/// As many messages as one call may have are settled in one call, down to the last.
async fn batches(c: &Context) -> CaseResult {
    let (p, held) = (c.partition("work")?, full_batch(c).await?);
    let all: Vec<_> = held.iter().map(|held| settlement(held, Action::Release)).collect();
    let answers = c.client().storage().settle(&all).await;
    let answers =
        c.ok(Clause::SettleOutcomes, "each settlement", answers.into_iter().collect::<Result<Vec<_>>>())?;
    c.equal(
        Clause::SettleOutcomes,
        &[],
        "the outcomes",
        &vec![SettleOutcome::Settled; held.len()],
        &answers,
    )?;
    let back = c.client().take(&p, held.len()).await?;
    c.same(Clause::SettleOutcomes, "all that was released in one call", &ids(&held), &back)?;
    c.client().remove(&back).await
}

/// As many are extended in one call, down to the last: here their leases become shorter, so that all of them
/// come back.
async fn extensions(c: &Context) -> CaseResult {
    let (p, held) = (c.partition("work")?, full_batch(c).await?);
    let duration = c.timing().lease;
    let all: Vec<_> = held.iter().map(|held| Extension { lease: held.lease.clone(), duration }).collect();
    let answers = c.client().storage().extend(&all).await;
    let answers = c.ok(Clause::Extend, "each extension", answers.into_iter().collect::<Result<Vec<_>>>())?;
    c.equal(Clause::Extend, &[], "the outcomes", &vec![ExtendOutcome::Extended; held.len()], &answers)?;
    tokio::time::sleep(c.timing().never_after(duration)).await;
    let back = c.client().take(&p, held.len()).await?;
    c.same(Clause::Extend, "all whose leases were made shorter in one call", &ids(&held), &back)?;
    c.client().remove(&back).await
}

/// The shortest lease ends, and the longest does not.
async fn leases(c: &Context) -> CaseResult {
    let (p, client, declared) = (c.partition("work")?, c.client(), c.capabilities().lease);
    let sent = client.push(&p, &[c.message()]).await?;
    for _ in 0..2 {
        let got =
            client.pull_with(&p, PullRequest::new(1, c.timing().latest(declared.min), declared.min)).await?;
        c.in_order(Clause::LeaseEnd, "the message, each time that the shortest lease is over", &sent, &got)?;
    }
    let wait = c.timing().latest(declared.min);
    let got = client.pull_with(&p, PullRequest::new(1, wait, declared.max)).await?;
    c.in_order(Clause::LeaseEnd, "the message", &sent, &got)?;
    client.nothing(&p, c.timing().never(), Clause::LeaseEnd, "nothing under the longest lease").await?;
    for held in &got {
        let outcome = client.extend(held, declared.max).await?;
        c.equal(
            Clause::Extend,
            &sent,
            "an extension by the longest lease",
            &ExtendOutcome::Extended,
            &outcome,
        )?;
    }
    client.remove(&got).await
}

/// With the longest possible wait, ready messages are still returned at once, a push ends the wait, and so
/// does a stop.
async fn waits(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let request = || client.request(1, Duration::MAX);
    let sent = client.push(&p, &[c.message()]).await?;
    let ready = within(c, client.pull_with(&p, request())).await??;
    c.in_order(Clause::ReadyAtOnce, "what is ready", &sent, &ready)?;
    client.remove(&ready).await?;
    let woken = within(c, client.pull_with(&p, request()));
    let (woken, sent) = join(woken, async {
        c.pull_begins(client).await?;
        client.push(&p, &[c.message()]).await
    })
    .await;
    let (woken, sent) = (woken??, sent?);
    c.in_order(Clause::PushWakes, "what was pushed during the wait", &sent, &woken)?;
    let stop = CancellationToken::new();
    let all = settlement_of(&woken);
    let stopped = within(c, client.storage().exchange(&all, &p, request().with_stop(stop.clone())));
    let (stopped, ()) = join(stopped, async {
        tokio::time::sleep(c.timing().delay / 3).await;
        stop.cancel();
    })
    .await;
    let (settled, pulled) = stopped?;
    c.ok(Clause::SettleOutcomes, "settling in an exchange", settled.into_iter().collect::<Result<Vec<_>>>())?;
    let none = c.ok(Clause::PullWait, "a pull that is stopped", pulled)?;
    c.in_order(Clause::PullWait, "an answer that was stopped", &[], &none)
}

fn settlement_of(held: &[RawDelivery]) -> Vec<anyqueue::adapter::Settlement> {
    held.iter().map(|held| settlement(held, Action::Remove)).collect()
}

/// Runs a call that must end long before its own wait does.
async fn within<T>(c: &Context, call: impl Future<Output = T>) -> CaseResult<T> {
    let (start, soon) = (Instant::now(), c.timing().soon * 2);
    let ended = tokio::time::timeout(soon, call).await;
    ended.map_err(|_| {
        c.failed(
            Clause::PullWait,
            &[],
            "an answer soon, however long it may wait",
            format!("none after {:?}", start.elapsed()),
        )
    })
}

/// Pages and steps of none, of one, and of the most that core asks for.
async fn pages(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let inspect = client.inspect()?;
    let mut sent = client.push(&p, &c.messages(3, |_, message| message)).await?;
    sent.sort_unstable();
    for (limit, expected) in [(0, 0), (1, 1), (MAX_PAGE, sent.len())] {
        let page = c.ok(Clause::Inspection, "browsing", inspect.browse(&p, Page::of(limit)).await)?;
        let seen: Vec<_> = page.iter().map(|browsed| browsed.message.id()).collect();
        let told = format!("with a limit of {limit}, the messages");
        c.equal(Clause::Inspection, &sent, &told, &sent.get(..expected).unwrap_or_default().to_vec(), &seen)?;
        let listed = c.ok(Clause::Inspection, "the list", inspect.partitions(Page::of(limit)).await)?;
        c.equal(
            Clause::Inspection,
            &sent,
            &format!("with a limit of {limit}, the partitions"),
            &limit.min(1),
            &listed.len(),
        )?;
    }
    let none = c.ok(
        Clause::Deletion,
        "deleting none",
        inspect.delete(&p, &[]).await.into_iter().collect::<Result<Vec<_>>>(),
    )?;
    c.equal(Clause::Deletion, &sent, "the outcomes of deleting none", &0, &none.len())?;
    for (limit, expected) in [(0, 0), (1, 1), (MAX_PAGE, 2), (MAX_PAGE, 0)] {
        let purged = c.ok(Clause::Deletion, "a purge", inspect.purge(&p, limit).await)?;
        c.equal(Clause::Deletion, &sent, &format!("with a limit of {limit}, purged"), &expected, &purged)?;
    }
    Ok(())
}
