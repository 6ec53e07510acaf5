//! What core ends by itself: messages with too many deliveries, and expired ones.

use std::time::Duration;

use anyqueue::{Expired, MessageId, PartitionId, Queue, QueueMessageStatus as Status, header};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_limits.max_deliveries", [DeliveryCount], max_deliveries)
        .needs(&[Need::DeliveryCount])
        .kills(&[Fault::CountStuck, Fault::DeadVanish]),
    case!(Queue, "queue_limits.expired_leases_count", [DeliveryCount, LeaseEnd], expired_leases_count)
        .needs(&[Need::DeliveryCount, Need::TimedLease])
        .kills(&[Fault::CountStuck, Fault::LeaseNeverExpires]),
    case!(Queue, "queue_limits.releases_do_not_kill", [DeliveryCount], releases_do_not_kill)
        .kills(&[Fault::CountStuck])
        .needs(&[Need::DeliveryCount]),
    case!(
        Queue,
        "queue_limits.releases_of_others_do_not_kill",
        [DeliveryCount],
        releases_of_others_do_not_kill
    )
    .kills(&[Fault::ReleaseCounts])
    .needs(&[Need::ReleasesTold]),
    case!(Queue, "queue_limits.postponements_do_not_kill", [DeliveryCount], postponements_do_not_kill)
        .kills(&[Fault::CountStuck])
        .needs(&[Need::DeliveryCount]),
    case!(
        Queue,
        "queue_limits.starts_anew_after_redrive",
        [DeliveryCount, DeadLetters],
        starts_anew_after_redrive
    )
    .needs(&[Need::DeliveryCount])
    .kills(&[Fault::MoveKeepsCount]),
    case!(Queue, "queue_limits.poison_does_not_block", [DeliveryCount, NoStarvation], poison_does_not_block)
        .kills(&[Fault::CountStuck])
        .needs(&[Need::DeliveryCount]),
    case!(Queue, "queue_limits.expired_is_removed", [Expiry], expired_is_removed)
        .kills(&[Fault::AgeZero, Fault::BatchSortedById]),
    case!(Queue, "queue_limits.expired_is_dead_lettered", [Expiry], expired_is_dead_lettered)
        .kills(&[Fault::AgeZero]),
    case!(Queue, "queue_limits.expires_while_failing", [Expiry], expires_while_failing)
        .kills(&[Fault::AgeZero]),
];

/// Delivers one message and settles it until it comes no more; returns how often it came.
async fn fail_until_dead(c: &Context, queue: &Queue, p: &PartitionId, limit: u32) -> CaseResult<u32> {
    let mut times = 0;
    loop {
        let got = c.ok(Clause::DeliveryCount, "a pull", queue.pull(p).wait(c.timing().soon).await)?;
        let Some(mut handler) = got.into_iter().next() else { return Ok(times) };
        times += 1;
        let about = [handler.id()];
        c.check(
            Clause::DeliveryCount,
            &about,
            times <= limit,
            format!("at most {limit} deliveries"),
            format!("delivery {times}"),
        )?;
        c.settle(&mut handler, Status::Failed).await?;
    }
}

/// Judges that exactly this message is dead, and why; removes it.
async fn is_dead(c: &Context, queue: &Queue, p: &PartitionId, id: MessageId, why: &str) -> CaseResult {
    let mut held = c.hold(queue, &p.dead_letters(), 1).await?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::DeadLetters, "dead once").await?;
    c.equal(Clause::DeadLetters, &[id], "the dead letter", &vec![id], &handler_ids(&held))?;
    let reason =
        held.first().and_then(|dead| dead.headers().get(header::DEAD_REASON)).cloned().unwrap_or_default();
    c.check(Clause::DeadLetters, &[id], reason.contains(why), format!("a reason with {why:?}"), reason)?;
    c.processed(queue, &mut held).await
}

