//! Pushes whose deduplication key is taken, and which do more than leave the existing message as it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{MessageData, MessageId, OnDuplicate, PartitionId, PushOutcome};
use futures_util::future::{join, join_all};

use super::helpers::{push_one, refused, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "compaction.replaces", [Compaction, ContentIntact], replaces).needs(NEEDS).kills(&[
        Fault::ReplaceIgnored,
        Fault::ReplaceKeepsHeaders,
        Fault::ReplaceTakesOptions,
    ]),
    case!(Storage, "compaction.keeps_the_place", [Compaction, Order], keeps_the_place)
        .needs(&[Need::OnDuplicate, Need::PushOrder])
        .kills(&[Fault::ReplaceToTheEnd]),
    case!(Storage, "compaction.of_what_is_delayed", [Compaction, Delays], of_what_is_delayed)
        .needs(&[Need::OnDuplicate, Need::PushDelay])
        .kills(&[Fault::ReplaceIgnored, Fault::ReplaceToTheEnd]),
    case!(Storage, "compaction.leaves_what_is_held", [Compaction, Exclusive], leaves_what_is_held)
        .needs(NEEDS)
        .kills(&[Fault::ReplaceBesideHeld]),
    case!(Storage, "compaction.earlier", [Compaction, Delays], earlier)
        .needs(&[Need::OnDuplicate, Need::PushDelay])
        .kills(&[Fault::EarlierIgnored, Fault::EarlierKeepsDue]),
    case!(Storage, "compaction.later_is_kept", [Compaction, Delays], later_is_kept)
        .needs(&[Need::OnDuplicate, Need::PushDelay])
        .kills(&[Fault::EarlierAlways]),
    case!(Storage, "compaction.behind", [Compaction, Deduplication], behind)
        .needs(NEEDS)
        .kills(&[Fault::BehindIgnored, Fault::BehindWithoutKey]),
    case!(Storage, "compaction.behind_what_waits", [Compaction, Deduplication], behind_what_waits)
        .needs(NEEDS)
        .kills(&[Fault::BehindWithoutKey]),
    case!(Storage, "compaction.in_one_batch", [Compaction, PushResults], in_one_batch)
        .needs(NEEDS)
        .kills(&[Fault::ReplaceIgnored, Fault::BehindWithoutKey]),
    case!(Storage, "compaction.repeated", [Compaction, PushErrors], repeated)
        .needs(&[Need::OnDuplicate, Need::UniqueIds])
        .kills(&[Fault::ReplaceOfItself]),
    case!(Storage, "compaction.last_of_many", [Compaction], last_of_many)
        .needs(NEEDS)
        .kills(&[Fault::ReplaceIgnored, Fault::ReplaceLate]),
    case!(Storage, "compaction.no_change_missed", [Compaction], no_change_missed)
        .needs(NEEDS)
        .kills(&[Fault::BehindIgnored]),
];

const NEEDS: &[Need] = &[Need::OnDuplicate];

/// How many clients push one key at once, and how often each does.
const PUSHERS: usize = 6;
const PUSHES: usize = 8;

fn keyed(message: MessageData, on_duplicate: OnDuplicate) -> MessageData {
    message.with_dedup_key("k").with_on_duplicate(on_duplicate)
}

/// Pushes one message, and checks the answer.
async fn answers(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    message: MessageData,
    expected: PushOutcome,
) -> CaseResult {
    let id = message.id();
    let answer = client.storage().push(p, &[message]).await;
    let right = match (answer.as_slice(), expected) {
        ([Ok(PushOutcome::Duplicate(_))], PushOutcome::Duplicate(_)) => true,
        ([Ok(seen)], expected) => *seen == expected,
        _ => false,
    };
    c.check(Clause::Compaction, &[id], right, format!("{expected:?}"), format!("{answer:?}"))
}

