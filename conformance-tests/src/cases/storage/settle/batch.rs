//! Many settlements in one call, and in many calls at once.

use std::time::{Duration, Instant};

use anyqueue::SettleOutcome;
use anyqueue::adapter::{Action, PullRequest, Token};
use futures_util::future::join_all;

use super::super::helpers::push_one;
use super::token::actions;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "settle.remove_many", [SettleActions, SettleOutcomes], remove_many)
        .kills(&[Fault::RemoveLostOneIn30, Fault::RemoveDoesNothing]),
    case!(Storage, "settle.one_refused", [SettleOutcomes], one_refused)
        .kills(&[Fault::RefusedFailsBatch, Fault::LostEndsBatch]),
    case!(Storage, "settle.moves_in_order", [Order, SettleActions], moves_in_order)
        .needs(&[Need::PushOrder, Need::AtomicMoves])
        .kills(&[Fault::NineMovesReversed]),
    case!(Storage, "settle.mixed_batch", [SettleActions, SettleOutcomes], mixed_batch)
        .kills(&[Fault::OnlyFirstSettled, Fault::OnePartitionPerBatch]),
    case!(Storage, "settle.reverse_from_tasks", [SettleActions], reverse_from_tasks)
        .kills(&[Fault::RemoveLostOneIn30]),
    case!(Storage, "settle.exchange", [PullBounds, SettleOutcomes], exchange).kills(&[
        Fault::ExchangeForgetsToPull,
        Fault::TwinSettled,
        Fault::ExchangeStopsAtLost,
    ]),
    case!(Storage, "settle.batch_over_partitions", [SettleOutcomes], batch_over_partitions)
        .kills(&[Fault::AnswersByPartition]),
];

/// How many moves one call has.
const MANY_MOVES: usize = 40;

/// Of a hundred removals, every one is done.
async fn remove_many(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(100, |_, message| message)).await?;
    let (mut removed, lease) = (0, c.timing().act_lease);
    while removed < 100 {
        let start = Instant::now();
        let got = c.client().pull_with(&p, PullRequest::new(10, c.timing().soon, lease)).await?;
        c.check(
            Clause::Stored,
            &[],
            !got.is_empty(),
            "a hundred messages",
            format!("{removed} until nothing came"),
        )?;
        let settlements: Vec<_> = got.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
        let outcomes = c.client().storage().settle(&settlements).await;
        let settled = outcomes.iter().filter(|outcome| matches!(outcome, Ok(SettleOutcome::Settled))).count();
        c.still_within(start, lease)?;
        c.equal(Clause::SettleOutcomes, &[], "the number of Settled", &got.len(), &settled)?;
        removed += settled;
    }
    let never = c.timing().never_after(lease);
    c.client()
        .nothing(
            &p,
            never,
            Clause::SettleActions,
            "nothing after the removals, when the leases are long over",
        )
        .await
}

/// A settlement that is refused in a batch, at any position and for any reason, does not affect the others.
async fn one_refused(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for (place, token) in
        [(0, Token::random()), (1, Token::from_bytes(vec![0])), (3, Token::from_bytes(vec![]))]
    {
        c.client().push(&p, &c.messages(4, |_, message| message)).await?;
        let held = c.client().take(&p, 4).await?;
        let batch = held.iter().enumerate().map(|(at, delivery)| {
            let mut settlement = settlement(delivery, Action::Remove);
            if at == place {
                settlement.lease.token = token.clone();
            }
            settlement
        });
        let answers = c.client().storage().settle(&batch.collect::<Vec<_>>()).await;
        let settled: Vec<_> =
            answers.iter().map(|answer| matches!(answer, Ok(SettleOutcome::Settled))).collect();
        let expected: Vec<_> = (0..4).map(|at| at != place).collect();
        let about = crate::context::ids(&held);
        let told =
            format!("Settled, but for the one at place {place}, whose token nobody gave out: {expected:?}");
        c.check(Clause::SettleOutcomes, &about, settled == expected, told, format!("{answers:?}"))?;
        let refused = held.get(place..=place).unwrap_or_default();
        c.client().remove(refused).await?;
    }
    Ok(())
}

