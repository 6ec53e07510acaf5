//! Many clients at once: nothing is lost, nothing comes twice, and nobody gets stuck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::MessageId;
use anyqueue::adapter::{Action, RawDelivery};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "concurrency.no_overlap", [Stored, Exclusive], no_overlap)
        .kills(&[Fault::SharedDelivery, Fault::SecondChunkFirst])
        .deadline(LONG),
    case!(Storage, "concurrency.stuck_holder", [NoPrefetch, Exclusive], stuck_holder)
        .kills(&[Fault::Prefetches]),
    case!(Storage, "concurrency.push_and_pull", [Stored, Exclusive, AllWaitersWake], push_and_pull)
        .kills(&[Fault::SharedDelivery, Fault::LosesEleventh])
        .deadline(LONG),
    case!(Storage, "concurrency.random_fates", [Exclusive, SettleActions, SettleOutcomes], random_fates)
        .kills(&[
            Fault::RetryDrops,
            Fault::RemoveLostOneIn30,
            Fault::OnlyFirstSettled,
            Fault::SecondReturnToBack,
            Fault::PostponeResetsCount,
        ])
        .deadline(LONG),
    case!(Storage, "concurrency.oldest_is_served", [NoStarvation], oldest_is_served)
        .needs(&[Need::PushOrder])
        .kills(&[Fault::TiesReversed]),
];

const LONG: Duration = Duration::from_mins(1);

/// How long one check for work waits.
const LOOK: Duration = Duration::from_millis(100);

/// A consumer that found nothing this often in a row gives up: nothing more will come.
const MAX_IDLE: usize = 30;

async fn clients(c: &Context) -> CaseResult<[Client; 4]> {
    Ok([c.client().clone(), c.fresh().await?, c.fresh().await?, c.fresh().await?])
}

/// Sixteen consumers share a backlog: each message goes to exactly one of them, once.
async fn no_overlap(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = clients(c).await?;
    let sent = c.client().push(&p, &c.messages(c.size(600, 2000), |_, message| message)).await?;
    let left = AtomicUsize::new(sent.len());
    let consumers = clients.iter().cycle().take(16).map(|client| {
        let (p, left) = (&p, &left);
        async move {
            let (mut seen, mut idle) = (Vec::new(), 0);
            while left.load(Ordering::Relaxed) > 0 && idle < MAX_IDLE {
                let got = client.pull_with(p, client.request(7, LOOK)).await?;
                idle = if got.is_empty() { idle + 1 } else { 0 };
                client.remove(&got).await?;
                left.fetch_sub(got.len().min(left.load(Ordering::Relaxed)), Ordering::Relaxed);
                seen.extend(got);
            }
            CaseResult::Ok(seen)
        }
    });
    let seen = join_all(consumers).await.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    c.same(Clause::Exclusive, "each message for exactly one consumer", &sent, &seen)
}

/// A client that holds a message and does nothing holds up nobody else.
async fn stuck_holder(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let worker = c.fresh().await?;
    let sent = c.client().push(&p, &c.messages(20, |_, message| message)).await?;
    let stuck = c.client().pull(&p, 1).await?;
    let rest = worker.take(&p, 19).await?;
    worker.remove(&rest).await?;
    c.same(Clause::NoPrefetch, "everything else", &sent, &[stuck.clone(), rest].concat())?;
    c.client().remove(&stuck).await
}

/// Pushers and consumers work at the same time.
async fn push_and_pull(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = clients(c).await?;
    let (each, pushers) = (c.size(6, 40), 4);
    let total = each * 11 * pushers;
    let pushing = clients.iter().map(|client| async {
        let mut sent = Vec::new();
        for _ in 0..each {
            sent.extend(client.push(&p, &c.messages(11, |_, message| message)).await?);
        }
        CaseResult::Ok(sent)
    });
    let taken = AtomicUsize::new(0);
    let pulling = clients.iter().cycle().take(8).map(|client| {
        let (p, taken) = (&p, &taken);
        async move {
            let mut seen: Vec<RawDelivery> = Vec::new();
            let mut idle = 0;
            while taken.load(Ordering::Relaxed) < total && idle < MAX_IDLE {
                let got = client.pull_with(p, client.request(5, LOOK)).await?;
                idle = if got.is_empty() { idle + 1 } else { 0 };
                taken.fetch_add(got.len(), Ordering::Relaxed);
                client.remove(&got).await?;
                seen.extend(got);
            }
            CaseResult::Ok(seen)
        }
    });
    let (sent, seen) = futures_util::join!(join_all(pushing), join_all(pulling));
    let sent: Vec<MessageId> = sent.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    let seen: Vec<RawDelivery> = seen.into_iter().collect::<CaseResult<Vec<_>>>()?.concat();
    c.same(Clause::Stored, "everything that was pushed, once", &sent, &seen)
}

/// Consumers settle at random; in the end each message was removed exactly once.
async fn random_fates(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = clients(c).await?;
    let sent = c.client().push(&p, &c.messages(c.size(300, 2000), |_, message| message)).await?;
    let left = AtomicUsize::new(sent.len());
    let mut seeds = c.random();
    let consumers = clients.iter().cycle().take(8).map(|client| {
        let mut random = seeds.fork();
        let (p, left) = (&p, &left);
        async move {
            let (mut removed, mut idle) = (Vec::new(), 0);
            while left.load(Ordering::Relaxed) > 0 && idle < MAX_IDLE {
                let got = client.pull_with(p, client.request(5, LOOK)).await?;
                idle = if got.is_empty() { idle + 1 } else { 0 };
                let fates: Vec<_> =
                    got.iter().map(|delivery| settlement(delivery, fate(&mut random))).collect();
                client.settle(&fates).await?;
                let gone =
                    fates.iter().filter(|fate| fate.action == Action::Remove).map(|fate| fate.lease.id);
                let before = removed.len();
                removed.extend(gone);
                left.fetch_sub(removed.len() - before, Ordering::Relaxed);
            }
            CaseResult::Ok(removed)
        }
    });
    let mut removed = BTreeMap::<MessageId, usize>::new();
    for id in join_all(consumers).await.into_iter().collect::<CaseResult<Vec<_>>>()?.concat() {
        *removed.entry(id).or_default() += 1;
    }
    let wrong: Vec<_> = sent.iter().filter(|id| removed.get(id) != Some(&1)).copied().collect();
    let seen = format!("{} were not", wrong.len());
    c.check(
        Clause::SettleActions,
        wrong.get(..1).unwrap_or_default(),
        wrong.is_empty(),
        "each message removed exactly once",
        seen,
    )
}

fn fate(random: &mut fastrand::Rng) -> Action {
    match random.u8(..6) {
        0 => Action::Release,
        1 => Action::Retry,
        2 => Action::Postpone { delay: Duration::ZERO, headers: None },
        _ => Action::Remove,
    }
}

/// While new messages keep coming, the oldest are served first.
async fn oldest_is_served(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut waiting = c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    for _ in 0..10 {
        waiting.extend(c.client().push(&p, &c.messages(5, |_, message| message)).await?);
        let got = c.client().take(&p, 3).await?;
        let oldest: Vec<_> = waiting.drain(..3).collect();
        c.in_order(Clause::NoStarvation, "the oldest", &oldest, &got)?;
        c.client().remove(&got).await?;
    }
    let rest = c.client().take(&p, waiting.len()).await?;
    c.equal(Clause::NoStarvation, &[], "the rest", &waiting, &ids(&rest))?;
    c.client().remove(&rest).await
}