async fn one(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult<MessageId> {
    let task = c.message();
    let id = task.id();
    c.store(queue, p, vec![task]).await?;
    Ok(id)
}

/// A message comes as often as the limit says, then it is dead, once.
async fn max_deliveries(c: &Context) -> CaseResult {
    for limit in [1, 3] {
        let p = c.partition(&format!("limit{limit}"))?;
        let queue = c.queue_with(c.long_options().with_max_deliveries(Some(limit)))?;
        let id = one(c, &queue, &p).await?;
        let times = fail_until_dead(c, &queue, &p, limit).await?;
        c.equal(Clause::DeliveryCount, &[id], "the number of deliveries", &limit, &times)?;
        is_dead(c, &queue, &p, id, "deliver").await?;
    }
    Ok(())
}

/// Leases that ended without a settlement count too, as when each consumer was killed.
async fn expired_leases_count(c: &Context) -> CaseResult {
    let (p, lease) = (c.partition("work")?, c.timing().lease);
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(2)))?;
    let id = one(c, &queue, &p).await?;
    for _ in 0..2 {
        let wait = c.timing().latest(lease);
        let pulled = queue.pull(&p).wait(wait).lease(lease).keep_alive(false).await;
        let held = c.ok(Clause::DeliveryCount, "a pull", pulled)?;
        c.equal(Clause::DeliveryCount, &[id], "the delivery", &vec![id], &handler_ids(&held))?;
        for handler in &held {
            handler.lost().cancelled().await;
        }
    }
    let none = c.ok(Clause::DeliveryCount, "a pull", queue.pull(&p).wait(c.timing().latest(lease)).await)?;
    c.check(Clause::DeliveryCount, &[id], none.is_empty(), "no third delivery", format!("{none:?}"))?;
    is_dead(c, &queue, &p, id, "deliver").await
}

/// Releasing a message, in whichever way, never leads to the dead letters.
async fn releases_do_not_kill(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(3)))?;
    let id = one(c, &queue, &p).await?;
    for round in 0..12 {
        let mut handler = c.hold_one(&queue, &p).await?;
        match round % 3 {
            0 => c.settle(&mut handler, Status::Waiting).await?,
            1 => c.settle(&mut handler, Status::Running).await?,
            _ => drop(handler),
        }
    }
    let times = fail_until_dead(c, &queue, &p, 3).await?;
    c.equal(Clause::DeliveryCount, &[id], "the number of deliveries after releases", &3, &times)?;
    is_dead(c, &queue, &p, id, "deliver").await
}

/// Neither do releases by other processes, of which this process knows nothing.
async fn releases_of_others_do_not_kill(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.queue_with(c.long_options().with_max_deliveries(None))?;
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(2)))?;
    let id = one(c, &queue, &p).await?;
    for _ in 0..2 {
        for _ in 0..8 {
            let mut handler = c.hold_one(&other, &p).await?;
            c.settle(&mut handler, Status::Waiting).await?;
        }
        let handler = c.hold_one(&queue, &p).await?;
        c.equal(Clause::DeliveryCount, &[id], "the message that others released", &id, &handler.id())?;
        drop(handler);
    }
    let mut held = c.hold(&queue, &p, 1).await?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::DeliveryCount, "never dead").await
}

/// Neither does postponing it.
async fn postponements_do_not_kill(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(2)))?;
    let id = one(c, &queue, &p).await?;
    for _ in 0..8 {
        let mut handler = c.hold_one(&queue, &p).await?;
        c.settle(&mut handler, Status::postponed(Duration::ZERO)).await?;
    }
    let times = fail_until_dead(c, &queue, &p, 2).await?;
    c.equal(Clause::DeliveryCount, &[id], "the number of deliveries after postponements", &2, &times)?;
    is_dead(c, &queue, &p, id, "deliver").await
}

/// After a redrive the limit counts from the start: neither more nor fewer, whatever happened to the message
/// before.
async fn starts_anew_after_redrive(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(2)))?;
    let id = one(c, &queue, &p).await?;
    for _ in 0..4 {
        let mut handler = c.hold_one(&queue, &p).await?;
        c.settle(&mut handler, Status::Waiting).await?;
    }
    for round in 0..2 {
        let times = fail_until_dead(c, &queue, &p, 2).await?;
        let what = format!(
            "{round} times put back, it dies after deliveries (fewer: the count went on, or one was claimed that nobody was handed):"
        );
        c.equal(Clause::DeliveryCount, &[id], &what, &2, &times)?;
        let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
        // Refused once, so that it is released before it is put back.
        c.ok(Clause::DeadLetters, "redrive", letters.redrive().filter(|_| false).await)?;
        let mut looked = c.hold_one(&queue, &p.dead_letters()).await?;
        c.settle(&mut looked, Status::Waiting).await?;
        drop(c.hold_one(&queue, &p.dead_letters()).await?);
        let dead = c.hold_one(&queue, &p.dead_letters()).await?;
        c.equal(Clause::DeadLetters, &[id], "the dead letter", &id, &dead.id())?;
        drop(dead);
        redriven(c, &queue, &p).await?;
    }
    c.same_ids(Clause::DeadLetters, "the message", &[id], &c.drain(&queue, &p, c.timing().slack).await?)
}

