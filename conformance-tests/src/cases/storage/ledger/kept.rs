//! How long ends are kept: to their expiry, by the server's clock, and not beyond it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{EndedQuery, Storage, TaskEnd};
use anyqueue::{EndState, ManualClock, MessageId, PartitionId};

use super::{Ledger, NEEDS, end_all, end_one, ids_of, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.kept_to_its_time", [EndedTold], kept_to_its_time).needs(NEEDS).kills(&[
        Fault::EndLapsesEarly,
        Fault::LapsedCounted,
        Fault::LapsedFound,
        Fault::LapsedListed,
    ]),
    case!(Storage, "ledger.kept_for_a_moment", [EndedTold], kept_for_a_moment).needs(NEEDS).kills(&[
        Fault::EndLapsesInSeconds,
        Fault::LapsedCounted,
        Fault::LapsedFound,
        Fault::LapsedListed,
    ]),
    case!(Storage, "ledger.lapsed_among_others", [EndedTold], lapsed_among_others).needs(NEEDS).kills(&[
        Fault::LapsedCounted,
        Fault::LapsedFound,
        Fault::LapsedListed,
    ]),
    case!(Storage, "ledger.kept_until_deleted", [EndedTold], kept_until_deleted).needs(NEEDS).kills(&[
        Fault::EndForeverLapses,
        Fault::PurgesForeverEnds,
        Fault::PurgesLivingEnds,
    ]),
    case!(Storage, "ledger.on_a_turned_clock", [EndedTold], on_a_turned_clock)
        .needs(&[Need::Ledger, Need::ControlledClock])
        .kills(&[
            Fault::LapsedEndDeleted,
            Fault::LapsedCounted,
            Fault::LapsedFound,
            Fault::LapsedListed,
            Fault::PurgesLivingEnds,
        ]),
    case!(Storage, "ledger.kept_anew", [EndedTold], kept_anew).needs(NEEDS).kills(&[
        Fault::PurgesForeverEnds,
        Fault::FirstRecordedStays,
        Fault::LapsedFound,
        Fault::LapsedListed,
    ]),
];

/// Long enough for a check in between, even on a busy machine.
const KEPT: Duration = Duration::from_secs(3);

/// Nobody checks in between.
const BRIEF: Duration = Duration::from_millis(50);

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(20);

/// When the end of a task may have been stored, at the earliest and at the latest.
#[derive(Clone, Copy)]
struct Stored {
    begun: Instant,
    done: Instant,
}

/// Ends a task, and returns when that was.
async fn end_timed(c: &Context, p: &PartitionId, end: &TaskEnd) -> CaseResult<(MessageId, Stored)> {
    let held = super::hold(c, p, c.message()).await?;
    let begun = Instant::now();
    c.client().settle(&[super::ending(&held, end)]).await?;
    Ok((held.lease.id, Stored { begun, done: Instant::now() }))
}

/// Returns whether each kind of call returns the end, and when that call was under way.
async fn looks(ledger: Ledger<'_>, id: MessageId) -> CaseResult<[(&'static str, bool, Instant, Instant); 3]> {
    let all = EndedQuery::default();
    let begun = Instant::now();
    let found = ledger.find(&[id]).await?.iter().any(Option::is_some);
    let then = Instant::now();
    let listed = ledger.list(&all).await?.iter().any(|ended| ended.id == id);
    let next = Instant::now();
    let counted = ledger.count(&all, super::MANY).await? > 0;
    let end = Instant::now();
    Ok([("find", found, begun, then), ("list", listed, then, next), ("count", counted, next, end)])
}

