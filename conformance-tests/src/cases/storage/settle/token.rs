//! Leases that are not, or no longer, the right ones.

use std::time::Duration;

use anyqueue::adapter::{Action, Lease, PullRequest, RawDelivery, Settlement, Token};
use anyqueue::{ExtendOutcome, SettleOutcome};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "settle.wrong_token", [SettleOutcomes, Fencing], wrong_token)
        .kills(&[Fault::TokenIgnored]),
    case!(Storage, "settle.altered_tokens", [SettleOutcomes, Fencing], altered_tokens)
        .kills(&[Fault::TokenByItsStart]),
    case!(Storage, "settle.crossed_tokens", [SettleOutcomes, Fencing], crossed_tokens)
        .needs(&[Need::Fencing])
        .kills(&[Fault::TokensInterchange]),
    case!(Storage, "settle.by_another_client", [SettleOutcomes, SettleActions], by_another_client)
        .needs(&[Need::PortableLease])
        .kills(&[Fault::MovedByItsPullerOnly]),
    case!(Storage, "settle.twice", [SettleTwice], twice).kills(&[Fault::SecondSettled]),
    case!(Storage, "settle.twice_in_one_batch", [SettleOutcomes, SettleTwice], twice_in_one_batch)
        .kills(&[Fault::SecondSettled]),
];

/// Every way to settle.
pub(in crate::cases) fn actions(c: &Context) -> CaseResult<Vec<Action>> {
    let to = c.partition("elsewhere")?;
    Ok(vec![
        Action::Remove,
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to, headers: None },
    ])
}

/// Any client that knows the lease can extend it and settle it in every way, even if another client pulled it
/// and is gone.
async fn by_another_client(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    for action in actions(c)? {
        let sent = c.client().push(&p, &[c.message()]).await?;
        let puller = c.fresh().await?;
        let [mut held] = puller.take_exact(&p).await?;
        // As it would travel to another process: as bytes.
        held.lease.token = Token::from_bytes(held.lease.token.as_bytes().to_vec());
        let extended = c.client().extend(&held, c.timing().long_lease).await?;
        c.equal(
            Clause::Extend,
            &sent,
            "an extension by another client",
            &ExtendOutcome::Extended,
            &extended,
        )?;
        let settled = c.client().try_settle(&held, action.clone()).await?;
        let told = format!("the outcome for another client ({action:?})");
        c.equal(Clause::SettleOutcomes, &sent, &told, &SettleOutcome::Settled, &settled)?;
        let again = puller.try_settle(&held, Action::Remove).await?;
        let told = "the outcome for who pulled it, afterwards";
        c.equal(Clause::SettleTwice, &sent, told, &SettleOutcome::Lost, &again)?;
        puller.close().await?;
        let left = match action {
            Action::Remove => continue,
            Action::Move { .. } => c.client().take(&elsewhere, 1).await?,
            _ => c.client().take(&p, 1).await?,
        };
        c.same(Clause::SettleActions, "what another client settled, where it belongs", &sent, &left)?;
        c.client().remove(&left).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::SettleActions, "nothing beside it").await
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

/// A lease that nobody issued settles nothing.
async fn wrong_token(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message()]).await?;
    let [got] = c.client().take_exact(&p).await?;
    let forged = Lease { token: Token::random(), ..got.lease.clone() };
    let forged = RawDelivery::new(forged, got.message.clone());
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

/// Returns tokens that are invalid: the right one with something missing or added, and others of any length.
/// (A token with changed bytes in the middle may still be proof: if one part says where to look and another
/// proves it, the first part is only a hint.)
fn altered(right: &[u8]) -> Vec<Vec<u8>> {
    let (half, most) = (right.len() / 2, right.len().saturating_sub(1));
    let cut = |length: usize| right.iter().copied().take(length).collect::<Vec<_>>();
    let longer = [right, b"x"].concat();
    vec![Vec::new(), cut(half), cut(most), longer, vec![0; right.len()], vec![0xff; 64 * 1024]]
}

/// Only the whole token proves a lease.
async fn altered_tokens(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message()]).await?;
    let [got] = c.client().take_exact(&p).await?;
    for token in altered(got.lease.token.as_bytes()) {
        let forged = Lease { token: Token::from_bytes(token), ..got.lease.clone() };
        let forged = RawDelivery::new(forged, got.message.clone());
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

/// A token proves what its pull claimed: used with the id of a message that another pull claimed, it leaves
/// that message to its holder. (The token's own message may be settled by it. Within a pull nothing is
/// crossed, as one pull may have one token for all.)
async fn crossed_tokens(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    // The history could not know which of the two was meant.
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
        let _ = storage.settle(&[Settlement::new(crossed, action)]).await;
        let answers = storage.settle(&[settlement(one, Action::Remove)]).await;
        let answer = c.ok(
            Clause::SettleOutcomes,
            "a settlement",
            answers.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
        )?;
        let told = "a removal by who holds it, after another's token was shown for it,";
        c.equal(Clause::Fencing, &[], told, &vec![SettleOutcome::Settled], &answer)?;
        // The other message is gone, held, or released.
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
