//! The ledger belongs to the storage, not to a client: others see it, clients come and go, and a closed
//! client returns nothing.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{Cancelled, EndedQuery};
use anyqueue::{Clock, ErrorKind, MessageId, Page, Skew};
use futures_util::future::join_all;

use super::{LONG, Ledger, NEEDS, end_numbered, ending, hold, ids_of, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.other_clients", [EndedTold, EndStored], other_clients)
        .needs(NEEDS)
        .kills(&[Fault::EndsOfOneClient, Fault::EndLate]),
    case!(Storage, "ledger.reopened", [EndedTold, Stored], reopened)
        .needs(NEEDS)
        .kills(&[Fault::EndsDieWithClient, Fault::InitForgetsEnds]),
    case!(Storage, "ledger.closed", [Close], closed).needs(NEEDS).kills(&[Fault::CloseDoesNothing]),
    case!(Storage, "ledger.initialised_again", [EndedTold, Init], initialised_again)
        .needs(NEEDS)
        .kills(&[Fault::InitForgetsEnds, Fault::EndsOfOneClient]),
    case!(Storage, "ledger.skewed_client", [EndStored, EndedTold, ServerTime], skewed_client)
        .needs(&[Need::Ledger, Need::SkewedClient])
        .kills(&[Fault::LapsedByClientClock, Fault::EndedByClientClock]),
    case!(Storage, "ledger.used_at_once", [EndedTold, EndsRemoved], used_at_once)
        .needs(NEEDS)
        .kills(&[Fault::DeletesFirstEnd, Fault::RecordsFirstOnly]),
];

const HOUR: Duration = Duration::from_hours(1);

/// What one client settles, another sees at once, and can delete.
async fn other_clients(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.fresh().await?);
    for number in 0..5 {
        let held = hold(c, &p, c.message()).await?;
        let end = numbered(number);
        let (settling, client) = if number % 2 == 0 { (c.client(), &other) } else { (&other, c.client()) };
        // The lease is just as valid in another client's hands.
        settling.settle(&[ending(&held, &end)]).await?;
        let theirs = Ledger::of(c, client, &p)?;
        theirs.has(Clause::EndedTold, &[(held.lease.id, end)]).await?;
        let deleted = theirs.delete(&[held.lease.id]).await?;
        c.equal(Clause::EndsRemoved, &[held.lease.id], "deleted:", &vec![true], &deleted)?;
        let own = Ledger::of(c, settling, &p)?;
        own.lacks(Clause::EndsRemoved, &[held.lease.id], "another client deleted it").await?;
    }
    Ok(())
}

/// When all clients have closed, a new one finds every end.
async fn reopened(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_numbered(c, &p, 20).await?;
    let recorded: Vec<_> =
        (0..5).map(|number| (MessageId::new(), numbered(number).with_keep(LONG))).collect();
    Ledger::first(c, &p)?.record(&recorded).await?;
    let before = Ledger::first(c, &p)?.list(&EndedQuery::default()).await?;
    c.client().close().await?;
    let client = c.fresh().await?;
    let ledger = Ledger::of(c, &client, &p)?;
    ledger.has(Clause::EndedTold, &[ended, recorded].concat()).await?;
    let after = ledger.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "the list as it was before:", &before, &after)
}

/// A closed client returns `Closed` to every call, one for each item.
async fn closed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_numbered(c, &p, 2).await?;
    let client = c.fresh().await?;
    let ledger = Ledger::of(c, &client, &p)?;
    ledger.has(Clause::EndedTold, &ended).await?;
    client.close().await?;
    let (ids, all) = (ids_of(&ended), EndedQuery::default());
    let (storage, kind) = (ledger.storage, ErrorKind::Closed);
    c.error(Clause::Close, "a page", kind, &storage.ended(&p, &all, Page::of(10)).await)?;
    c.error(Clause::Close, "a count", kind, &storage.count_ended(&p, &all, 10).await)?;
    c.error(Clause::Close, "a purge", kind, &storage.purge_ended(10).await)?;
    let found = storage.find_ended(&p, &ids).await;
    let deleted = storage.delete_ended(&p, &ids).await;
    let ends: Vec<_> = ids.iter().map(|id| (*id, Arc::new(numbered(9)))).collect();
    let recorded = storage.record_ended(&p, &ends).await;
    let tasks: Vec<_> = ids.iter().map(|id| Cancelled { id: *id, end: None }).collect();
    let cancelled = storage.cancel(&p, &tasks).await;
    let lengths = [found.len(), deleted.len(), recorded.len(), cancelled.len()];
    c.equal(Clause::Close, &[], "one answer for each:", &[2; 4], &lengths)?;
    found.iter().try_for_each(|answer| c.error(Clause::Close, "finding", kind, answer))?;
    deleted.iter().try_for_each(|answer| c.error(Clause::Close, "deleting", kind, answer))?;
    recorded.iter().try_for_each(|answer| c.error(Clause::Close, "recording", kind, answer))?;
    cancelled.iter().try_for_each(|answer| c.error(Clause::Close, "cancelling", kind, answer))?;
    Ledger::first(c, &p)?.has(Clause::Close, &ended).await
}

