//! Settle: each action does what it says, once, and nothing else.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Delivery, DeliveryCount, Lease, PullRequest, Settlement, Token};
use anyqueue::{Headers, SettleOutcome};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "settle.remove", [SettleActions, SettleOutcomes, SettleTwice], remove)
        .kills(&[Fault::RemoveDoesNothing, Fault::LeaseUntilTooLate]),
    case!(Storage, "settle.remove_many", [SettleActions, SettleOutcomes], remove_many)
        .kills(&[Fault::RemoveLostOneIn30, Fault::RemoveDoesNothing]),
    case!(Storage, "settle.release", [SettleActions], release)
        .kills(&[Fault::ReleaseWaitsForLease, Fault::AutoAck]),
    case!(Storage, "settle.retry", [SettleActions, DeliveryCount], retry).kills(&[
        Fault::RetryDrops,
        Fault::ThirdRetryDrops,
        Fault::CountStuck,
    ]),
    case!(Storage, "settle.released_goes_first", [SettleActions], released_goes_first)
        .needs(&[Need::RequeueFront, Need::PushOrder])
        .kills(&[Fault::ReleaseWaitsForLease]),
    case!(Storage, "settle.failed_goes_first", [SettleActions], failed_goes_first)
        .needs(&[Need::RequeueFront, Need::PushOrder])
        .kills(&[Fault::RetryToBack]),
    case!(Storage, "settle.postponed_goes_last", [SettleActions], postponed_goes_last)
        .needs(&[Need::PushOrder, Need::RejoinLast])
        .kills(&[Fault::PostponeToFront]),
    case!(Storage, "settle.postponed_alone", [SettleActions], postponed_alone).kills(&[Fault::PostponeDrops]),
    case!(Storage, "settle.postpone_headers", [ContentIntact, SettleActions], postpone_headers)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::PostponeKeepsHeaders]),
    case!(Storage, "settle.move", [PartitionsApart, SettleActions], move_on)
        .kills(&[Fault::MoveCopies, Fault::MoveKeepsCount]),
    case!(Storage, "settle.move_to_itself", [SettleActions], move_to_itself).kills(&[Fault::MoveKeepsCount]),
    case!(Storage, "settle.twice", [SettleTwice], twice).kills(&[Fault::SecondSettled]),
    case!(Storage, "settle.twice_in_one_batch", [SettleOutcomes, SettleTwice], twice_in_one_batch)
        .kills(&[Fault::SecondSettled]),
    case!(Storage, "settle.wrong_token", [SettleOutcomes, Fencing], wrong_token)
        .kills(&[Fault::TokenIgnored]),
    case!(Storage, "settle.altered_tokens", [SettleOutcomes, Fencing], altered_tokens)
        .kills(&[Fault::TokenByItsStart]),
    case!(Storage, "settle.crossed_tokens", [SettleOutcomes, Fencing], crossed_tokens)
        .needs(&[Need::Fencing])
        .kills(&[Fault::TokensInterchange]),
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
];

/// Moves in one call.
const MANY_MOVES: usize = 40;

/// A removed message does not come back, not even when its lease is over.
async fn remove(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let (start, lease) = (Instant::now(), c.timing().act_lease);
    let got = c.client().pull_with(&p, PullRequest::new(3, c.timing().soon, lease)).await?;
    let mut outcomes = Vec::new();
    for delivery in &got {
        outcomes.push(c.client().try_settle(delivery, Action::Remove).await?);
    }
    c.still_within(start, lease)?;
    c.equal(Clause::SettleOutcomes, &[], "the outcomes", &vec![SettleOutcome::Settled; 3], &outcomes)?;
    let never = c.timing().never_after(lease);
    c.client()
        .nothing(&p, never, Clause::SettleActions, "nothing after the removals, when the lease is long over")
        .await
}

/// Of a hundred removals every one is done.
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

