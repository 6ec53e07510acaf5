//! Ends that are deleted or purged, and ends that come with a cancellation.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, Cancelled, EndedQuery, TaskEnd};
use anyqueue::{CancelOutcome, EndState, MessageId, PartitionId};
use futures_util::future::join;

use super::super::helpers::{dead_letter, push_one};
use super::{LONG, Ledger, NEEDS, end_all, end_numbered, end_one, ending, hold, ids_of, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Client, Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.delete", [EndsRemoved], delete).needs(NEEDS).kills(&[
        Fault::DeletesFirstEnd,
        Fault::UnknownEndDeleted,
        Fault::DeletesAllEnds,
    ]),
    case!(Storage, "ledger.delete_lapsed", [EndsRemoved, EndedTold], delete_lapsed)
        .needs(NEEDS)
        .kills(&[Fault::LapsedEndDeleted, Fault::DeletesFirstEnd]),
    case!(Storage, "ledger.delete_leaves_the_living", [EndsRemoved], delete_leaves_the_living)
        .needs(NEEDS)
        .kills(&[Fault::UnknownEndDeleted]),
    case!(Storage, "ledger.purge", [EndsRemoved], purge).needs(NEEDS).kills(&[
        Fault::EndPurgeTellsNothing,
        Fault::EndPurgeFreesNothing,
        Fault::EndPurgeOfOnePartition,
        Fault::EndPurgeIgnoresLimit,
        Fault::PurgesLivingEnds,
        Fault::PurgesForeverEnds,
    ]),
    case!(Storage, "ledger.cancel", [EndsRemoved, Deletion], cancel).needs(CANCEL).kills(&[
        Fault::CancelEndsOfFirst,
        Fault::CancelEndsUnknown,
        Fault::CancelForgetsEnd,
    ]),
    case!(Storage, "ledger.cancel_delayed", [EndsRemoved, Deletion], cancel_delayed)
        .needs(&[Need::Ledger, Need::Cancel, Need::PushDelay])
        .kills(&[Fault::CancelForgetsDelayedEnd, Fault::CancelForgetsEnd]),
    case!(Storage, "ledger.cancel_held", [EndsRemoved, Deletion], cancel_held)
        .needs(CANCEL)
        .kills(&[Fault::CancelEndsHeld, Fault::CancelEndsUnknown]),
    case!(Storage, "ledger.cancel_without_end", [EndsRemoved], cancel_without_end)
        .needs(CANCEL)
        .kills(&[Fault::CancelUnasked, Fault::CancelForgetsEnd]),
    case!(Storage, "ledger.cancel_ended", [EndsRemoved], cancel_ended)
        .needs(CANCEL)
        .kills(&[Fault::CancelEndsUnknown, Fault::CancelForgetsEnd]),
    case!(Storage, "ledger.cancel_races_pull", [EndsRemoved, EndStored], cancel_races_pull)
        .needs(&[Need::Ledger, Need::Cancel, Need::Exclusive])
        .kills(&[Fault::CancelForgetsEnd]),
];

const CANCEL: &[Need] = &[Need::Ledger, Need::Cancel];

const BRIEF: Duration = Duration::from_millis(50);

/// Deleting returns true only for ends that were there, and false for a repeated, an unknown or a never
/// existing id. The others stay.
async fn delete(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let ended = end_numbered(c, &p, 6).await?;
    let (gone, kept) = ended.split_at(3);
    let mut asked = ids_of(gone);
    asked.insert(1, MessageId::new());
    let deleted = ledger.delete(&asked).await?;
    c.equal(Clause::EndsRemoved, &asked, "deleted:", &vec![true, false, true, true], &deleted)?;
    ledger.lacks(Clause::EndsRemoved, &ids_of(gone), "it was deleted").await?;
    ledger.has(Clause::EndsRemoved, kept).await?;
    let again = ledger.delete(&asked).await?;
    c.equal(Clause::EndsRemoved, &asked, "deleted again:", &vec![false; 4], &again)?;
    let counted = ledger.count(&EndedQuery::default(), super::MANY).await?;
    c.equal(Clause::EndsRemoved, &[], "counted after that:", &3, &counted)
}

