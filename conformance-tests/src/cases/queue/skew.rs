//! Clients whose clock is wrong by an hour: delays, expiries and leases follow the server's clock, so nobody
//! notices.

use std::time::{Duration, Instant};

use anyqueue::{Clock, Delivery, MessageData, Queue, QueueMessageStatus as Status, Skew};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "skew.delays", [ServerTime, Delays], delays)
        .needs(&[Need::SkewedClient, Need::PushDelay])
        .kills(&[Fault::DueByClientClock]),
    case!(Queue, "skew.postponements", [ServerTime, Delays], postponements)
        .needs(&[Need::SkewedClient, Need::PostponeDelay])
        .kills(&[Fault::PostponedByClientClock]),
    case!(Queue, "skew.ages", [ServerTime, Expiry], ages)
        .needs(&[Need::SkewedClient, Need::ServerAges])
        .kills(&[Fault::AgeByClientClock]),
    case!(Queue, "skew.leases", [LeaseEnd, ServerTime], leases)
        .needs(&[Need::SkewedClient, Need::TimedLease])
        .kills(&[Fault::LeaseByClientClock]),
    case!(Queue, "skew.redrive", [ServerTime, DeadLetters], redrive)
        .needs(&[Need::SkewedClient])
        .kills(&[Fault::MovedByClientClock]),
];

const HOUR: Duration = Duration::from_hours(1);
const SKEWS: [Skew; 2] = [Skew::Ahead(HOUR), Skew::Behind(HOUR)];

/// A time of day is computed and then pushed: this much of it may pass in between.
const BETWEEN: Duration = Duration::from_millis(100);

/// Creates a queue whose client and core both have the wrong clock.
async fn skewed(c: &Context, skew: Skew) -> CaseResult<(Queue, Clock)> {
    let clock = Clock::system().skewed(skew);
    let client = c.fresh_skewed(clock.clone()).await?;
    let queue = c.queue_over(&client, |builder| builder.clock(clock.clone()))?;
    Ok((queue, clock))
}

/// If nothing came, it may merely be late.
fn late_if_none(got: &[Delivery], judged: CaseResult) -> CaseResult {
    judged.map_err(|stop| if got.is_empty() { stop.late() } else { stop })
}

/// Pushes, and judges that another client gets the message after the delay, or less than `early` before.
async fn comes(
    c: &Context,
    (by, to): (&Queue, &Queue),
    message: MessageData,
    (delay, early): (Duration, Duration),
) -> CaseResult {
    let (p, id, start) = (c.partition("work")?, message.id(), Instant::now());
    c.store(by, &p, vec![message]).await?;
    let mut got = c.ok(Clause::PullBounds, "a pull", to.pull(&p).wait(c.timing().latest(delay)).await)?;
    let came = c.same_ids(Clause::ServerTime, "the message when it is due", &[id], &handler_ids(&got));
    late_if_none(&got, came)?;
    let bounds = (delay.saturating_sub(early), c.timing().latest(delay) + c.timing().soon);
    c.took(Clause::Delays, &[id], "its delivery", start.elapsed(), bounds)?;
    c.processed(to, &mut got).await
}

/// A message from a client with a wrong clock comes when it is due, and so does one that it pulls. A time of
/// day is meant by the clock of the client that gives it.
async fn delays(c: &Context) -> CaseResult {
    let (right, delay) = (c.queue()?, c.timing().delay);
    for skew in SKEWS {
        let (wrong, clock) = skewed(c, skew).await?;
        let at_once = (Duration::ZERO, Duration::ZERO);
        comes(c, (&wrong, &right), c.message(), at_once).await?;
        let exactly = (delay, Duration::ZERO);
        comes(c, (&wrong, &right), c.message().with_delay(delay), exactly).await?;
        comes(c, (&right, &wrong), c.message().with_delay(delay), exactly).await?;
        let message = c.message().with_not_before(clock.wall() + delay);
        comes(c, (&wrong, &right), message, (delay, BETWEEN)).await?;
    }
    Ok(())
}

/// A message that a client with a wrong clock postpones comes back in time.
async fn postponements(c: &Context) -> CaseResult {
    let (p, right, delay) = (c.partition("work")?, c.queue()?, c.timing().delay);
    for skew in SKEWS {
        let (wrong, _) = skewed(c, skew).await?;
        let sent = c.store(&right, &p, vec![c.message()]).await?;
        let mut held = c.hold_one(&wrong, &p).await?;
        let start = Instant::now();
        c.settle(&mut held, Status::postponed(delay)).await?;
        let mut got =
            c.ok(Clause::PullBounds, "a pull", right.pull(&p).wait(c.timing().latest(delay)).await)?;
        let came =
            c.same_ids(Clause::ServerTime, "the postponed message when it is due", &sent, &handler_ids(&got));
        late_if_none(&got, came)?;
        let bounds = (delay, c.timing().latest(delay) + c.timing().soon);
        c.took(Clause::Delays, &sent, "its return", start.elapsed(), bounds)?;
        c.processed(&right, &mut got).await?;
    }
    Ok(())
}

