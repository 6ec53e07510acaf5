//! Successors of a delivery that does not end as requested: none of them is stored.

use std::time::Duration;

use anyqueue::SettleOutcome;
use anyqueue::adapter::{Action, Lease, PullRequest, RawDelivery, Token};
use futures_util::future::join_all;

use super::super::helpers::push_one;
use super::super::settle::token::actions;
use super::followed;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "successors.of_a_lapsed_lease", [Successors, Fencing], of_a_lapsed_lease)
        .needs(&[Need::Successors, Need::TimedLease])
        .kills(&[Fault::SuccessorsOfLost]),
    case!(Storage, "successors.of_the_old_owner", [Successors, Fencing], of_the_old_owner)
        .needs(&[Need::Successors, Need::TimedLease])
        .kills(&[Fault::SuccessorsOfLost]),
    case!(Storage, "successors.of_a_forged_lease", [Successors, Fencing], of_a_forged_lease)
        .needs(&[Need::Successors])
        .kills(&[Fault::SuccessorsOfLost]),
    case!(Storage, "successors.twice", [Successors, SettleTwice], twice)
        .needs(&[Need::Successors])
        .kills(&[Fault::SuccessorsOfLost, Fault::SuccessorsOfRepeated]),
    case!(Storage, "successors.lost_in_a_batch", [Successors, SettleOutcomes], lost_in_a_batch)
        .needs(&[Need::Successors])
        .kills(&[Fault::SuccessorsOfLost, Fault::LostStopsSuccessors]),
    case!(Storage, "successors.of_rivals", [Successors, Fencing], of_rivals)
        .needs(&[Need::AtomicSuccessors, Need::TimedLease, Need::Fencing])
        .kills(&[Fault::SuccessorsOfLost]),
];

/// How many clients settle one delivery at once.
const RIVALS: usize = 8;

/// A client whose lease has ended leaves no successor, even if nobody has taken the message since.
async fn of_a_lapsed_lease(c: &Context) -> CaseResult {
    let (p, next, t) = (c.partition("work")?, c.partition("next")?, c.timing());
    push_one(c, &p, c.message()).await?;
    let got = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
    tokio::time::sleep(t.never()).await;
    for delivery in &got {
        lost(c, delivery, Action::Remove, &next).await?;
    }
    c.client().nothing(&next, t.slack, Clause::Successors, "no successor of a lost lease").await?;
    let back = c.client().take(&p, 1).await?;
    c.client().remove(&back).await
}

/// Settles with a successor under a lease that is lost.
async fn lost(
    c: &Context,
    delivery: &RawDelivery,
    action: Action,
    next: &anyqueue::PartitionId,
) -> CaseResult {
    let settlement = followed(delivery, action, next, [c.message()]);
    let answer = c.client().storage().settle(&[settlement]).await;
    let right = matches!(answer.as_slice(), [Ok(SettleOutcome::Lost)]);
    c.check(Clause::Fencing, &[delivery.lease.id], right, "Lost", format!("{answer:?}"))
}

/// A client whose message another one holds by now leaves no successor, whatever the action; the new owner's
/// are stored.
async fn of_the_old_owner(c: &Context) -> CaseResult {
    let (p, next, t) = (c.partition("work")?, c.partition("next")?, c.timing());
    push_one(c, &p, c.message()).await?;
    let old = c.client().pull_with(&p, PullRequest::new(1, t.soon, t.lease)).await?;
    let owner = c.fresh().await?;
    let new = owner.pull_with(&p, owner.request(1, t.latest(t.lease))).await?;
    for delivery in &old {
        for action in actions(c)? {
            lost(c, delivery, action, &next).await?;
        }
    }
    c.client().nothing(&next, t.slack, Clause::Successors, "no successor of the old owner").await?;
    let (mut batch, successor) = (Vec::new(), c.message());
    batch.extend(new.iter().map(|delivery| followed(delivery, Action::Remove, &next, [successor.clone()])));
    owner.settle(&batch).await?;
    let got = c.client().take(&next, 1).await?;
    c.in_order(Clause::Successors, "the new owner's successor", &[successor.id()], &got)?;
    c.client().remove(&got).await
}