/// An expired end is not there to be deleted.
async fn delete_lapsed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let lapsed = end_one(c, &p, &numbered(1).with_keep(Some(BRIEF))).await?;
    let kept = end_one(c, &p, &numbered(2).with_keep(LONG)).await?;
    tokio::time::sleep(BRIEF + CLOCK_GRAIN).await;
    let deleted = ledger.delete(&[lapsed, kept]).await?;
    c.equal(Clause::EndsRemoved, &[lapsed, kept], "deleted:", &vec![false, true], &deleted)?;
    ledger.is_empty(Clause::EndsRemoved, "one has lapsed, the other was deleted").await
}

/// A live message is not an end, and is not touched.
async fn delete_leaves_the_living(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let held = c.client().take(&p, 1).await?;
    let deleted = Ledger::first(c, &p)?.delete(&sent).await?;
    c.equal(Clause::EndsRemoved, &sent, "deleted:", &vec![false, false], &deleted)?;
    let waiting = c.client().take(&p, 1).await?;
    let all = [held, waiting].concat();
    c.same(Clause::EndsRemoved, "both messages", &sent, &all)?;
    let batch: Vec<_> = all.iter().enumerate().map(|(n, held)| ending(held, &numbered(n))).collect();
    c.client().settle(&batch).await?;
    Ledger::first(c, &p)?.lists_once(Clause::EndStored, &sent).await
}

/// Only expired ends are freed, in all partitions, a limited number at a time, and all of them in the end.
async fn purge(c: &Context) -> CaseResult {
    let places = [c.partition("work")?, c.partition("other")?, c.partition("third")?];
    let mut kept = Vec::new();
    for p in &places {
        for keep in [None, LONG] {
            let ends: Vec<_> = (0..4).map(|number| numbered(number).with_keep(keep)).collect();
            kept.push((p, end_all(c, p, &ends).await?));
        }
    }
    let first = places.first().map(|p| Ledger::first(c, p)).transpose()?;
    let Some(ledger) = first else { return Ok(()) };
    c.equal(Clause::EndsRemoved, &[], "purged while nothing has lapsed:", &0, &ledger.purge(100).await?)?;
    // The ends that expire are stored last, so that no later step can have freed them in passing.
    let brief = lapse_in(c, &places).await?;
    let mut purged = Vec::new();
    loop {
        let now = ledger.purge(4).await?;
        purged.push(now);
        let total: usize = purged.iter().sum();
        let told = format!("no more than the {brief} that have lapsed");
        c.check(Clause::EndsRemoved, &[], total <= brief, told, format!("{purged:?}"))?;
        if now < 4 {
            break;
        }
    }
    let total: usize = purged.iter().sum();
    c.equal(Clause::EndsRemoved, &[], "purged of what has lapsed, four at a time:", &brief, &total)?;
    for (p, kept) in &kept {
        Ledger::first(c, p)?.has(Clause::EndsRemoved, kept).await?;
    }
    Ok(())
}

/// Lets some ends expire in every partition, all of which are stored before the first of them has expired;
/// returns how many.
async fn lapse_in(c: &Context, places: &[PartitionId; 3]) -> CaseResult<usize> {
    let mut held = Vec::new();
    for (p, n) in places.iter().zip([3, 5, 2]) {
        c.client().push(p, &c.messages(n, |_, message| message)).await?;
        held.extend(c.client().take(p, n).await?);
    }
    let keep = Some(Duration::from_secs(1));
    let batch: Vec<_> = held
        .iter()
        .enumerate()
        .map(|(number, held)| ending(held, &numbered(number).with_keep(keep)))
        .collect();
    c.client().settle(&batch).await?;
    tokio::time::sleep(Duration::from_secs(1) + CLOCK_GRAIN).await;
    Ok(held.len())
}