/// A waiting message gets the content of the new one, and keeps its id and its options.
async fn replaces(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = keyed(c.message(), OnDuplicate::Keep)
        .with_header("version", "1")
        .with_header("old", "yes")
        .with_task_id("first")
        .with_max_retries(3);
    let id = push_one(c, &p, first).await?;
    let newer = keyed(c.message(), OnDuplicate::Replace)
        .with_header("version", "2")
        .with_session_id("newer")
        .with_max_retries(9);
    answers(c, c.client(), &p, newer.clone(), PushOutcome::Replaced(id)).await?;
    let [got] = c.client().take_exact(&p).await?;
    let about = [id];
    c.equal(Clause::Compaction, &about, "the id of the first", &id, &got.lease.id)?;
    c.equal(Clause::Compaction, &about, "the newer payload", &newer.payload(), &got.message.payload())?;
    c.equal(Clause::Compaction, &about, "the newer headers", newer.headers(), got.message.headers())?;
    c.equal(Clause::Compaction, &about, "the newer task id", &newer.task_id(), &got.message.task_id())?;
    c.equal(Clause::Compaction, &about, "the newer session", &newer.session_id(), &got.message.session_id())?;
    c.equal(Clause::Compaction, &about, "its own retries", &Some(3), &got.message.options().max_retries)?;
    c.client().remove(&[got]).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Compaction, "one message").await
}

/// A replaced message keeps its place.
async fn keeps_the_place(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, keyed(c.message(), OnDuplicate::Keep)).await?;
    let second = push_one(c, &p, c.message()).await?;
    answers(c, c.client(), &p, keyed(c.message(), OnDuplicate::Replace), PushOutcome::Replaced(first))
        .await?;
    removes(c, Clause::Compaction, "the replaced one where it stood", &p, &[first, second]).await
}

/// A delayed message is replaced too, and keeps its due time.
async fn of_what_is_delayed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let pushed = Instant::now();
    let id = push_one(c, &p, keyed(c.message(), OnDuplicate::Keep).with_delay(t.delay)).await?;
    let newer = keyed(c.message(), OnDuplicate::Replace);
    answers(c, c.client(), &p, newer.clone(), PushOutcome::Replaced(id)).await?;
    let request = PullRequest::new(1, t.latest(t.delay), t.long_lease);
    let got = c.client().pull_with(&p, request).await?;
    c.took(Clause::Delays, &[id], "the delayed message", pushed.elapsed(), (t.delay, t.latest(t.delay)))?;
    let payloads: Vec<_> = got.iter().map(|delivery| delivery.message.payload()).collect();
    c.equal(Clause::Compaction, &[id], "the newer payload", &vec![newer.payload()], &payloads)?;
    c.client().remove(&got).await
}

/// A message that a consumer holds stays as it is, also when it comes back.
async fn leaves_what_is_held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = keyed(c.message(), OnDuplicate::Keep);
    let id = push_one(c, &p, first.clone()).await?;
    let held = c.client().take(&p, 1).await?;
    for what in [OnDuplicate::Replace, OnDuplicate::Earlier] {
        answers(c, c.client(), &p, keyed(c.message(), what), PushOutcome::Duplicate(Some(id))).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::Compaction, "nothing beside what is held").await?;
    c.client().settle_all(&held, &Action::Release).await?;
    let [back] = c.client().take_exact(&p).await?;
    c.equal(Clause::Compaction, &[id], "its own payload", &first.payload(), &back.message.payload())?;
    c.client().remove(&[back]).await
}

/// Of two messages that are due at different times, the earlier one remains.
async fn earlier(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let id = push_one(c, &p, keyed(c.message(), OnDuplicate::Keep).with_delay(t.delay * 20)).await?;
    let (pushed, newer) = (Instant::now(), keyed(c.message(), OnDuplicate::Earlier).with_delay(t.delay));
    answers(c, c.client(), &p, newer.clone(), PushOutcome::Replaced(id)).await?;
    let request = PullRequest::new(1, t.latest(t.delay), t.long_lease);
    let got = c.client().pull_with(&p, request).await?;
    c.took(Clause::Compaction, &[id], "the earlier one", pushed.elapsed(), (t.delay, t.latest(t.delay)))?;
    let payloads: Vec<_> = got.iter().map(|delivery| delivery.message.payload()).collect();
    c.equal(Clause::Compaction, &[id], "its payload", &vec![newer.payload()], &payloads)?;
    c.client().remove(&got).await
}