/// A released message is available again at once, as often as it is released.
async fn release(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for round in 1..=4_u32 {
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::SettleActions, "the released message", &sent, &got)?;
        let count = if c.capabilities().delivery_count == DeliveryCount::ExceptReleases { 1 } else { round };
        counted(c, &got, count)?;
        let action = if round < 4 { Action::Release } else { Action::Remove };
        c.client().settle_all(&got, &action).await?;
    }
    Ok(())
}

/// A failed message comes back, counted, as often as it fails.
async fn retry(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for round in 1..=6_u32 {
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::SettleActions, "the failed message", &sent, &got)?;
        counted(c, &got, round)?;
        let action = if round < 6 { Action::Retry } else { Action::Remove };
        c.client().settle_all(&got, &action).await?;
    }
    Ok(())
}

/// Judges the delivery count, where the backend counts.
fn counted(c: &Context, got: &[Delivery], count: u32) -> CaseResult {
    if c.capabilities().delivery_count == DeliveryCount::None {
        return Ok(());
    }
    got.iter().try_for_each(|delivery| {
        c.equal(
            Clause::DeliveryCount,
            &[delivery.lease.id],
            "a delivery count of",
            &Some(count),
            &delivery.delivery_count,
        )
    })
}

async fn released_goes_first(c: &Context) -> CaseResult {
    goes_first(c, &Action::Release).await
}

async fn failed_goes_first(c: &Context) -> CaseResult {
    goes_first(c, &Action::Retry).await
}

/// What comes back goes ahead of what was never delivered.
async fn goes_first(c: &Context, action: &Action) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, action).await?;
    let got = c.client().take(&p, 4).await?;
    c.in_order(Clause::SettleActions, "the returned message ahead of those never delivered", &sent, &got)?;
    c.client().remove(&got).await
}

/// A postponed message goes behind all that is there.
async fn postponed_goes_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &c.messages(4, |_, message| message)).await?;
    let head = c.client().take(&p, 1).await?;
    c.client().settle_all(&head, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let got = c.client().take(&p, 4).await?;
    sent.rotate_left(1);
    c.in_order(Clause::SettleActions, "the postponed message behind the others", &sent, &got)?;
    c.client().remove(&got).await
}

/// A postponed message that is alone is delivered again, though it is the last.
async fn postponed_alone(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let got = c.client().take(&p, 1).await?;
    c.client().settle_all(&got, &Action::Postpone { delay: Duration::ZERO, headers: None }).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::SettleActions, "the postponed message", &sent, &got)?;
    c.client().remove(&got).await
}

/// A postponement may replace the headers, all of them; the payload stays.
async fn postpone_headers(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message().with_header("attempt", "1").with_header("gone", "soon");
    c.client().push(&p, &[message]).await?;
    for attempt in ["2", "3"] {
        let got = c.client().take(&p, 1).await?;
        let headers = Headers::from([("attempt".to_owned(), attempt.to_owned())]);
        let action = Action::Postpone { delay: Duration::ZERO, headers: Some(headers.clone()) };
        c.client().settle_all(&got, &action).await?;
        let [back] = c.client().take_exact(&p).await?;
        c.equal(Clause::ContentIntact, &[back.lease.id], "the headers", &headers, back.message.headers())?;
        c.client().settle_all(&[back], &Action::Release).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}

/// A moved message is in its new place, alone there, and its count starts anew.
async fn move_on(c: &Context) -> CaseResult {
    let (from, to) = (c.partition("from")?, c.partition("to")?);
    let sent = c.client().push(&from, &[c.message()]).await?;
    for _ in 0..2 {
        let got = c.client().take(&from, 1).await?;
        c.client().settle_all(&got, &Action::Retry).await?;
    }
    let got = c.client().take(&from, 1).await?;
    c.client().settle_all(&got, &Action::Move { to: to.clone(), headers: None }).await?;
    let moved = c.client().take(&to, 1).await?;
    c.in_order(Clause::SettleActions, "the moved message", &sent, &moved)?;
    counted(c, &moved, 1)?;
    c.client()
        .nothing(&from, c.timing().slack, Clause::SettleActions, "nothing left where it was moved from")
        .await?;
    c.client()
        .nothing(&to, c.timing().slack, Clause::SettleActions, "no second copy where it was moved to")
        .await?;
    c.client().remove(&moved).await
}

/// A move to the same partition puts the message at the end, and its count starts anew.
async fn move_to_itself(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let head = c.client().pull(&p, 1).await?;
    c.client().settle_all(&head, &Action::Move { to: p.clone(), headers: None }).await?;
    let got = c.client().take(&p, 3).await?;
    if Need::PushOrder.is_declared(c.capabilities()) {
        sent.rotate_left(1);
        c.in_order(Clause::SettleActions, "the moved message behind the others", &sent, &got)?;
    } else {
        c.same(Clause::SettleActions, "each message once", &sent, &got)?;
    }
    counted(c, &got, 1)?;
    c.client().remove(&got).await
}

/// Every way to settle.
fn actions(c: &Context) -> CaseResult<Vec<Action>> {
    let to = c.partition("elsewhere")?;
    Ok(vec![
        Action::Remove,
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to, headers: None },
    ])
}