/// Judges that the message reaches a handler, and how old it then is.
async fn is_young(c: &Context, by: &Queue, to: &Queue) -> CaseResult {
    let (p, start) = (c.partition("work")?, Instant::now());
    let sent = c.store(by, &p, vec![c.message().with_time_to_live(HOUR / 2)]).await?;
    let mut held = c.hold(to, &p, 1).await?;
    let most = start.elapsed() + c.timing().slack;
    let age = held.first().map(Delivery::age);
    let told = format!("an age of at most {most:?}");
    c.check(Clause::ServerTime, &sent, age.is_some_and(|age| age <= most), told, format!("{age:?}"))?;
    c.processed(to, &mut held).await
}

/// A message that one client pushes and another pulls has its true age, and expires by that age, neither
/// sooner nor later.
async fn ages(c: &Context) -> CaseResult {
    let (p, right, ttl) = (c.partition("work")?, c.queue()?, c.timing().lease);
    for skew in SKEWS {
        let (wrong, _) = skewed(c, skew).await?;
        for (by, to) in [(&wrong, &right), (&right, &wrong)] {
            is_young(c, by, to).await?;
            c.store(by, &p, vec![c.message().with_time_to_live(ttl)]).await?;
            tokio::time::sleep(ttl + c.timing().slack).await;
            let got = c.ok(Clause::Expiry, "a pull", to.pull(&p).wait(c.timing().slack).await)?;
            c.check(
                Clause::Expiry,
                &[],
                got.is_empty(),
                "no delivery of what has expired",
                format!("{got:?}"),
            )?;
        }
    }
    Ok(())
}

/// Judges that one client's lease keeps the other from the message for as long as it lasts, and no longer.
async fn lease_ends(c: &Context, holder: &Queue, other: &Queue) -> CaseResult {
    let (p, lease) = (c.partition("work")?, c.timing().lease);
    let sent = c.store(holder, &p, vec![c.message()]).await?;
    let start = Instant::now();
    let pull = holder.pull(&p).wait(c.timing().soon).lease(lease).keep_alive(false);
    let held = c.ok(Clause::PullBounds, "a pull", pull.await)?;
    c.same_ids(Clause::PullBounds, "the message", &sent, &handler_ids(&held))?;
    let mut got = c.ok(Clause::PullBounds, "a pull", other.pull(&p).wait(c.timing().latest(lease)).await)?;
    let came =
        c.same_ids(Clause::ServerTime, "the message when the lease is over", &sent, &handler_ids(&got));
    late_if_none(&got, came)?;
    let bounds = (lease, c.timing().latest(lease) + c.timing().soon);
    c.took(Clause::LeaseEnd, &sent, "its return", start.elapsed(), bounds)?;
    c.processed(other, &mut got).await
}

async fn leases(c: &Context) -> CaseResult {
    let right = c.queue()?;
    for skew in SKEWS {
        let (wrong, _) = skewed(c, skew).await?;
        lease_ends(c, &wrong, &right).await?;
        lease_ends(c, &right, &wrong).await?;
    }
    Ok(())
}

/// A message that one client lets die, the other puts back.
async fn redrive(c: &Context) -> CaseResult {
    let (p, right) = (c.partition("work")?, c.queue()?);
    for skew in SKEWS {
        let (wrong, _) = skewed(c, skew).await?;
        for (killer, redriver) in [(&wrong, &right), (&right, &wrong)] {
            let sent = c.store(&right, &p, c.messages(3, |_, message| message)).await?;
            for mut held in c.hold(killer, &p, 3).await? {
                c.settle(&mut held, Status::poisonous("for the test")).await?;
            }
            let letters = c.ok(Clause::DeadLetters, "dead_letters", redriver.dead_letters(&p))?;
            let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().await)?;
            c.equal(Clause::DeadLetters, &sent, "the number put back", &3, &done.moved)?;
            let mut back = c.hold(&right, &p, 3).await?;
            c.same_ids(Clause::DeadLetters, "what was put back", &sent, &handler_ids(&back))?;
            c.processed(&right, &mut back).await?;
        }
    }
    Ok(())
}
