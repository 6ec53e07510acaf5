//! Leases: one owner until the lease ends, and anybody soon after.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, DeliveryCount, Extension, PullRequest, RawDelivery};
use anyqueue::{ExtendOutcome, PartitionId, SettleOutcome};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "lease.invisible_until_end", [Exclusive, LeaseEnd], invisible_until_end)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseNeverExpires, Fault::LeaseHalved, Fault::LeaseUntilTooLate, Fault::AutoAck]),
    case!(Storage, "lease.nobody_else", [Exclusive], nobody_else).kills(&[Fault::SharedDelivery]),
    case!(Storage, "lease.chosen_per_pull", [LeaseEnd], chosen_per_pull)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseNeverExpires, Fault::CountPerClient]),
    case!(Storage, "lease.end_apart", [LeaseEnd], end_apart)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseHalved]),
    case!(Storage, "lease.batch_is_independent", [LeaseEnd], batch_is_independent)
        .kills(&[Fault::LeasePerBatch, Fault::InitReleasesLeased]),
    case!(Storage, "lease.extend_holds", [Extend], extend_holds)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendDoesNothing]),
    case!(Storage, "lease.extend_moves_the_end", [Extend], extend_moves_the_end)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendDoesNothing, Fault::ExtendNeverShortens, Fault::ExtendAddsUp]),
    case!(Storage, "lease.extend_many", [Extend], extend_many)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendsFirstHundred, Fault::ExtendsOnePartition]),
    case!(Storage, "lease.extend_tells_loss", [Extend], extend_tells_loss)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendNeverLost]),
    case!(Storage, "lease.extend_after_settling", [SettleTwice, Extend], extend_after_settling)
        .kills(&[Fault::ExtendNeverLost]),
    case!(Storage, "lease.ended_is_lost", [LeaseEnd, Extend], ended_is_lost)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::EndedStillGood, Fault::FirstLeaseForAll]),
    case!(Storage, "lease.stale_settlements", [Fencing], stale_settlements)
        .needs(&[Need::TimedLease, Need::Fencing])
        .kills(&[Fault::StaleRemoves, Fault::StaleRetryCopies]),
    case!(Storage, "lease.stale_of_ones_own", [Fencing], stale_of_ones_own)
        .needs(&[Need::TimedLease, Need::Fencing])
        .kills(&[Fault::TokenPerClient]),
    case!(Storage, "lease.expiry_counts", [DeliveryCount], expiry_counts)
        .needs(&[Need::TimedLease, Need::DeliveryCount])
        .kills(&[Fault::CountStuck, Fault::LeaseNeverExpires, Fault::SecondLeaseEndless]),
    case!(Storage, "lease.expired_go_first", [SettleActions, LeaseEnd], expired_go_first)
        .needs(&[Need::TimedLease, Need::RequeueFront, Need::PushOrder])
        .kills(&[Fault::LeaseNeverExpires]),
    case!(Storage, "lease.extend_one_of_two", [LeaseEnd, Extend], extend_one_of_two)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendTakesBatch]),
];

/// How many messages of each partition one call extends.
const MANY: usize = 110;

/// A message that is held and not settled goes to another client: not before the lease ends, and soon after.
async fn invisible_until_end(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let start = Instant::now();
    let held = hold(c, &p, c.timing().lease).await?;
    let latest = c.timing().latest(c.timing().lease);
    let got = other.pull_with(&p, other.request(1, latest)).await?;
    c.in_order(Clause::LeaseEnd, "the message whose lease ended", &sent, &got)?;
    c.in_order(Clause::LeaseEnd, "the message, held first", &sent, &held)?;
    // The claim happened between `start` and its answer, so the end is at least `lease` after `start`.
    c.took(
        Clause::LeaseEnd,
        &sent,
        "its return",
        start.elapsed(),
        (c.timing().lease, latest + c.timing().soon),
    )?;
    other.remove(&got).await
}

/// Pulls one message under this lease.
async fn hold(c: &Context, p: &PartitionId, lease: Duration) -> CaseResult<Vec<RawDelivery>> {
    let got = c.client().pull_with(p, PullRequest::new(1, c.timing().soon, lease)).await?;
    c.equal(Clause::PullBounds, &[], "the number of deliveries", &1, &got.len())?;
    Ok(got)
}