/// Cancels, and returns the outcomes, none of them an error.
async fn cancels(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    tasks: &[(MessageId, Option<TaskEnd>)],
) -> CaseResult<Vec<CancelOutcome>> {
    let ledger = Ledger::of(c, client, p)?;
    let tasks: Vec<_> =
        tasks.iter().map(|(id, end)| Cancelled { id: *id, end: end.clone().map(Arc::new) }).collect();
    ledger.each("cancelling", tasks.len(), ledger.storage.cancel(p, &tasks).await)
}

/// An end for a cancellation.
fn unwanted(number: usize) -> TaskEnd {
    TaskEnd::new(EndState::Cancelled)
        .with_keep(LONG)
        .with_attempt(u32::try_from(number).unwrap_or_default())
        .with_reason("not wanted any more")
}

/// A waiting message is removed, and its end is there; an unknown one leaves none.
async fn cancel(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let (wanted, rest) = sent.split_at(1);
    let mut tasks: Vec<_> = rest.iter().enumerate().map(|(n, id)| (*id, Some(unwanted(n)))).collect();
    let unknown = MessageId::new();
    tasks.insert(1, (unknown, Some(unwanted(9))));
    let outcomes = cancels(c, c.client(), &p, &tasks).await?;
    let mut expected = vec![CancelOutcome::Removed; 4];
    expected.splice(1..2, [CancelOutcome::NotFound]);
    c.equal(Clause::EndsRemoved, &sent, "the outcomes", &expected, &outcomes)?;
    let ledger = Ledger::first(c, &p)?;
    let ends: Vec<_> = tasks
        .into_iter()
        .filter(|(id, _)| *id != unknown)
        .filter_map(|(id, end)| end.map(|end| (id, end)))
        .collect();
    ledger.has(Clause::EndsRemoved, &ends).await?;
    ledger.lacks(Clause::EndsRemoved, &[&[unknown], wanted].concat(), "it was not cancelled").await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Deletion, "what was not cancelled", wanted, &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "nothing of what was cancelled").await?;
    c.client().remove(&got).await
}

/// A message that waits for its due time is removed like one that waits for a consumer.
async fn cancel_delayed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let id = push_one(c, &p, c.message().with_delay(t.delay)).await?;
    let outcomes = cancels(c, c.client(), &p, &[(id, Some(unwanted(1)))]).await?;
    c.equal(Clause::EndsRemoved, &[id], "the outcome", &vec![CancelOutcome::Removed], &outcomes)?;
    Ledger::first(c, &p)?.has(Clause::EndsRemoved, &[(id, unwanted(1))]).await?;
    let what = "nothing of what was cancelled before its time";
    c.client().nothing(&p, t.delay + t.slack, Clause::Deletion, what).await?;
    Ledger::first(c, &p)?.has(Clause::EndsRemoved, &[(id, unwanted(1))]).await
}

/// A held message is only asked to stop, and its holder decides its end; a dead one is not found.
async fn cancel_held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let dead = dead_letter(c, &p).await?;
    let held = hold(c, &p, c.message()).await?;
    let asked = [(held.lease.id, Some(unwanted(1))), (dead, Some(unwanted(2)))];
    let outcomes = cancels(c, &c.fresh().await?, &p, &asked).await?;
    let expected = vec![CancelOutcome::Requested, CancelOutcome::NotFound];
    c.equal(Clause::EndsRemoved, &[held.lease.id, dead], "the outcomes", &expected, &outcomes)?;
    let ledger = Ledger::first(c, &p)?;
    ledger.is_empty(Clause::EndsRemoved, "nothing was removed").await?;
    c.client().settle(&[ending(&held, &numbered(3))]).await?;
    ledger.has(Clause::EndStored, &[(held.lease.id, numbered(3))]).await?;
    let left = c.client().take(&p.dead_letters(), 1).await?;
    c.client().settle_all(&left, &Action::Remove).await
}