/// Initialising an existing storage leaves every end.
async fn initialised_again(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_numbered(c, &p, 5).await?;
    for client in [c.client().clone(), c.fresh().await?] {
        c.ok(Clause::Init, "an init", client.storage().init().await)?;
        Ledger::of(c, &client, &p)?.has(Clause::EndedTold, &ended).await?;
    }
    Ok(())
}

/// A client whose clock is wrong by an hour does not use it for timestamps, and returns what others do.
async fn skewed_client(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let right = Ledger::first(c, &p)?;
    for skew in [Skew::Ahead(HOUR), Skew::Behind(HOUR)] {
        let client = c.fresh_skewed(Clock::system().skewed(skew)).await?;
        let wrong = Ledger::of(c, &client, &p)?;
        let begun = Instant::now();
        let mut moments = Vec::new();
        // Kept for less time than the clock is wrong, but still returned.
        let end = numbered(1).with_keep(Some(HOUR / 2));
        for settling in [c.client(), &client, c.client()] {
            let held = hold(c, &p, c.message()).await?;
            settling.settle(&[ending(&held, &end)]).await?;
            for ledger in [right, wrong] {
                ledger.has(Clause::EndedTold, &[(held.lease.id, end.clone())]).await?;
            }
            moments.push((held.lease.id, right.found(Clause::EndStored, held.lease.id).await?.ended_at));
        }
        let recorded = MessageId::new();
        wrong.record(&[(recorded, end.clone())]).await?;
        moments.push((recorded, right.found(Clause::EndsMerge, recorded).await?.ended_at));
        let most = begun.elapsed() + CLOCK_GRAIN;
        let first = moments.first().map_or(SystemTime::UNIX_EPOCH, |(_, at)| *at);
        for (id, at) in moments {
            let apart = at.duration_since(first).unwrap_or_else(|error| error.duration());
            let told = format!("ended within {most:?} of the first, by the server's clock");
            c.check(Clause::ServerTime, &[id], apart <= most, told, format!("{apart:?} apart"))?;
        }
        c.equal(Clause::EndsRemoved, &[], "purged by a wrong clock:", &0, &wrong.purge(100).await?)?;
    }
    Ok(())
}

/// Clients that end, list, count, find, delete and purge at once do not hinder each other.
async fn used_at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let kept = end_numbered(c, &p, 20).await?;
    let clients = [c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let working = clients.iter().enumerate().map(|(number, client)| {
        let (kept, p) = (&kept, &p);
        async move {
            let ledger = Ledger::of(c, client, p)?;
            for round in 0..c.size(8, 80) {
                let mine: Vec<_> = (0..4)
                    .map(|at| (MessageId::new(), numbered(100 + number * 10 + round * 100 + at)))
                    .collect();
                ledger.record(&mine).await?;
                ledger.has(Clause::EndedTold, &mine).await?;
                let counted = ledger.count(&EndedQuery::default(), super::MANY).await?;
                let least = (kept.len() + mine.len()) as u64;
                let told = format!("at least {least} counted");
                c.check(Clause::EndedTold, &[], counted >= least, told, counted.to_string())?;
                ledger.purge(3).await?;
                let deleted = ledger.delete(&ids_of(&mine)).await?;
                c.equal(Clause::EndsRemoved, &[], "deleted:", &vec![true; mine.len()], &deleted)?;
                ledger.has(Clause::EndedTold, kept).await?;
            }
            Ok(())
        }
    });
    join_all(working).await.into_iter().collect::<CaseResult>()?;
    let left = Ledger::first(c, &p)?.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndsRemoved, &[], "how many are left:", &kept.len(), &left.len())
}