/// While one client holds a message, no other gets it, however many ask.
async fn nobody_else(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (b, d) = (c.fresh().await?, c.fresh().await?);
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let held = c.client().take(&p, 3).await?;
    let watch = |client: Client| {
        let p = p.clone();
        async move {
            client.nothing(&p, c.timing().never(), Clause::Exclusive, "nothing while somebody holds it").await
        }
    };
    let (mine, b, d) = futures_util::join!(watch(c.client().clone()), watch(b), watch(d));
    mine.and(b).and(d)?;
    c.client().remove(&held).await
}

/// Each pull chooses its own lease.
async fn chosen_per_pull(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let long = c.client().pull(&p, 1).await?;
    let short = hold(c, &p, c.timing().lease).await?;
    let other = c.fresh().await?;
    let back = other.pull_with(&p, other.request(2, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::LeaseEnd, "only the message with the short lease", &ids(&short), &back)?;
    other.remove(&back).await?;
    c.client().remove(&long).await
}

/// Leases that began at different times end at different times.
async fn end_apart(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (other, lease) = (c.fresh().await?, c.timing().lease * 2);
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    // On a slow machine a lease may be over before the last one begins: then its message comes again, and its
    // time counts from there.
    let mut begun = BTreeMap::new();
    while begun.len() < 3 {
        let since = Instant::now();
        for id in ids(&hold(c, &p, lease).await?) {
            if let Some(before) = begun.insert(id, since) {
                let bounds = (lease, Duration::MAX);
                c.took(
                    Clause::LeaseEnd,
                    &[id],
                    "its return",
                    Instant::now().saturating_duration_since(before),
                    bounds,
                )?;
            }
        }
        tokio::time::sleep(c.timing().lease / 2).await;
    }
    for came in 0..3 {
        let got = other.pull_with(&p, other.request(1, c.timing().latest(lease))).await?;
        let at = Instant::now();
        c.equal(Clause::LeaseEnd, &[], &format!("after {came} the number of messages back"), &1, &got.len())?;
        for id in ids(&got) {
            let held_for = begun.get(&id).map(|since| at.saturating_duration_since(*since));
            let bounds = (lease, c.timing().latest(lease + c.timing().soon));
            c.took(Clause::LeaseEnd, &[id], "its return", held_for.unwrap_or_default(), bounds)?;
        }
        other.remove(&got).await?;
    }
    Ok(())
}

/// Returning one delivery of a pull leaves the others with their holder.
async fn batch_is_independent(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    let [first, second, third] = c.client().take_exact(&p).await?;
    c.client().settle_all(std::slice::from_ref(&second), &Action::Release).await?;
    let other = c.fresh().await?;
    let back = other.take(&p, 1).await?;
    c.in_order(Clause::LeaseEnd, "only the one that was returned", &[second.lease.id], &back)?;
    other.nothing(&p, c.timing().slack, Clause::LeaseEnd, "the rest of the batch still held").await?;
    c.client().remove(&[first, third]).await?;
    other.remove(&back).await
}

/// An extended lease holds until its new end, and no longer.
async fn extend_holds(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (other, lease) = (c.fresh().await?, c.timing().act_lease);
    let sent = c.client().push(&p, &[c.message()]).await?;
    let start = Instant::now();
    let held = hold(c, &p, lease).await?;
    let extended_from = Instant::now();
    let outcome = extend_all(c, &held, lease * 2).await?;
    c.still_within(start, lease)?;
    c.equal(Clause::Extend, &sent, "the outcome", &vec![ExtendOutcome::Extended], &outcome)?;
    let got = other.pull_with(&p, other.request(1, c.timing().latest(lease * 2))).await?;
    let bounds = (lease * 2, c.timing().latest(lease * 2) + c.timing().soon);
    c.in_order(Clause::Extend, "the message, after its extended lease", &sent, &got)?;
    c.took(Clause::Extend, &sent, "its return", extended_from.elapsed(), bounds)?;
    other.remove(&got).await
}

async fn extend_all(c: &Context, held: &[RawDelivery], duration: Duration) -> CaseResult<Vec<ExtendOutcome>> {
    let mut outcomes = Vec::new();
    for delivery in held {
        outcomes.push(c.client().extend(delivery, duration).await?);
    }
    Ok(outcomes)
}

/// An extension sets the end to now + its duration: it can also make the lease end earlier.
async fn extend_moves_the_end(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let held = c.client().pull(&p, 1).await?;
    let outcome = extend_all(c, &held, c.timing().lease).await?;
    c.equal(Clause::Extend, &sent, "the outcome", &vec![ExtendOutcome::Extended], &outcome)?;
    let got = other.pull_with(&p, other.request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::Extend, "the message, after its shortened lease", &sent, &got)?;
    other.remove(&got).await
}

/// Lets the first client's lease expire, and another client take the message.
async fn lose(c: &Context, p: &PartitionId, other: &Client) -> CaseResult<(RawDelivery, Vec<RawDelivery>)> {
    let sent = c.client().push(p, &[c.message()]).await?;
    let held = hold(c, p, c.timing().lease).await?;
    let got = other.pull_with(p, other.request(1, c.timing().latest(c.timing().lease))).await?;
    c.in_order(Clause::LeaseEnd, "the message whose lease ended", &sent, &got)?;
    let [lost] =
        held.try_into().map_err(|_| c.failed(Clause::PullBounds, &sent, "one delivery", "another number"))?;
    Ok((lost, got))
}

/// One call extends as many messages as it may have, of several partitions.
async fn extend_many(c: &Context) -> CaseResult {
    let (places, lease) = ([c.partition("work")?, c.partition("other")?], c.timing().act_lease);
    let count = (c.capabilities().limits.settle_batch / 2).clamp(1, MANY);
    let (mut held, start) = (Vec::new(), Instant::now());
    for p in &places {
        c.client().push(p, &c.messages(count, |_, message| message)).await?;
    }
    for p in &places {
        let taken = c.client().take(p, count).await?;
        held.extend(taken);
    }
    let to = |duration| held.iter().map(move |held| Extension { lease: held.lease.clone(), duration });
    // First the leases are made short, each on its own in small calls; then one call makes all of them long.
    for few in to(lease).collect::<Vec<_>>().chunks(10) {
        extended(c, few).await?;
    }
    let short = start.elapsed();
    for batch in to(c.timing().long_lease).collect::<Vec<_>>().chunks(c.capabilities().limits.settle_batch) {
        extended(c, batch).await?;
    }
    c.still_within(start + short, lease)?;
    tokio::time::sleep(c.timing().never_after(lease)).await;
    for p in &places {
        c.client()
            .nothing(p, c.timing().slack, Clause::Extend, "nothing, as all of them were extended")
            .await?;
    }
    c.client().remove(&held).await
}

async fn extended(c: &Context, extensions: &[Extension]) -> CaseResult {
    let answers = c.client().storage().extend(extensions).await;
    let answers =
        c.ok(Clause::Extend, "extending", answers.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    c.equal(Clause::Extend, &[], "the extensions", &vec![ExtendOutcome::Extended; extensions.len()], &answers)
}

/// A client that lost a lease learns of it by extending.
async fn extend_tells_loss(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let (lost, owned) = lose(c, &p, &other).await?;
    let outcome = c.client().extend(&lost, c.timing().lease).await?;
    c.equal(
        Clause::Extend,
        &[lost.lease.id],
        "the outcome of extending a lost lease",
        &ExtendOutcome::Lost,
        &outcome,
    )?;
    other.nothing(&p, c.timing().never(), Clause::Fencing, "the new owner's lease as it was").await?;
    other.remove(&owned).await
}

/// After a settlement there is nothing to extend.
async fn extend_after_settling(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for action in [Action::Remove, Action::Release, Action::Retry] {
        c.client().push(&p, &[c.message()]).await?;
        let held = c.client().take(&p, 1).await?;
        c.client().settle_all(&held, &action).await?;
        let outcome = extend_all(c, &held, c.timing().long_lease).await?;
        c.equal(
            Clause::Extend,
            &[],
            "the outcome of extending after settling",
            &vec![ExtendOutcome::Lost],
            &outcome,
        )?;
        if action != Action::Remove {
            let back = c.client().take(&p, 1).await?;
            c.client().remove(&back).await?;
        }
    }
    Ok(())
}

/// A lease that has ended is lost, even if nobody has taken the message since.
async fn ended_is_lost(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    let held = hold(c, &p, c.timing().lease).await?;
    tokio::time::sleep(c.timing().never()).await;
    let outcome = extend_all(c, &held, c.timing().long_lease).await?;
    c.equal(
        Clause::Extend,
        &sent,
        "the outcome of extending an ended lease",
        &vec![ExtendOutcome::Lost],
        &outcome,
    )?;
    for delivery in &held {
        let outcome = c.client().try_settle(delivery, Action::Remove).await?;
        c.equal(Clause::LeaseEnd, &sent, "the outcome under an ended lease", &SettleOutcome::Lost, &outcome)?;
    }
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::LeaseEnd, "the message, for the next", &sent, &got)?;
    c.client().remove(&got).await
}

/// Settling under a lost lease returns `Lost` and does nothing to the new owner's message.
async fn stale_settlements(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    let other = c.fresh().await?;
    let (lost, owned) = lose(c, &p, &other).await?;
    let about = [lost.lease.id];
    for action in [
        Action::Release,
        Action::Retry,
        Action::Postpone { delay: Duration::ZERO, headers: None },
        Action::Move { to: elsewhere.clone(), headers: None },
        Action::Remove,
    ] {
        let outcome = c.client().try_settle(&lost, action).await?;
        c.equal(Clause::Fencing, &about, "the outcome under a lost lease", &SettleOutcome::Lost, &outcome)?;
    }
    other
        .nothing(
            &p,
            c.timing().slack,
            Clause::Fencing,
            "the message still with its new owner, and no copy of it",
        )
        .await?;
    other.nothing(&elsewhere, c.timing().slack, Clause::Fencing, "no copy elsewhere").await?;
    for delivery in &owned {
        let outcome = other.try_settle(delivery, Action::Retry).await?;
        c.equal(Clause::Fencing, &about, "the new owner's outcome", &SettleOutcome::Settled, &outcome)?;
    }
    let back = other.take(&p, 1).await?;
    other.remove(&back).await
}

/// A lost lease stays lost, even for a consumer that has the message again.
async fn stale_of_ones_own(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let (lost, owned) = lose(c, &p, c.client()).await?;
    let outcome = c.client().try_settle(&lost, Action::Remove).await?;
    c.equal(
        Clause::Fencing,
        &[lost.lease.id],
        "the outcome under the lost lease",
        &SettleOutcome::Lost,
        &outcome,
    )?;
    c.client().remove(&owned).await
}

/// A delivery that ended with its lease counts like any other.
async fn expiry_counts(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &[c.message()]).await?;
    for round in 1..=3_u32 {
        let request = PullRequest::new(1, c.timing().latest(c.timing().lease), c.timing().lease);
        let got = c.client().pull_with(&p, request).await?;
        c.in_order(Clause::LeaseEnd, "the message whose lease ended", &sent, &got)?;
        let counts: Vec<_> = got.iter().map(|delivery| delivery.delivery_count).collect();
        let known = c.capabilities().delivery_count != DeliveryCount::None;
        c.equal(Clause::DeliveryCount, &sent, "a delivery count of", &vec![known.then_some(round)], &counts)?;
    }
    Ok(())
}

/// Messages that came back by expiry go ahead of those that were never delivered.
async fn expired_go_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(3, |_, message| message)).await?;
    hold(c, &p, c.timing().lease).await?;
    tokio::time::sleep(c.timing().never()).await;
    let got = c.client().take(&p, 3).await?;
    c.in_order(Clause::SettleActions, "the expired message ahead of those never delivered", &sent, &got)?;
    c.client().remove(&got).await
}

async fn extend_one_of_two(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let (start, lease) = (Instant::now(), c.timing().act_lease);
    let held =
        c.client().pull_with(&p, anyqueue::adapter::PullRequest::new(2, c.timing().soon, lease)).await?;
    let [first, second] = held.as_slice() else {
        return Err(c.failed(Clause::ReadyAtOnce, &sent, "both in one pull", format!("{}", held.len())));
    };
    c.client().extend(first, c.timing().long_lease).await?;
    c.still_within(start, lease)?;
    let got = c.client().pull_with(&p, c.client().request(2, c.timing().latest(lease))).await?;
    c.in_order(Clause::Extend, "only the one that was not extended", &[second.lease.id], &got)?;
    c.client().remove(&got).await?;
    c.client().remove(std::slice::from_ref(first)).await
}
