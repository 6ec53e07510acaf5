//! A client whose clock is set while it works, an hour forward or back: what it waits for, holds and has
//! postponed continues as before.

use std::time::{Duration, Instant};

use anyqueue::{Clock, ClockSetter, MessageId, Queue, QueueMessageStatus as Status, Skew};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::punctual::if_punctual;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "steps.delays", [ServerTime, Delays], delays)
        .needs(&[Need::SkewedClient, Need::PushDelay])
        .kills(&[Fault::DueByWallClock]),
    case!(Queue, "steps.postponements", [ServerTime, Delays], postponements)
        .needs(&[Need::SkewedClient, Need::PostponeDelay])
        .kills(&[Fault::DueByWallClock]),
    case!(Queue, "steps.leases", [LeaseEnd, ServerTime], leases)
        .needs(&[Need::SkewedClient])
        .kills(&[Fault::LeaseByWallClock]),
    case!(Queue, "steps.waits", [PullWait, ServerTime], waits)
        .needs(&[Need::SkewedClient])
        .kills(&[Fault::WaitByWallClock]),
];

const HOUR: Duration = Duration::from_hours(1);
const STEPS: [Skew; 2] = [Skew::Ahead(HOUR), Skew::Behind(HOUR)];

/// Creates a queue whose client and core share a clock that can be set.
async fn settable(c: &Context) -> CaseResult<(Queue, ClockSetter)> {
    let (clock, setter) = Clock::system().settable();
    let client = c.fresh_skewed(clock.clone()).await?;
    Ok((c.queue_over(&client, |builder| builder.clock(clock))?, setter))
}

/// Judges that a message postponed at `start` comes when the delay is over, to the client whose clock was set
/// meanwhile.
async fn comes(c: &Context, queue: &Queue, sent: &[MessageId], start: Instant) -> CaseResult {
    let (p, delay) = (c.partition("work")?, c.timing().delay);
    let mut got = c.ok(Clause::PullBounds, "a pull", queue.pull(&p).wait(c.timing().latest(delay)).await)?;
    c.same_ids(Clause::ServerTime, "the message when it is due", sent, &handler_ids(&got))?;
    let bounds = (delay, c.timing().latest(delay) + c.timing().soon);
    c.took(Clause::Delays, sent, "its delivery", start.elapsed(), bounds)?;
    c.processed(queue, &mut got).await
}

async fn delays(c: &Context) -> CaseResult {
    let (p, (queue, setter)) = (c.partition("work")?, settable(c).await?);
    for step in STEPS {
        let start = Instant::now();
        let sent = c.store(&queue, &p, vec![c.message().with_delay(c.timing().delay)]).await?;
        setter.set(step);
        comes(c, &queue, &sent, start).await?;
    }
    Ok(())
}

async fn postponements(c: &Context) -> CaseResult {
    let (p, (queue, setter)) = (c.partition("work")?, settable(c).await?);
    for step in STEPS {
        let sent = c.store(&queue, &p, vec![c.message()]).await?;
        let mut held = c.hold_one(&queue, &p).await?;
        let start = Instant::now();
        c.settle(&mut held, Status::postponed(c.timing().delay)).await?;
        setter.set(step);
        comes(c, &queue, &sent, start).await?;
    }
    Ok(())
}

/// A client that goes on working keeps what it holds for longer than its lease, and settles it.
async fn leases(c: &Context) -> CaseResult {
    // Heartbeats come every third of a lease.
    if_punctual(c.timing().act_lease / 3, keep_leases(c)).await
}

async fn keep_leases(c: &Context) -> CaseResult {
    let (p, (queue, setter), other) = (c.partition("work")?, settable(c).await?, c.queue()?);
    for step in STEPS {
        let sent = c.store(&queue, &p, vec![c.message()]).await?;
        let lease = c.timing().act_lease;
        let mut held =
            c.ok(Clause::PullBounds, "a pull", queue.pull(&p).wait(c.timing().soon).lease(lease).await)?;
        c.same_ids(Clause::PullBounds, "the message", &sent, &handler_ids(&held))?;
        setter.set(step);
        let stolen = c.ok(Clause::LeaseEnd, "a pull", other.pull(&p).wait(lease + c.timing().slack).await)?;
        c.check(
            Clause::LeaseEnd,
            &sent,
            stolen.is_empty(),
            "nothing for anybody else",
            format!("{stolen:?}"),
        )?;
        c.processed(&queue, &mut held).await?;
    }
    Ok(())
}

/// A pull that waits goes on waiting, gets what comes, and ends when its time is over.
async fn waits(c: &Context) -> CaseResult {
    let (p, (queue, setter), wait) = (c.partition("work")?, settable(c).await?, c.timing().delay);
    for step in STEPS {
        let start = Instant::now();
        let step_meanwhile = async {
            tokio::time::sleep(wait / 3).await;
            setter.set(step);
        };
        let (got, ()) = tokio::join!(async { queue.pull(&p).wait(wait).await }, step_meanwhile);
        let got = c.ok(Clause::PullWait, "a pull", got)?;
        c.check(
            Clause::PullWait,
            &[],
            got.is_empty(),
            "nothing, for nothing was pushed",
            format!("{got:?}"),
        )?;
        let bounds = (wait.saturating_sub(CLOCK_GRAIN), wait + c.timing().soon);
        c.took(Clause::PullWait, &[], "a pull of an empty partition", start.elapsed(), bounds)?;
    }
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let mut got = c.ok(Clause::PullBounds, "a pull", queue.pull(&p).wait(c.timing().soon).await)?;
    c.same_ids(Clause::ServerTime, "the message after the steps", &sent, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}