/// A lease that nobody issued stores no successor.
async fn of_a_forged_lease(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let forged =
        RawDelivery::new(Lease { token: Token::random(), ..held.lease.clone() }, held.message.clone());
    for action in actions(c)? {
        lost(c, &forged, action, &next).await?;
    }
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "no successor of a forged lease").await?;
    c.client().remove(&[held]).await
}

/// A second settlement stores no successor, in one call and in another, whatever it asks for.
async fn twice(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    for action in actions(c)? {
        push_one(c, &p, c.message()).await?;
        let [held] = c.client().take_exact(&p).await?;
        let (first, second) = (c.message(), c.message());
        let batch = [first.clone(), second].map(|message| followed(&held, Action::Remove, &next, [message]));
        let answers = c.client().storage().settle(&batch).await;
        let right = matches!(answers.as_slice(), [Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost)]);
        c.check(Clause::SettleTwice, &[held.lease.id], right, "Settled, then Lost", format!("{answers:?}"))?;
        lost(c, &held, action, &next).await?;
        let got = c.client().take(&next, 1).await?;
        c.in_order(Clause::Successors, "the successor of the first settlement", &[first.id()], &got)?;
        c.client().remove(&got).await?;
    }
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "no other successor").await
}

/// In one batch, over partitions, each delivery that ends has its successor, and the lost one has none.
async fn lost_in_a_batch(c: &Context) -> CaseResult {
    let (p, other, next) = (c.partition("work")?, c.partition("other")?, c.partition("next")?);
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    push_one(c, &other, c.message()).await?;
    let [first, gone, last] = c.client().take_exact(&p).await?;
    let [elsewhere] = c.client().take_exact(&other).await?;
    c.client().settle(&[settlement(&gone, Action::Remove)]).await?;
    let messages = c.messages(4, |_, message| message);
    let expected: Vec<_> =
        messages.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, message)| message.id()).collect();
    let deliveries = [&first, &gone, &elsewhere, &last];
    let batch: Vec<_> = deliveries
        .into_iter()
        .zip(messages)
        .map(|(delivery, message)| followed(delivery, Action::Remove, &next, [message]))
        .collect();
    let answers = c.client().storage().settle(&batch).await;
    let right = matches!(
        answers.as_slice(),
        [
            Ok(SettleOutcome::Settled),
            Ok(SettleOutcome::Lost),
            Ok(SettleOutcome::Settled),
            Ok(SettleOutcome::Settled)
        ]
    );
    c.check(
        Clause::SettleOutcomes,
        &[gone.lease.id],
        right,
        "Lost for the second alone",
        format!("{answers:?}"),
    )?;
    let got = c.client().take(&next, expected.len()).await?;
    c.same(Clause::Successors, "the successors of those that ended", &expected, &got)?;
    c.client().remove(&got).await?;
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "no successor of the lost one").await
}

/// Several clients settle one delivery at once, each with its own successor: one gets `Settled`, and only its
/// successor is stored.
async fn of_rivals(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let clients =
        join_all((0..RIVALS).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    for _ in 0..c.size(10, 100) {
        push_one(c, &p, c.message()).await?;
        let [held] = c.client().take_exact(&p).await?;
        let successors = c.messages(RIVALS, |_, message| message);
        let rivals = clients.iter().zip(&successors).map(|(client, successor)| {
            let settlement = followed(&held, Action::Remove, &next, [successor.clone()]);
            async move { client.storage().settle(&[settlement]).await }
        });
        let answers = join_all(rivals).await;
        let settled =
            |answer: &Vec<anyqueue::Result<_>>| matches!(answer.as_slice(), [Ok(SettleOutcome::Settled)]);
        let winners: Vec<_> = answers
            .iter()
            .zip(&successors)
            .filter(|(answer, _)| settled(answer))
            .map(|(_, successor)| successor.id())
            .collect();
        c.equal(Clause::Fencing, &[held.lease.id], "how many were told Settled:", &1, &winners.len())?;
        let got = c.client().take(&next, 1).await?;
        c.in_order(Clause::Successors, "the successor of who settled", &winners, &got)?;
        c.client().remove(&got).await?;
        c.client().nothing(&next, Duration::ZERO, Clause::Successors, "no other successor").await?;
    }
    Ok(())
}