/// A second settlement of the same delivery returns `Lost` and changes nothing, whatever the two were.
async fn twice(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    for first in actions(c)? {
        for second in actions(c)? {
            c.client().push(&p, &[c.message()]).await?;
            let got = c.client().take(&p, 1).await?;
            c.client().settle_all(&got, &first).await?;
            for delivery in &got {
                let outcome = c.client().try_settle(delivery, second.clone()).await?;
                let told = "the outcome of a second settlement";
                c.equal(Clause::SettleTwice, &[delivery.lease.id], told, &SettleOutcome::Lost, &outcome)?;
            }
            let left = match first {
                Action::Remove => continue,
                Action::Move { .. } => c.client().take(&elsewhere, 1).await?,
                _ => c.client().take(&p, 1).await?,
            };
            c.client().remove(&left).await?;
        }
    }
    c.client().nothing(&p, c.timing().slack, Clause::SettleTwice, "nothing resurrected").await?;
    c.client().nothing(&elsewhere, c.timing().slack, Clause::SettleTwice, "nothing resurrected").await
}

/// The same lease twice in one batch: the first is `Settled`, the second `Lost`.
async fn twice_in_one_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let [a, b] = c.client().take_exact(&p).await?;
    let batch =
        [settlement(&a, Action::Remove), settlement(&a, Action::Release), settlement(&b, Action::Remove)];
    let outcomes = c.client().storage().settle(&batch).await;
    let outcomes = c.ok(
        Clause::SettleOutcomes,
        "each settlement",
        outcomes.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
    )?;
    let expected = vec![SettleOutcome::Settled, SettleOutcome::Lost, SettleOutcome::Settled];
    c.equal(Clause::SettleTwice, &[a.lease.id], "the outcomes", &expected, &outcomes)?;
    c.client().nothing(&p, c.timing().slack, Clause::SettleTwice, "nothing left").await
}

/// A lease that nobody gave out settles nothing.
async fn wrong_token(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message()]).await?;
    let [got] = c.client().take_exact(&p).await?;
    let forged = Lease { token: Token::random(), ..got.lease.clone() };
    let forged = Delivery::new(forged, got.message.clone());
    for action in actions(c)? {
        let outcome = c.client().try_settle(&forged, action).await?;
        c.equal(
            Clause::Fencing,
            &[got.lease.id],
            "the outcome under a forged lease",
            &SettleOutcome::Lost,
            &outcome,
        )?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::Fencing, "the message still held").await?;
    c.client().remove(&[got]).await
}

