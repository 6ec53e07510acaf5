//! Ends are selected by state and by time, and counted up to a cap.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{EndedQuery, EndedTask, TaskEnd};
use anyqueue::{EndState, MessageId};

use super::{Ledger, NEEDS, between, end_all, end_numbered, in_states, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.states", [EndedTold], states).needs(NEEDS).kills(&[
        Fault::EndedCountIgnoresStates,
        Fault::EndedListIgnoresStates,
        Fault::EndedFirstStateOnly,
    ]),
    case!(Storage, "ledger.times", [EndedTold], times)
        .needs(NEEDS)
        .kills(&[Fault::EndedBeforeInclusive, Fault::EndedSinceExclusive]),
    case!(Storage, "ledger.far_times", [EndedTold], far_times)
        .needs(NEEDS)
        .kills(&[Fault::EndedCountIgnoresTimes]),
    case!(Storage, "ledger.states_and_times", [EndedTold], states_and_times).needs(NEEDS).kills(&[
        Fault::EndedSinceExclusive,
        Fault::EndedCountIgnoresStates,
        Fault::EndedCountIgnoresTimes,
    ]),
    case!(Storage, "ledger.counts", [EndedTold], counts).needs(NEEDS).kills(&[
        Fault::EndedCountBelowCap,
        Fault::EndedCountBeyondCap,
        Fault::EndedCountIgnoresStates,
    ]),
];

const MILLISECOND: Duration = Duration::from_millis(1);

/// Judges that exactly the matching ones are listed, in pages of any size, and counted.
async fn judge(c: &Context, ledger: Ledger<'_>, all: &[EndedTask], query: &EndedQuery) -> CaseResult {
    let matching = all.iter().filter(|ended| query.matches(ended.end.state, ended.ended_at));
    let expected: Vec<MessageId> = matching.map(|ended| ended.id).collect();
    for limit in [2, 100] {
        let listed: Vec<_> = ledger.pages(query, limit).await?.iter().map(|ended| ended.id).collect();
        c.equal(Clause::EndedTold, &[], &format!("listed for {query:?}:"), &expected, &listed)?;
    }
    let counted = ledger.count(query, super::MANY).await?;
    c.equal(Clause::EndedTold, &[], &format!("counted for {query:?}:"), &(expected.len() as u64), &counted)
}

/// Each state alone, each two together, and all of them.
async fn states(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ends: Vec<_> = EndState::ALL
        .into_iter()
        .enumerate()
        .flat_map(|(n, state)| vec![TaskEnd::new(state); n + 1])
        .collect();
    end_all(c, &p, &ends).await?;
    let ledger = Ledger::first(c, &p)?;
    let all = ledger.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "how many are listed:", &ends.len(), &all.len())?;
    for (n, state) in EndState::ALL.into_iter().enumerate() {
        judge(c, ledger, &all, &in_states(&[state])).await?;
        let counted = ledger.count(&in_states(&[state, state]), super::MANY).await?;
        c.equal(Clause::EndedTold, &[], "one named twice, counted once:", &(n as u64 + 1), &counted)?;
        for other in EndState::ALL {
            judge(c, ledger, &all, &in_states(&[other, state])).await?;
        }
    }
    judge(c, ledger, &all, &in_states(&EndState::ALL)).await
}

/// Creates three tasks that ended at different moments, the oldest first.
async fn three(c: &Context, ledger: Ledger<'_>) -> CaseResult<Vec<EndedTask>> {
    for number in 0..3 {
        end_all(c, ledger.p, &[numbered(number)]).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut all = ledger.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "how many are listed:", &3, &all.len())?;
    all.reverse();
    Ok(all)
}

/// `since` includes its moment and `before` does not, to the millisecond, even between two milliseconds.
async fn times(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let three = three(c, ledger).await?;
    let newest_first: Vec<_> = three.iter().rev().cloned().collect();
    for ended in &three {
        let at = ended.ended_at;
        let half = MILLISECOND / 2;
        for moment in [at - MILLISECOND, at - half, at, at + half, at + MILLISECOND] {
            judge(c, ledger, &newest_first, &between(Some(moment), None)).await?;
            judge(c, ledger, &newest_first, &between(None, Some(moment))).await?;
            judge(c, ledger, &newest_first, &between(Some(at), Some(moment))).await?;
            judge(c, ledger, &newest_first, &between(Some(moment), Some(at + half))).await?;
        }
    }
    let of = |at: usize| three.get(at).map(|ended| ended.ended_at);
    let middle = ledger.list(&between(of(1), of(2))).await?;
    let ids: Vec<_> = middle.iter().map(|ended| ended.id).collect();
    let expected: Vec<_> = three.get(1).map(|ended| ended.id).into_iter().collect();
    c.equal(Clause::EndedTold, &expected, "from the second to before the third:", &expected, &ids)
}

/// Times long before and long after everything are treated like others.
async fn far_times(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    end_numbered(c, &p, 3).await?;
    let all = ledger.list(&EndedQuery::default()).await?;
    let epoch = SystemTime::UNIX_EPOCH;
    let day = Duration::from_hours(24);
    let moments = [epoch - day * 365 * 100, epoch - MILLISECOND, epoch, epoch + day * 365 * 7000];
    for moment in moments {
        judge(c, ledger, &all, &between(Some(moment), None)).await?;
        judge(c, ledger, &all, &between(None, Some(moment))).await?;
        for other in moments {
            judge(c, ledger, &all, &between(Some(moment), Some(other))).await?;
        }
    }
    Ok(())
}

/// Conditions on states and on times apply together.
async fn states_and_times(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    for _ in 0..3 {
        end_numbered(c, &p, 8).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let all = ledger.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "how many are listed:", &24, &all.len())?;
    for ended in all.iter().step_by(5) {
        for state in EndState::ALL {
            let mut query = in_states(&[state, EndState::Cancelled]);
            query.since = Some(ended.ended_at);
            judge(c, ledger, &all, &query).await?;
            query.before = Some(ended.ended_at + MILLISECOND);
            judge(c, ledger, &all, &query).await?;
            query.since = None;
            judge(c, ledger, &all, &query).await?;
        }
    }
    Ok(())
}

/// A count below the cap is exact; at the cap it stops.
async fn counts(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let n = 12;
    let ledger = Ledger::first(c, &p)?;
    c.equal(Clause::EndedTold, &[], "counted of none:", &0, &ledger.count(&EndedQuery::default(), 1).await?)?;
    end_numbered(c, &p, n).await?;
    let succeeded = in_states(&[EndState::Succeeded]);
    for cap in [1, 2, 3, 4, 11, 12, 13, 1000, u64::from(u32::MAX) + 1, u64::MAX / 2 + 1, u64::MAX] {
        let all = ledger.count(&EndedQuery::default(), cap).await?;
        c.equal(Clause::EndedTold, &[], &format!("counted up to {cap}:"), &cap.min(n as u64), &all)?;
        let some = ledger.count(&succeeded, cap).await?;
        c.equal(Clause::EndedTold, &[], &format!("in one state, up to {cap}:"), &cap.min(3), &some)?;
    }
    Ok(())
}
