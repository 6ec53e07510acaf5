//! Ends that are recorded: the one with the highest rank remains.

use std::time::Duration;

use anyqueue::adapter::{EndedTask, TaskEnd};
use anyqueue::{EndState, MessageId};
use futures_util::future::join_all;

use super::{LONG, Ledger, NEEDS, bare, end_one, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.recorded", [EndsMerge, EndStored], recorded)
        .needs(NEEDS)
        .kills(&[Fault::RecordsFirstOnly, Fault::RecordedWithoutResult]),
    case!(Storage, "ledger.recorded_in_any_order", [EndsMerge], in_any_order)
        .needs(NEEDS)
        .kills(&[Fault::FirstRecordedStays, Fault::LastRecordedStays]),
    case!(Storage, "ledger.recorded_by_rank", [EndsMerge], by_rank).needs(NEEDS).kills(&[
        Fault::RecordedByState,
        Fault::LastRecordedStays,
        Fault::FirstRecordedStays,
    ]),
    case!(Storage, "ledger.recorded_equal", [EndsMerge], equal)
        .needs(NEEDS)
        .kills(&[Fault::EqualRankRecorded, Fault::LastRecordedStays]),
    case!(Storage, "ledger.recorded_over_settled", [EndsMerge], over_settled)
        .needs(NEEDS)
        .kills(&[Fault::FirstRecordedStays, Fault::LastRecordedStays]),
    case!(Storage, "ledger.recorded_after_a_lapse", [EndsMerge, EndedTold], after_a_lapse)
        .needs(NEEDS)
        .kills(&[Fault::LapsedOutranks]),
    case!(Storage, "ledger.recorded_at_once", [EndsMerge], at_once).needs(NEEDS).kills(&[
        Fault::RecordRace,
        Fault::LastRecordedStays,
        Fault::FirstRecordedStays,
    ]),
];

/// How many clients record at once.
const CLIENTS: usize = 4;

/// A recorded end is returned like a settled one, even for ids that nobody pushed.
async fn recorded(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let ends: Vec<_> = (0..50).map(|number| (MessageId::new(), numbered(number).with_keep(LONG))).collect();
    ledger.record(&ends).await?;
    ledger.has(Clause::EndsMerge, &ends).await?;
    c.client().nothing(&p, c.timing().slack, Clause::EndsMerge, "no message of what was recorded").await
}

/// Three ends of different ranks, in each order and duplicated: the highest remains, once.
async fn in_any_order(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
    let mut expected = Vec::new();
    for order in orders {
        let id = MessageId::new();
        for number in order.into_iter().chain(order) {
            ledger.record(&[(id, numbered(number))]).await?;
        }
        expected.push((id, numbered(3)));
    }
    ledger.has(Clause::EndsMerge, &expected).await
}

/// A later generation has a higher rank, then a later attempt, then more deliveries, then the state; this
/// includes the largest numbers.
async fn by_rank(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let end = |generation, attempt, deliveries, state| {
        TaskEnd::new(state)
            .with_generation(generation)
            .with_attempt(attempt)
            .with_delivery_count(deliveries)
            .with_reason(format!("{generation}.{attempt}.{deliveries}"))
    };
    let ascending = [
        end(0, 0, 0, EndState::Cancelled),
        end(0, 0, 0, EndState::Failed),
        end(0, 0, 0, EndState::TimedOut),
        end(0, 0, 0, EndState::Succeeded),
        end(0, 0, 300, EndState::Cancelled),
        end(0, 1, 0, EndState::Cancelled),
        end(0, 70_000, u32::MAX, EndState::Succeeded),
        end(1, 0, 0, EndState::Cancelled),
        end(32_000, 0, 1, EndState::Cancelled),
        end(u32::MAX, u32::MAX, u32::MAX, EndState::Succeeded),
    ];
    for (at, lesser) in ascending.iter().enumerate() {
        for greater in ascending.iter().skip(at + 1) {
            let (one, other) = (MessageId::new(), MessageId::new());
            ledger.record(&[(one, lesser.clone()), (other, greater.clone())]).await?;
            ledger.record(&[(one, greater.clone()), (other, lesser.clone())]).await?;
            for (id, found) in [one, other].into_iter().zip(ledger.find(&[one, other]).await?) {
                let found = found.as_ref().map(bare);
                c.equal(Clause::EndsMerge, &[id], "the greater end", &Some(greater.clone()), &found)?;
            }
        }
    }
    Ok(())
}