/// Tokens that are none: the right one with something missing or added, and others of any length. (What is changed within may still
/// be proof: of a token that says where to look and what proves it, the first part is a hint.)
fn altered(right: &[u8]) -> Vec<Vec<u8>> {
    let (half, most) = (right.len() / 2, right.len().saturating_sub(1));
    let cut = |length: usize| right.iter().copied().take(length).collect::<Vec<_>>();
    let longer = [right, b"x"].concat();
    vec![Vec::new(), cut(half), cut(most), longer, vec![0; right.len()], vec![0xff; 64 * 1024]]
}

/// Nothing but the whole token proves a lease.
async fn altered_tokens(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message()]).await?;
    let [got] = c.client().take_exact(&p).await?;
    for token in altered(got.lease.token.as_bytes()) {
        let forged = Lease { token: Token::from_bytes(token), ..got.lease.clone() };
        let forged = Delivery::new(forged, got.message.clone());
        for action in [Action::Release, Action::Remove] {
            let outcome = c.client().try_settle(&forged, action).await?;
            c.equal(
                Clause::Fencing,
                &[got.lease.id],
                "the outcome under another token",
                &SettleOutcome::Lost,
                &outcome,
            )?;
        }
    }
    c.client().nothing(&p, c.timing().slack, Clause::Fencing, "the message still held").await?;
    c.client().remove(&[got]).await
}

/// A token proves what its pull claimed: shown with the id of what another pull claimed, it leaves that to who holds it. (What the token
/// itself is of may be settled by it. Within a pull nothing is crossed, as one pull may have one token for all.)
async fn crossed_tokens(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    // The history could not tell which of the two was meant.
    let storage = c.unseen().await?;
    for action in [Action::Remove, Action::Retry, Action::Release] {
        let pushed = storage.push(&p, &c.messages(2, |_, message| message)).await;
        c.ok(Clause::Stored, "a push", pushed.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
        let mut held = Vec::new();
        while held.len() < 2 {
            let request = PullRequest::new(1, c.timing().soon, c.timing().long_lease);
            let got = c.ok(Clause::PullBounds, "a pull", storage.pull(&p, request).await)?;
            c.check(Clause::PullBounds, &[], !got.is_empty(), "two deliveries", format!("{}", held.len()))?;
            held.extend(got);
        }
        let [one, other] = held.as_slice() else {
            return Err(c.failed(Clause::PullBounds, &[], "two deliveries", format!("{}", held.len())));
        };
        let crossed = Lease { token: other.lease.token.clone(), ..one.lease.clone() };
        let _ = storage.settle(&[Settlement { lease: crossed, action }]).await;
        let answers = storage.settle(&[settlement(one, Action::Remove)]).await;
        let answer = c.ok(
            Clause::SettleOutcomes,
            "a settlement",
            answers.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
        )?;
        let told = "a removal by who holds it, after another's token was shown for it,";
        c.equal(Clause::Fencing, &[], told, &vec![SettleOutcome::Settled], &answer)?;
        // The other is gone, held, or released.
        storage.settle(&[settlement(other, Action::Remove)]).await;
        let request = PullRequest::new(1, c.timing().slack, c.timing().long_lease);
        let back = c.ok(Clause::PullBounds, "a pull", storage.pull(&p, request).await)?;
        let wrong = back.iter().any(|delivery| delivery.lease.id == one.lease.id);
        c.check(Clause::Fencing, &[], !wrong, "no second delivery of what was removed", "it came again")?;
        let rest: Vec<_> = back.iter().map(|delivery| settlement(delivery, Action::Remove)).collect();
        storage.settle(&rest).await;
    }
    c.ok(Clause::Close, "close", storage.close().await)
}

/// What is refused in a batch, wherever it stands and for whatever reason, is refused alone.
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

/// Those that one call moves arrive in the order of the call, however many they are.
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

/// One batch with every kind of fate, of two partitions, in no order.
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