/// Checks until no call returns the end: each must return it until the time is over, and none after that.
async fn watch(ledger: Ledger<'_>, id: MessageId, stored: Stored, keep: Duration) -> CaseResult<usize> {
    let mut seen = 0;
    loop {
        let mut told = false;
        for (call, tells, begun, done) in looks(ledger, id).await? {
            told |= tells;
            seen += usize::from(tells);
            let early = !tells && done + CLOCK_GRAIN < stored.begun + keep;
            let expected = format!("{call} to tell of it until {keep:?} are over");
            let after = format!("nothing after {:?}", done - stored.begun);
            ledger.c.check(Clause::EndedTold, &[id], !early, expected, after)?;
            let late = tells && begun > stored.done + keep + CLOCK_GRAIN;
            let expected = format!("{call} not to tell of it once {keep:?} are over");
            let after = format!("it did after {:?}", begun - stored.done);
            ledger.c.check(Clause::EndedTold, &[id], !late, expected, after)?;
        }
        if !told {
            return Ok(seen);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// An end that is kept for a time is returned until that is over, and from then on by no call, even if nobody
/// has purged it.
async fn kept_to_its_time(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let end = numbered(1).with_keep(Some(KEPT));
    let (id, stored) = end_timed(c, &p, &end).await?;
    let ledger = Ledger::first(c, &p)?;
    let seen = watch(ledger, id, stored, KEPT).await?;
    if seen == 0 {
        return Err(Stop::Inconclusive(format!("this machine was too slow to look within {KEPT:?}")));
    }
    ledger.lacks(Clause::EndedTold, &[id], "its time is over").await
}

/// A time of milliseconds is treated like others.
async fn kept_for_a_moment(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    for keep in [Duration::from_millis(1), BRIEF, BRIEF * 5] {
        let (id, stored) = end_timed(c, &p, &numbered(1).with_keep(Some(keep))).await?;
        watch(ledger, id, stored, keep).await?;
        ledger.is_empty(Clause::EndedTold, "its time is over").await?;
    }
    // The same is true of recorded ends, and a cancellation stores its end like a settlement.
    let (id, begun) = (MessageId::new(), Instant::now());
    ledger.record(&[(id, numbered(1).with_keep(Some(BRIEF)))]).await?;
    watch(ledger, id, Stored { begun, done: Instant::now() }, BRIEF).await.map(drop)
}

/// Pages and counts leave out expired ends among others: a page is full if there are enough.
async fn lapsed_among_others(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let keeps = [None, Some(BRIEF), super::LONG, Some(BRIEF), Some(BRIEF)].into_iter().cycle();
    let ends: Vec<_> = keeps.take(40).enumerate().map(|(n, keep)| numbered(n).with_keep(keep)).collect();
    let ended = end_all(c, &p, &ends).await?;
    tokio::time::sleep(BRIEF + CLOCK_GRAIN).await;
    let ledger = Ledger::first(c, &p)?;
    let (lapsed, kept): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(_, end)| end.keep == Some(BRIEF));
    ledger.lacks(Clause::EndedTold, &ids_of(&lapsed), "its time is over").await?;
    ledger.has(Clause::EndedTold, &kept).await?;
    for limit in [1, 5, kept.len()] {
        let page = ledger.page(&EndedQuery::default(), limit, None).await?;
        c.equal(Clause::EndedTold, &[], "how many are on the page:", &limit, &page.len())?;
    }
    for cap in [1, kept.len() as u64, super::MANY] {
        let counted = ledger.count(&EndedQuery::default(), cap).await?;
        c.equal(Clause::EndedTold, &[], "counted:", &cap.min(kept.len() as u64), &counted)?;
    }
    let paged = ledger.pages(&EndedQuery::default(), 3).await?;
    c.equal(Clause::EndedTold, &[], "how many are told by pages:", &kept.len(), &paged.len())
}

/// An end that is kept without a time limit, or for longer than any clock can show, is returned until it is
/// deleted.
async fn kept_until_deleted(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let year = Duration::from_hours(24 * 365);
    let mut ids = Vec::new();
    for keep in [
        None,
        Some(year * 100),
        Some(year * 100_000),
        Some(Duration::from_secs(u64::MAX)),
        Some(Duration::MAX),
    ] {
        let id = end_one(c, &p, &TaskEnd::new(EndState::Failed).with_keep(keep)).await?;
        let found = Ledger::first(c, &p)?.found(Clause::EndedTold, id).await?;
        let least = keep.map(|keep| found.ended_at + keep.min(year * 99));
        let right = match (least, found.expires_at) {
            (Some(least), Some(expires)) => expires >= least,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        let told = format!("to be kept for {keep:?}");
        c.check(Clause::EndedTold, &[id], right, told, format!("until {:?}", found.expires_at))?;
        ids.push(id);
    }
    let ledger = Ledger::first(c, &p)?;
    c.equal(Clause::EndsRemoved, &ids, "purged:", &0, &ledger.purge(100).await?)?;
    ledger.lists_once(Clause::EndedTold, &ids).await?;
    let deleted = ledger.delete(&ids).await?;
    c.equal(Clause::EndsRemoved, &ids, "deleted:", &vec![true; ids.len()], &deleted)?;
    ledger.is_empty(Clause::EndsRemoved, "all were deleted").await
}

/// A task that ends again is kept for as long as its new end says, not its former one.
async fn kept_anew(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    for (former, new) in [(Some(BRIEF), None), (Some(BRIEF), super::LONG)] {
        let id = end_one(c, &p, &numbered(1).with_keep(former)).await?;
        ledger.record(&[(id, numbered(2).with_keep(new))]).await?;
        tokio::time::sleep(BRIEF + CLOCK_GRAIN).await;
        ledger.has(Clause::EndedTold, &[(id, numbered(2))]).await?;
        ledger.purge(10).await?;
        ledger.has(Clause::EndedTold, &[(id, numbered(2))]).await?;
    }
    let id = end_one(c, &p, &numbered(1)).await?;
    ledger.record(&[(id, numbered(2).with_keep(Some(BRIEF)))]).await?;
    tokio::time::sleep(BRIEF + CLOCK_GRAIN).await;
    ledger.lacks(Clause::EndedTold, &[id], "the time of its new end is over").await
}

/// On a clock that stands still: returned a millisecond before its expiry, and not at it.
async fn on_a_turned_clock(c: &Context) -> CaseResult {
    let (clock, harness, p) = (ManualClock::new(), c.harness(), c.partition("work")?);
    let namespace = format!("turned_{}", uuid::Uuid::new_v4().simple());
    let opening = harness.open_on(&namespace, clock.clock());
    let opening = opening.ok_or_else(|| Stop::NotApplicable("a controlled clock".to_owned()))?;
    let storage = c.ok(Clause::Init, "a storage on a controlled clock", opening.await)?;
    c.ok(Clause::Init, "initialising it", storage.init().await)?;
    let judged = turned(c, &clock, &storage, &p).await;
    c.ok(Clause::Close, "close", storage.close().await)?;
    drop(storage);
    harness.remove(&namespace).await;
    judged
}

async fn turned(c: &Context, clock: &ManualClock, storage: &Arc<dyn Storage>, p: &PartitionId) -> CaseResult {
    let missing = || c.failed(Clause::EndStored, &[], "a ledger, as declared", "`ledger()` returns None");
    let ledger = Ledger { c, storage: storage.ledger().ok_or_else(missing)?, p };
    let (hours, moment) = (Duration::from_hours(36), Duration::from_millis(1));
    let id = MessageId::new();
    ledger.record(&[(id, numbered(1).with_keep(Some(hours)))]).await?;
    let found = ledger.found(Clause::EndedTold, id).await?;
    let expires = found.expires_at.ok_or_else(|| {
        c.failed(Clause::EndedTold, &[id], format!("kept for {hours:?}"), "kept until it is deleted")
    })?;
    let left = expires.duration_since(clock.clock().wall()).unwrap_or_default();
    clock.advance(left.saturating_sub(moment));
    ledger.has(Clause::EndedTold, &[(id, numbered(1))]).await?;
    c.equal(
        Clause::EndsRemoved,
        &[id],
        "purged a moment before its time is over:",
        &0,
        &ledger.purge(10).await?,
    )?;
    ledger.has(Clause::EndedTold, &[(id, numbered(1))]).await?;
    clock.advance(moment);
    ledger.lacks(Clause::EndedTold, &[id], "its time is over").await?;
    ledger.is_empty(Clause::EndedTold, "its time is over").await?;
    c.equal(
        Clause::EndsRemoved,
        &[id],
        "deleted, as it is told no more:",
        &vec![false],
        &ledger.delete(&[id]).await?,
    )?;
    end_nothing(ledger).await
}

/// After all that nothing is left, whether it was purged or not.
async fn end_nothing(ledger: Ledger<'_>) -> CaseResult {
    ledger.purge(10).await?;
    ledger.is_empty(Clause::EndsRemoved, "its place is free").await
}