/// A message that would be due later, or no earlier than one that is ready, changes nothing.
async fn later_is_kept(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    for delay in [Duration::ZERO, t.delay] {
        let first = keyed(c.message(), OnDuplicate::Keep);
        let first = if delay.is_zero() { first } else { first.with_delay(delay) };
        let id = push_one(c, &p, first.clone()).await?;
        let later = keyed(c.message(), OnDuplicate::Earlier).with_delay(t.delay * 20);
        answers(c, c.client(), &p, later, PushOutcome::Duplicate(Some(id))).await?;
        if delay.is_zero() {
            let no_earlier = keyed(c.message(), OnDuplicate::Earlier);
            answers(c, c.client(), &p, no_earlier, PushOutcome::Duplicate(Some(id))).await?;
        }
        let got = c.client().pull_with(&p, PullRequest::new(1, t.latest(delay), t.long_lease)).await?;
        let payloads: Vec<_> = got.iter().map(|delivery| delivery.message.payload()).collect();
        c.equal(
            Clause::Compaction,
            &[id],
            "the first payload, when it is due",
            &vec![first.payload()],
            &payloads,
        )?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// Behind a held message another one is stored, but no third; the key belongs to the one that waits.
async fn behind(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, keyed(c.message(), OnDuplicate::Behind)).await?;
    let held = c.client().take(&p, 1).await?;
    let second = keyed(c.message(), OnDuplicate::Behind);
    let second_id = second.id();
    answers(c, c.client(), &p, second, PushOutcome::Stored(second_id)).await?;
    let third = keyed(c.message(), OnDuplicate::Behind);
    answers(c, c.client(), &p, third, PushOutcome::Duplicate(Some(second_id))).await?;
    c.client().remove(&held).await?;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k")).await?;
    c.in_order(Clause::Compaction, "the first", &[first], &held)?;
    removes(c, Clause::Compaction, "the one behind it", &p, &[second_id]).await?;
    let free = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    removes(c, Clause::Deduplication, "the key free again", &p, &[free]).await
}

/// Behind a waiting message nothing is stored, and that message is not changed.
async fn behind_what_waits(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = keyed(c.message(), OnDuplicate::Keep);
    let id = push_one(c, &p, first.clone()).await?;
    answers(c, c.client(), &p, keyed(c.message(), OnDuplicate::Behind), PushOutcome::Duplicate(Some(id)))
        .await?;
    let [got] = c.client().take_exact(&p).await?;
    c.equal(Clause::Compaction, &[id], "the first payload", &first.payload(), &got.message.payload())?;
    c.client().remove(&[got]).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Compaction, "one message").await
}

/// Several pushes of one key in one call take effect in their order.
async fn in_one_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages: Vec<_> = [
        OnDuplicate::Keep,
        OnDuplicate::Replace,
        OnDuplicate::Keep,
        OnDuplicate::Replace,
        OnDuplicate::Behind,
    ]
    .into_iter()
    .map(|what| keyed(c.message(), what))
    .collect();
    let seen = c.client().storage().push(&p, &messages).await;
    let id = messages.first().map(MessageData::id);
    let right = match (seen.as_slice(), id) {
        (
            [
                Ok(PushOutcome::Stored(stored)),
                Ok(PushOutcome::Replaced(first)),
                Ok(PushOutcome::Duplicate(_)),
                Ok(PushOutcome::Replaced(second)),
                Ok(PushOutcome::Duplicate(_)),
            ],
            Some(id),
        ) => [stored, first, second].into_iter().all(|seen| *seen == id),
        _ => false,
    };
    let about = Vec::from_iter(id);
    let expected = "Stored, Replaced, Duplicate, Replaced, Duplicate";
    c.check(Clause::Compaction, &about, right, expected, format!("{seen:?}"))?;
    let [got] = c.client().take_exact(&p).await?;
    let last = messages.get(3).map(MessageData::payload);
    c.equal(
        Clause::Compaction,
        &about,
        "the payload of the last that replaced",
        &last,
        &Some(got.message.payload()),
    )?;
    c.client().remove(&[got]).await
}

