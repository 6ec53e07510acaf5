//! Several clients at once whose calls contend for the same messages: each message has one fate, and every
//! client is told the truth about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyqueue::adapter::{Action, RawDelivery};
use anyqueue::{ExtendOutcome, PartitionId, SettleOutcome};
use futures_util::future::{join, join_all};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "rivals.purgers", [Deletion], purgers)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgesCountTogether]),
    case!(Storage, "rivals.extender_and_settler", [Exclusive, Fencing, Extend], extender_and_settler)
        .needs(&[Need::TimedLease, Need::Fencing])
        .kills(&[Fault::ExtensionUndoesRelease]),
];

/// How many messages one push of the producer has.
const BATCH: usize = 10;

/// How often a settler checks for an extension that is under way.
const LOOKS: usize = 20;

/// More than the producer pushes in a while.
const PURGED_AT_ONCE: usize = 100;

/// Several clients purge one partition beside a producer. Each message is taken by one of them, so their
/// answers add up to what was pushed.
async fn purgers(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = [c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let pushed = c.size(30, 300) * BATCH;
    let ended = AtomicBool::new(false);
    let producing = async {
        let mut left = pushed;
        while left > 0 {
            c.client().push(&p, &c.messages(BATCH, |_, message| message)).await?;
            left -= BATCH;
            tokio::task::yield_now().await;
        }
        ended.store(true, Ordering::SeqCst);
        Ok(())
    };
    let purging = join_all(clients.iter().map(|client| purge_on(c, client, &p, &ended, pushed)));
    let (produced, purged) = join(producing, purging).await;
    produced?;
    let purged: Vec<usize> = purged.into_iter().collect::<CaseResult<_>>()?;
    c.equal(Clause::Deletion, &[], "purged, as many as were pushed:", &pushed, &purged.iter().sum())?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "what was purged to be gone").await
}

/// Purges until the producer has ended and nothing is left. Returns how many messages it took, according to
/// its answers.
async fn purge_on(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    ended: &AtomicBool,
    pushed: usize,
) -> CaseResult<usize> {
    let mut taken = 0;
    loop {
        let last = ended.load(Ordering::SeqCst);
        let purged = client.inspect()?.purge(p, PURGED_AT_ONCE).await;
        let purged = c.ok(Clause::Deletion, "a purge beside others", purged)?;
        taken += purged;
        let told = format!("at most {PURGED_AT_ONCE} purged at once, and no more than the {pushed} pushed");
        let possible = purged <= PURGED_AT_ONCE && taken <= pushed;
        c.check(Clause::Deletion, &[], possible, told, format!("{purged}, and {taken} in all"))?;
        if last && purged == 0 {
            return Ok(taken);
        }
        tokio::task::yield_now().await;
    }
}

/// Two clients have one lease: one keeps extending it, the other settles. From then on the lease is lost to
/// both, and if the message comes back, it comes once and to its new owner alone.
async fn extender_and_settler(c: &Context) -> CaseResult {
    let clients = [c.client().clone(), c.fresh().await?];
    let rounds =
        (0..2 * actions(&c.partition("work")?).len()).map(|round| settled_while_extended(c, &clients, round));
    join_all(rounds).await.into_iter().collect()
}

fn actions(p: &PartitionId) -> [Action; 5] {
    [
        Action::Remove,
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to: p.dead_letters(), headers: None },
    ]
}

/// How far the two have got.
#[derive(Default)]
struct Progress {
    /// An extension is under way.
    extending: AtomicBool,
    /// The settlement has begun.
    begun: AtomicBool,
    /// The settlement has ended.
    settled: AtomicBool,
}

/// Each action is settled by each of the two in turn; the message was pulled by the first.
async fn settled_while_extended(c: &Context, clients: &[Client; 2], round: usize) -> CaseResult {
    let p = c.partition(&format!("work{round}"))?;
    let [first, second] = clients;
    let (settler, extender) = if round.is_multiple_of(2) { (first, second) } else { (second, first) };
    let sent = first.push(&p, &[c.message()]).await?;
    let [held] = first.take_exact(&p).await?;
    let Some(action) = actions(&p).into_iter().nth(round / 2) else { return Ok(()) };
    let place = match &action {
        Action::Remove => None,
        Action::Move { to, .. } => Some(to.clone()),
        _ => Some(p.clone()),
    };
    let progress = Progress::default();
    let settling = async {
        // Settle while an extension is under way: between two extensions there is no contention. With some
        // backends none is ever under way, since each ends in the poll that began it.
        for _ in 0..LOOKS {
            tokio::task::yield_now().await;
            if progress.extending.load(Ordering::SeqCst) {
                break;
            }
        }
        progress.begun.store(true, Ordering::SeqCst);
        let outcome = settler.try_settle(&held, action).await?;
        progress.settled.store(true, Ordering::SeqCst);
        c.equal(
            Clause::Extend,
            &sent,
            "the settlement of a lease that holds:",
            &SettleOutcome::Settled,
            &outcome,
        )
    };
    let extending = extend_until_lost(c, extender, &held, &progress);
    let (extensions, settlement) = join(extending, settling).await;
    settlement.and(extensions)?;
    let late = extender.try_settle(&held, Action::Remove).await?;
    c.equal(Clause::Fencing, &sent, "a settlement after another's:", &SettleOutcome::Lost, &late)?;
    if let Some(place) = place {
        comes_once(c, clients, &place, &held).await?;
    }
    for place in [&p, &p.dead_letters()] {
        first
            .nothing(
                place,
                c.timing().slack,
                Clause::Exclusive,
                "nothing more than the settlement made of it",
            )
            .await?;
    }
    Ok(())
}

/// Extends the lease until it is lost, which must not happen before the settlement begins, and must have
/// happened once that has ended.
async fn extend_until_lost(
    c: &Context,
    client: &Client,
    held: &RawDelivery,
    progress: &Progress,
) -> CaseResult {
    loop {
        let before = progress.settled.load(Ordering::SeqCst);
        progress.extending.store(true, Ordering::SeqCst);
        let lost = client.extend(held, c.timing().long_lease).await? == ExtendOutcome::Lost;
        progress.extending.store(false, Ordering::SeqCst);
        let may_be_lost = progress.begun.load(Ordering::SeqCst);
        let expected =
            if before { "Lost, as it was settled before" } else { "an extension of a lease that holds" };
        let right = if lost { may_be_lost } else { !before };
        c.check(Clause::Extend, &[held.lease.id], right, expected, if lost { "Lost" } else { "extended" })?;
        if lost {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}

/// The settled message goes to a new owner, from whom the old lease takes nothing.
async fn comes_once(
    c: &Context,
    [first, second]: &[Client; 2],
    place: &PartitionId,
    old: &RawDelivery,
) -> CaseResult {
    let [back] = second.take_exact(place).await?;
    let outcome = first.extend(old, c.timing().long_lease).await?;
    c.equal(
        Clause::Extend,
        &[old.lease.id],
        "an extension by the old lease:",
        &ExtendOutcome::Lost,
        &outcome,
    )?;
    first
        .nothing(place, c.timing().slack, Clause::Exclusive, "nothing else, as the new owner holds it")
        .await?;
    second.remove(&[back]).await
}