/// A cancellation that brings no end stores none, beside one that does.
async fn cancel_without_end(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let [one, other] = [push_one(c, &p, c.message()).await?, push_one(c, &p, c.message()).await?];
    let outcomes = cancels(c, c.client(), &p, &[(one, None), (other, Some(unwanted(1)))]).await?;
    let expected = vec![CancelOutcome::Removed; 2];
    c.equal(Clause::EndsRemoved, &[one, other], "the outcomes", &expected, &outcomes)?;
    let ledger = Ledger::first(c, &p)?;
    ledger.lacks(Clause::EndsRemoved, &[one], "its cancellation brought none").await?;
    ledger.has(Clause::EndsRemoved, &[(other, unwanted(1))]).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "nothing of what was cancelled").await
}

/// A task that has ended is not there to be cancelled, and its end stays.
async fn cancel_ended(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let id = push_one(c, &p, c.message()).await?;
    for _ in 0..2 {
        cancels(c, c.client(), &p, &[(id, Some(unwanted(1)))]).await?;
    }
    let ended = end_one(c, &p, &numbered(0)).await?;
    let asked = [(ended, Some(unwanted(7))), (id, Some(unwanted(7)))];
    let outcomes = cancels(c, c.client(), &p, &asked).await?;
    let expected = vec![CancelOutcome::NotFound; 2];
    c.equal(Clause::EndsRemoved, &[ended, id], "the outcomes", &expected, &outcomes)?;
    Ledger::first(c, &p)?.has(Clause::EndsRemoved, &[(ended, numbered(0)), (id, unwanted(1))]).await
}

/// Messages that one client pulls while another cancels them are held or have ended: never both, never
/// neither.
async fn cancel_races_pull(c: &Context) -> CaseResult {
    let (p, other, n) = (c.partition("work")?, c.fresh().await?, 24);
    for round in 0..c.size(6, 60) {
        let sent = c.client().push(&p, &c.messages(n, |_, message| message)).await?;
        let cancelling = async {
            let mut outcomes = Vec::new();
            // In another order than they are pulled, so that the two meet.
            for part in sent.rchunks(1 + round % 4) {
                let tasks: Vec<_> = part.iter().map(|id| (*id, Some(unwanted(round)))).collect();
                let answers = cancels(c, &other, &p, &tasks).await?;
                outcomes.extend(part.iter().copied().zip(answers));
            }
            CaseResult::Ok(outcomes)
        };
        let pulling = async {
            let mut held = Vec::new();
            loop {
                let got = c.client().pull_now(&p, 2).await?;
                if got.is_empty() {
                    return CaseResult::Ok(held);
                }
                held.extend(got);
                tokio::task::yield_now().await;
            }
        };
        let (outcomes, held) = join(cancelling, pulling).await;
        let (outcomes, mut held) = (outcomes?, held?);
        held.extend(c.client().pull_now(&p, n.min(c.capabilities().limits.pull_batch)).await?);
        let pulled: HashSet<_> = ids(&held).into_iter().collect();
        let ledger = Ledger::first(c, &p)?;
        for (id, outcome) in outcomes {
            let expected =
                if pulled.contains(&id) { CancelOutcome::Requested } else { CancelOutcome::Removed };
            c.equal(Clause::EndsRemoved, &[id], "the outcome", &expected, &outcome)?;
        }
        let (mine, gone): (Vec<_>, Vec<_>) = sent.into_iter().partition(|id| pulled.contains(id));
        ledger.lacks(Clause::EndsRemoved, &mine, "it is held").await?;
        let gone: Vec<_> = gone.into_iter().map(|id| (id, unwanted(round))).collect();
        ledger.has(Clause::EndsRemoved, &gone).await?;
        let batch: Vec<_> = held.iter().map(|held| ending(held, &numbered(round))).collect();
        c.client().settle(&batch).await?;
        ledger.lists_once(Clause::EndStored, &mine).await?;
    }
    Ok(())
}