/// Redrives the only dead letter, as soon as it is released.
async fn redriven(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult {
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(p))?;
    let deadline = std::time::Instant::now() + c.timing().soon;
    while c.ok(Clause::DeadLetters, "redrive", letters.redrive().await)?.moved == 0 {
        let late = std::time::Instant::now() > deadline;
        c.check(Clause::DeadLetters, &[], !late, "the dead letter to be put back", "it was not there")?;
        tokio::time::sleep(c.timing().slack).await;
    }
    Ok(())
}

/// A message that goes to the dead letters does not cost the others a pull.
async fn poison_does_not_block(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_with(c.long_options().with_max_deliveries(Some(1)))?;
    let poison = one(c, &queue, &p).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    c.settle(&mut handler, Status::Failed).await?;
    let good = c.store(&queue, &p, vec![c.message()]).await?;
    let mut got = c.ok(Clause::DeliveryCount, "a pull", queue.pull(&p).wait(c.timing().soon).await)?;
    c.same_ids(Clause::DeliveryCount, "the good message by the same pull", &good, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await?;
    is_dead(c, &queue, &p, poison, "deliver").await
}

/// An expired message reaches no handler; one that has not expired does.
async fn expired_is_removed(c: &Context) -> CaseResult {
    let (p, queue, ttl) = (c.partition("work")?, c.queue()?, c.timing().lease);
    let fresh = c.message().with_time_to_live(c.timing().long_lease);
    let (first, last) = (c.message().with_time_to_live(ttl), c.message().with_time_to_live(ttl));
    let id = fresh.id();
    c.store(&queue, &p, vec![first, fresh, last]).await?;
    tokio::time::sleep(ttl + c.timing().slack).await;
    let got = c.drain(&queue, &p, c.timing().never()).await?;
    c.same_ids(Clause::Expiry, "the one that has not expired", &[id], &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Expiry, "the expired removed").await?;
    c.client()
        .nothing(&p.dead_letters(), c.timing().slack, Clause::Expiry, "the expired removed, not dead")
        .await
}

/// If configured so, an expired message becomes a dead letter, and is delivered again after a redrive.
async fn expired_is_dead_lettered(c: &Context) -> CaseResult {
    let (p, ttl) = (c.partition("work")?, c.timing().lease);
    let queue = c.queue_with(c.long_options().with_expired(Expired::DeadLetter))?;
    let task = c.message().with_time_to_live(ttl);
    let id = task.id();
    c.store(&queue, &p, vec![task]).await?;
    tokio::time::sleep(ttl + c.timing().slack).await;
    let none = c.ok(Clause::Expiry, "a pull", queue.pull(&p).wait(c.timing().slack).await)?;
    c.check(Clause::Expiry, &[id], none.is_empty(), "no delivery of what has expired", format!("{none:?}"))?;
    let dead = c.hold_one(&queue, &p.dead_letters()).await?;
    c.equal(Clause::Expiry, &[id], "the dead letter", &id, &dead.id())?;
    let reason = dead.headers().get(header::DEAD_REASON).cloned().unwrap_or_default();
    c.check(Clause::Expiry, &[id], reason.contains("expired"), "a reason with \"expired\"", reason)?;
    drop(dead);
    redriven(c, &queue, &p).await?;
    c.same_ids(
        Clause::Expiry,
        "the message, after its redrive",
        &[id],
        &c.drain(&queue, &p, c.timing().slack).await?,
    )
}

/// A message can expire between two deliveries.
async fn expires_while_failing(c: &Context) -> CaseResult {
    let (p, queue, ttl) = (c.partition("work")?, c.queue()?, c.timing().soon);
    let task = c.message().with_time_to_live(ttl);
    let id = task.id();
    c.store(&queue, &p, vec![task]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    c.check(
        Clause::Expiry,
        &[id],
        handler.age() < ttl,
        "an age below its time to live",
        format!("{:?}", handler.age()),
    )?;
    c.settle(&mut handler, Status::Failed).await?;
    tokio::time::sleep(ttl + c.timing().slack).await;
    let got = c.ok(Clause::Expiry, "a pull", queue.pull(&p).wait(c.timing().slack).await)?;
    c.check(Clause::Expiry, &[id], got.is_empty(), "no delivery of what has expired", format!("{got:?}"))?;
    c.client().nothing(&p, c.timing().slack, Clause::Expiry, "the expired removed").await
}