/// An end of equal rank changes nothing: not the content, not the time, not how long it is kept. Neither does
/// a lower one.
async fn equal(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let id = MessageId::new();
    let first = numbered(3).with_keep(LONG);
    ledger.record(&[(id, first.clone())]).await?;
    let found = ledger.found(Clause::EndsMerge, id).await?;
    tokio::time::sleep(Duration::from_millis(5)).await; // so that a new moment would show
    let same_rank = first.clone().with_reason("another").with_result("other").with_keep(None);
    for other in [same_rank, numbered(2), first.clone()] {
        ledger.record(&[(id, other)]).await?;
        let still = ledger.found(Clause::EndsMerge, id).await?;
        c.equal(Clause::EndsMerge, &[id], "the end as it was", &at_rest(&found), &at_rest(&still))?;
    }
    ledger.has(Clause::EndsMerge, &[(id, first)]).await
}

fn at_rest(ended: &EndedTask) -> EndedTask {
    EndedTask::new(ended.id, ended.ended_at, ended.expires_at, std::sync::Arc::new(bare(ended)))
}

/// The end that a settlement stored is replaced by a recorded end of higher rank, and by no other.
async fn over_settled(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let id = end_one(c, &p, &numbered(5)).await?;
    for (recorded, left) in [(4, 5), (5, 5), (6, 6), (5, 6)] {
        ledger.record(&[(id, numbered(recorded))]).await?;
        ledger.has(Clause::EndsMerge, &[(id, numbered(left))]).await?;
    }
    let deleted = ledger.delete(&[id]).await?;
    c.equal(Clause::EndsRemoved, &[id], "deleted:", &vec![true], &deleted)?;
    ledger.record(&[(id, numbered(1))]).await?;
    ledger.has(Clause::EndsMerge, &[(id, numbered(1))]).await
}

/// An end whose time is over is no longer there: one of any rank takes its place, even if nobody has purged
/// it.
async fn after_a_lapse(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let brief = Duration::from_millis(50);
    let settled = end_one(c, &p, &numbered(5).with_keep(Some(brief))).await?;
    let recorded = MessageId::new();
    ledger.record(&[(recorded, numbered(5).with_keep(Some(brief)))]).await?;
    tokio::time::sleep(brief + CLOCK_GRAIN).await;
    ledger.is_empty(Clause::EndedTold, "their time is over").await?;
    let expected = [(settled, numbered(1)), (recorded, numbered(2).with_keep(LONG))];
    ledger.record(&expected).await?;
    ledger.has(Clause::EndsMerge, &expected).await
}

/// Several clients record ends of the same tasks at once, in batches of different order: the highest of each
/// remains.
async fn at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients =
        join_all((0..CLIENTS).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let mut random = c.random();
    for _ in 0..c.size(5, 50) {
        let ids: Vec<_> = (0..8).map(|_| MessageId::new()).collect();
        let mut calls: Vec<Vec<(MessageId, TaskEnd)>> = (0..24)
            .map(|rank| {
                let mut batch: Vec<_> = ids.iter().map(|id| (*id, numbered(rank))).collect();
                random.shuffle(&mut batch);
                batch
            })
            .collect();
        random.shuffle(&mut calls);
        let recording = calls.iter().zip(clients.iter().cycle()).map(|(batch, client)| {
            let ledger = Ledger::of(c, client, &p);
            async move { ledger?.record(batch).await }
        });
        join_all(recording).await.into_iter().collect::<CaseResult>()?;
        let expected: Vec<_> = ids.iter().map(|id| (*id, numbered(23))).collect();
        Ledger::first(c, &p)?.has(Clause::EndsMerge, &expected).await?;
    }
    Ok(())
}