/// Messages that one call moves arrive in the order of the call, however many there are.
async fn moves_in_order(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let count = c.capabilities().limits.settle_batch.min(MANY_MOVES);
    let sent = c.client().push(&p, &c.messages(count, |_, message| message)).await?;
    let mut held = c.client().take(&p, count).await?;
    for to in [&other, &p.dead_letters(), &p] {
        c.client().settle_all(&held, &Action::Move { to: to.clone(), headers: None }).await?;
        held = c.client().take(to, count).await?;
        c.in_order(Clause::Order, "what was moved, in the order of the call", &sent, &held)?;
    }
    c.client().remove(&held).await
}

/// One batch with every kind of settlement, for two partitions, in no particular order.
async fn mixed_batch(c: &Context) -> CaseResult {
    let (p, q, elsewhere) = (c.partition("work")?, c.partition("more")?, c.partition("elsewhere")?);
    let mut held = Vec::new();
    for place in [&p, &q] {
        c.client().push(place, &c.messages(10, |_, message| message)).await?;
        held.extend(c.client().take(place, 10).await?);
    }
    c.random().shuffle(&mut held);
    let actions = actions(c)?;
    let fates: Vec<_> = held.iter().zip(actions.iter().cycle()).collect();
    let batch: Vec<_> =
        fates.iter().map(|(delivery, action)| settlement(delivery, (*action).clone())).collect();
    c.client().settle(&batch).await?;
    for place in [&p, &q, &elsewhere] {
        let expected: Vec<_> = fates
            .iter()
            .filter(|(delivery, action)| match action {
                Action::Remove => false,
                Action::Move { to, .. } => to == place,
                _ => delivery.lease.partition == *place,
            })
            .map(|(delivery, _)| delivery.lease.id)
            .collect();
        let got = c.client().take(place, expected.len()).await?;
        c.same(
            Clause::SettleActions,
            &format!("what belongs into {place} after the batch"),
            &expected,
            &got,
        )?;
        c.client().remove(&got).await?;
        c.client().nothing(place, c.timing().slack, Clause::SettleActions, "nothing else").await?;
    }
    Ok(())
}

/// Many tasks settle at once, last delivery first.
async fn reverse_from_tasks(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(60, |_, message| message)).await?;
    let mut held = c.client().take(&p, 60).await?;
    held.reverse();
    let tasks = held.into_iter().map(|delivery| {
        let client = c.client().clone();
        tokio::spawn(async move { client.remove(&[delivery]).await })
    });
    for task in join_all(tasks).await {
        task.map_err(|panic| c.failed(Clause::SettleActions, &[], "no panic", panic.to_string()))??;
    }
    c.client().nothing(&p, c.timing().slack, Clause::SettleActions, "nothing left").await
}

/// An exchange settles and pulls; the failure of one half is not a failure of the other.
async fn exchange(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let mut held = c.client().pull(&p, 1).await?;
    let mut seen = held.clone();
    for round in 0..4 {
        let last = round == 3;
        let stale: Vec<_> = held.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
        let batch = [stale.clone(), stale].concat();
        let wait = if last { Duration::ZERO } else { c.timing().soon };
        let (settled, pulled) = c.client().storage().exchange(&batch, &p, c.client().request(1, wait)).await;
        let settled = c.ok(
            Clause::SettleOutcomes,
            "settling in an exchange",
            settled.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
        )?;
        c.equal(
            Clause::SettleOutcomes,
            &[],
            "the outcomes",
            &vec![SettleOutcome::Settled, SettleOutcome::Lost],
            &settled,
        )?;
        held = c.ok(Clause::PullBounds, "pulling in an exchange", pulled)?;
        c.equal(Clause::PullBounds, &[], "the deliveries of an exchange", &usize::from(!last), &held.len())?;
        seen.extend(held.clone());
    }
    c.same(Clause::PullBounds, "each message once", &sent, &seen)
}

async fn batch_over_partitions(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    push_one(c, &other, c.message()).await?;
    let ([first, last], [gone]) = (c.client().take_exact(&p).await?, c.client().take_exact(&other).await?);
    c.client().remove(std::slice::from_ref(&gone)).await?;
    let batch = [&first, &gone, &last].map(|delivery| settlement(delivery, Action::Remove));
    let outcomes = c.client().storage().settle(&batch).await;
    let outcomes =
        c.ok(Clause::SettleOutcomes, "a batch", outcomes.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let expected = vec![SettleOutcome::Settled, SettleOutcome::Lost, SettleOutcome::Settled];
    c.equal(
        Clause::SettleOutcomes,
        &[gone.lease.id],
        "the outcomes, in the order of the batch:",
        &expected,
        &outcomes,
    )
}