/// A push that is repeated because its answer was lost changes nothing: what was pushed is there under its
/// own id.
async fn repeated(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for what in [OnDuplicate::Replace, OnDuplicate::Earlier, OnDuplicate::Behind] {
        let message = keyed(c.message(), what);
        let id = push_one(c, &p, message.clone()).await?;
        answers(c, c.client(), &p, message, PushOutcome::Duplicate(Some(id))).await?;
        removes(c, Clause::PushErrors, "the message, once", &p, &[id]).await?;
    }
    Ok(())
}

/// One push of the key, and when it was under way.
struct Pushed {
    payload: Vec<u8>,
    begun: Instant,
    ended: Instant,
}

/// After many concurrent pushes one message is left, with the content of one that no other followed.
async fn last_of_many(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients =
        join_all((0..PUSHERS).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    for _ in 0..c.size(3, 20) {
        let pushing = clients.iter().map(|client| async {
            let mut pushed = Vec::new();
            for _ in 0..PUSHES {
                let (message, begun) = (keyed(c.message(), OnDuplicate::Replace), Instant::now());
                let answer = client.storage().push(&p, std::slice::from_ref(&message)).await;
                let right =
                    matches!(answer.as_slice(), [Ok(PushOutcome::Stored(_) | PushOutcome::Replaced(_))]);
                c.check(
                    Clause::Compaction,
                    &[message.id()],
                    right,
                    "Stored or Replaced",
                    format!("{answer:?}"),
                )?;
                pushed.push(Pushed { payload: message.payload().to_vec(), begun, ended: Instant::now() });
            }
            Ok(pushed)
        });
        let pushed =
            join_all(pushing).await.into_iter().collect::<CaseResult<Vec<_>>>()?.into_iter().flatten();
        let pushed: Vec<_> = pushed.collect();
        let [got] = c.client().take_exact(&p).await?;
        let last = pushed.iter().find(|push| push.payload == got.message.payload());
        let followed = last.is_none_or(|last| pushed.iter().any(|other| other.begun > last.ended));
        let about = [got.lease.id];
        c.check(
            Clause::Compaction,
            &about,
            !followed,
            "the content of a last push",
            "one that others followed",
        )?;
        c.client().remove(&[got]).await?;
        c.client().nothing(&p, Duration::ZERO, Clause::Compaction, "one message").await?;
    }
    Ok(())
}

/// A push that asks to be run behind a held message is seen by a run that began after the push.
async fn no_change_missed(c: &Context) -> CaseResult {
    let (p, worker) = (c.partition("work")?, c.fresh().await?);
    let (ended, pushes) = (AtomicBool::new(false), c.size(40, 400));
    let pushing = async {
        let mut last = Instant::now();
        for _ in 0..pushes {
            last = Instant::now();
            let answer = c.client().storage().push(&p, &[keyed(c.message(), OnDuplicate::Behind)]).await;
            let right = matches!(answer.as_slice(), [Ok(PushOutcome::Stored(_) | PushOutcome::Duplicate(_))]);
            c.check(Clause::Compaction, &[], right, "Stored or Duplicate", format!("{answer:?}"))?;
            tokio::task::yield_now().await;
        }
        ended.store(true, Ordering::SeqCst);
        Ok(last)
    };
    let (last_push, last_run) = join(pushing, runs(c, &worker, &p, &ended)).await;
    let (last_push, last_run) = (last_push?, last_run?);
    let seen = last_run.is_some_and(|(_, claimed)| claimed >= last_push);
    let about = last_run.map(|(id, _)| id);
    c.check(
        Clause::Compaction,
        &Vec::from_iter(about),
        seen,
        "a run that was claimed after the last push",
        "none",
    )
}

/// Runs until the pusher has ended and nothing waits. Returns the last run, and when its pull had ended.
async fn runs(
    c: &Context,
    worker: &Client,
    p: &PartitionId,
    ended: &AtomicBool,
) -> CaseResult<Option<(MessageId, Instant)>> {
    let mut last = None;
    loop {
        let over = ended.load(Ordering::SeqCst);
        let got = worker
            .pull_with(p, worker.request(1, if over { c.timing().slack } else { Duration::ZERO }))
            .await?;
        if got.is_empty() && over {
            return Ok(last);
        }
        for delivery in &got {
            last = Some((delivery.lease.id, Instant::now()));
            tokio::task::yield_now().await;
        }
        worker.remove(&got).await?;
        tokio::task::yield_now().await;
    }
}
