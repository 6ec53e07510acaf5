//! Settlements under a lost lease: none of them stores an end.

use anyqueue::SettleOutcome;
use anyqueue::adapter::{Lease, PullRequest, RawDelivery, TaskEnd, Token};
use futures_util::future::join_all;

use super::super::helpers::push_one;
use super::{Ledger, bare, ending, hold, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.of_a_lapsed_lease", [EndStored, Fencing], of_a_lapsed_lease)
        .needs(TIMED)
        .kills(&[Fault::EndOfLostLease]),
    case!(Storage, "ledger.of_the_old_owner", [EndStored, Fencing], of_the_old_owner)
        .needs(TIMED)
        .kills(&[Fault::EndOfLostLease]),
    case!(Storage, "ledger.of_a_forged_lease", [EndStored, Fencing], of_a_forged_lease)
        .needs(ATOMIC)
        .kills(&[Fault::EndOfLostLease]),
    case!(Storage, "ledger.twice", [EndStored, SettleTwice], twice)
        .needs(ATOMIC)
        .kills(&[Fault::EndOfLostLease]),
    case!(Storage, "ledger.lost_in_a_batch", [EndStored, SettleOutcomes], lost_in_a_batch)
        .needs(ATOMIC)
        .kills(&[Fault::EndsStopAtLost, Fault::EndUnasked, Fault::EndOfLostLease]),
    case!(Storage, "ledger.lost_in_an_exchange", [EndStored, Fencing], lost_in_an_exchange)
        .needs(ATOMIC)
        .kills(&[Fault::EndUnasked, Fault::EndOfLostLease]),
    case!(Storage, "ledger.of_rivals", [EndStored, Fencing], of_rivals)
        .needs(&[Need::AtomicLedger, Need::TimedLease, Need::Fencing])
        .kills(&[Fault::EndOfLostLease]),
];

/// If the end is stored before the settlement, an owner that lost its lease may leave one.
const ATOMIC: &[Need] = &[Need::AtomicLedger];
const TIMED: &[Need] = &[Need::AtomicLedger, Need::TimedLease];

/// How many clients settle one delivery at once.
const RIVALS: usize = 8;

/// Settles with an end under a lease that is lost.
async fn lost(c: &Context, client: &Client, delivery: &RawDelivery, end: &TaskEnd) -> CaseResult {
    let answer = client.storage().settle(&[ending(delivery, end)]).await;
    let right = matches!(answer.as_slice(), [Ok(SettleOutcome::Lost)]);
    c.check(Clause::Fencing, &[delivery.lease.id], right, "Lost", format!("{answer:?}"))
}

/// A client whose lease has ended stores no end, even if nobody has taken the message since.
async fn of_a_lapsed_lease(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let id = push_one(c, &p, c.message()).await?;
    let got = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
    tokio::time::sleep(t.never()).await;
    for delivery in &got {
        lost(c, c.client(), delivery, &numbered(1)).await?;
    }
    Ledger::first(c, &p)?.lacks(Clause::EndStored, &[id], "the lease was lost").await?;
    let back = c.client().take(&p, 1).await?;
    c.client().settle(&back.iter().map(|back| ending(back, &numbered(2))).collect::<Vec<_>>()).await?;
    Ledger::first(c, &p)?.has(Clause::EndStored, &[(id, numbered(2))]).await
}

/// A client whose message another one holds by now stores no end; the new owner's end counts, before and
/// after.
async fn of_the_old_owner(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let id = push_one(c, &p, c.message()).await?;
    let old = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
    let owner = c.fresh().await?;
    let new = owner.pull_with(&p, owner.request(1, t.latest(t.lease))).await?;
    for delivery in &old {
        lost(c, c.client(), delivery, &numbered(9)).await?;
    }
    Ledger::first(c, &p)?.lacks(Clause::EndStored, &[id], "the old owner's lease was lost").await?;
    owner.settle(&new.iter().map(|new| ending(new, &numbered(1))).collect::<Vec<_>>()).await?;
    for delivery in &old {
        lost(c, c.client(), delivery, &numbered(9)).await?;
    }
    Ledger::first(c, &p)?.has(Clause::EndStored, &[(id, numbered(1))]).await
}

/// A lease that nobody issued stores nothing, and a held message is still held.
async fn of_a_forged_lease(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let held = hold(c, &p, c.message()).await?;
    let forged =
        RawDelivery::new(Lease { token: Token::random(), ..held.lease.clone() }, held.message.clone());
    lost(c, c.client(), &forged, &numbered(1)).await?;
    Ledger::first(c, &p)?.is_empty(Clause::EndStored, "the lease was forged").await?;
    c.client().settle(&[ending(&held, &numbered(2))]).await?;
    Ledger::first(c, &p)?.has(Clause::EndStored, &[(held.lease.id, numbered(2))]).await
}

/// A second settlement changes nothing about the end, in the same call and in another, even if it would have
/// a higher rank.
async fn twice(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for _ in 0..3 {
        let held = hold(c, &p, c.message()).await?;
        let batch = [ending(&held, &numbered(1)), ending(&held, &numbered(5))];
        let answers = c.client().storage().settle(&batch).await;
        let right = matches!(answers.as_slice(), [Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost)]);
        c.check(Clause::SettleTwice, &[held.lease.id], right, "Settled, then Lost", format!("{answers:?}"))?;
        let ledger = Ledger::first(c, &p)?;
        let first = ledger.found(Clause::EndStored, held.lease.id).await?;
        lost(c, c.client(), &held, &numbered(7)).await?;
        lost(c, &c.fresh().await?, &held, &numbered(8)).await?;
        ledger.has(Clause::EndStored, &[(held.lease.id, numbered(1))]).await?;
        let still = ledger.found(Clause::EndStored, held.lease.id).await?;
        c.equal(Clause::EndStored, &[held.lease.id], "the end as it was", &first, &still)?;
    }
    Ok(())
}

/// In one batch, over partitions, each delivery that ends has its end, and the lost ones have none.
async fn lost_in_a_batch(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let [first, gone, taken, last] = c.client().take_exact(&p).await?;
    let elsewhere = hold(c, &other, c.message()).await?;
    c.client().remove(std::slice::from_ref(&gone)).await?;
    let forged =
        RawDelivery::new(Lease { token: Token::random(), ..taken.lease.clone() }, taken.message.clone());
    let batch = [&first, &gone, &elsewhere, &forged, &last]
        .into_iter()
        .enumerate()
        .map(|(number, delivery)| ending(delivery, &numbered(number)))
        .collect::<Vec<_>>();
    let answers = c.client().storage().settle(&batch).await;
    let refused: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(SettleOutcome::Lost))).collect();
    let settled = answers.iter().filter(|answer| matches!(answer, Ok(SettleOutcome::Settled))).count();
    let right = refused == [false, true, false, true, false] && settled == 3;
    c.check(
        Clause::SettleOutcomes,
        &[],
        right,
        "Lost for the second and the fourth",
        format!("{answers:?}"),
    )?;
    let ledger = Ledger::first(c, &p)?;
    let here = [(first.lease.id, numbered(0)), (last.lease.id, numbered(4))];
    ledger.has(Clause::EndStored, &here).await?;
    ledger.lacks(Clause::EndStored, &[gone.lease.id, taken.lease.id], "their leases were lost").await?;
    Ledger::first(c, &other)?.has(Clause::EndStored, &[(elsewhere.lease.id, numbered(2))]).await?;
    c.client().remove(&[taken]).await
}

/// An exchange under a lost lease stores no end, and still pulls.
async fn lost_in_an_exchange(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let gone = hold(c, &p, c.message()).await?;
    c.client().remove(std::slice::from_ref(&gone)).await?;
    let next = push_one(c, &p, c.message()).await?;
    let request = c.client().request(1, c.timing().soon);
    let (settled, pulled) = c.client().storage().exchange(&[ending(&gone, &numbered(1))], &p, request).await;
    let right = matches!(settled.as_slice(), [Ok(SettleOutcome::Lost)]);
    c.check(Clause::Fencing, &[gone.lease.id], right, "Lost", format!("{settled:?}"))?;
    Ledger::first(c, &p)?.is_empty(Clause::EndStored, "the lease was lost").await?;
    let got = c.ok(Clause::PullBounds, "pulling in an exchange", pulled)?;
    c.in_order(Clause::PullBounds, "the next message", &[next], &got)?;
    c.client().remove(&got).await
}

/// Several clients end one delivery at once, each in a different way: one gets `Settled`, and only its end is
/// there.
async fn of_rivals(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients =
        join_all((0..RIVALS).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    for round in 0..c.size(10, 100) {
        let held = hold(c, &p, c.message()).await?;
        let id = held.lease.id;
        let ends: Vec<_> = (0..RIVALS).map(|rival| numbered(round * RIVALS + rival)).collect();
        let rivals = clients.iter().zip(&ends).map(|(client, end)| {
            let settlement = ending(&held, end);
            async move { client.storage().settle(&[settlement]).await }
        });
        let answers = join_all(rivals).await;
        let settled = answers
            .iter()
            .zip(&ends)
            .filter(|(answer, _)| matches!(answer.as_slice(), [Ok(SettleOutcome::Settled)]));
        let winners: Vec<_> = settled.map(|(_, end)| end.clone()).collect();
        c.equal(Clause::Fencing, &[id], "how many were told Settled:", &1, &winners.len())?;
        let ledger = Ledger::first(c, &p)?;
        let found = vec![bare(&ledger.found(Clause::EndStored, id).await?)];
        c.equal(Clause::EndStored, &[id], "the end of who settled", &winners, &found)?;
        ledger.lists_once(Clause::EndStored, &[id]).await?;
    }
    Ok(())
}
