//! Times at the limits of what can be expressed: long past, now, less than a tick, and forever.

use std::time::{Duration, SystemTime};

use anyqueue::{ErrorKind, MessageData, MessageId, QueueMessageStatus as Status};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "edges.delays", [Delays], delays)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::TinyDelayForever, Fault::ZeroDelayForever]),
    case!(Queue, "edges.delays_too_long", [Unsupported], delays_too_long)
        .needs(&[Need::PushDelay])
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "edges.postponements", [SettleActions, Delays, Unsupported], postponements)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::TinyPostponementForever]),
    case!(Queue, "edges.expiries", [Expiry], expiries).kills(&[Fault::ExpiryOf32BitMillis]),
    case!(Queue, "edges.leases", [LeaseEnd, Unsupported], leases)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseNeverExpires]),
];

const TINY: [Duration; 4] = [
    Duration::from_nanos(1),
    Duration::from_micros(1),
    Duration::from_nanos(999_999),
    Duration::from_millis(1),
];
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

fn long_ago() -> [SystemTime; 3] {
    let now = SystemTime::now();
    let before = |time: SystemTime, by| time.checked_sub(by).unwrap_or(time);
    [before(SystemTime::UNIX_EPOCH, CENTURY), SystemTime::UNIX_EPOCH, before(now, Duration::from_hours(1))]
}

/// A message that is already due, due now, or due in less than a tick, is delivered at once.
async fn delays(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let mut due: Vec<MessageData> = long_ago().map(|time| c.message().with_not_before(time)).into();
    due.push(c.message().with_not_before(SystemTime::now()));
    due.push(c.message().with_delay(Duration::ZERO));
    due.extend(TINY.map(|delay| c.message().with_delay(delay)));
    let sent = c.store(&queue, &p, due).await?;
    let mut held = c.hold(&queue, &p, sent.len()).await?;
    c.processed(&queue, &mut held).await
}

/// A delay longer than declared is refused, however long it is, and the message is not stored.
async fn delays_too_long(c: &Context) -> CaseResult {
    let (p, queue, now) = (c.partition("work")?, c.queue()?, SystemTime::now());
    let max = c.capabilities().push_delay.map_or(Duration::ZERO, |delay| delay.max);
    let longer = [max.checked_add(Duration::from_hours(24)), max.checked_mul(2), Some(Duration::MAX)];
    for delay in longer.into_iter().flatten().filter(|delay| *delay > max) {
        let at = now.checked_add(delay).map(|time| c.message().with_not_before(time));
        for message in [Some(c.message().with_delay(delay)), at].into_iter().flatten() {
            let answer = queue.push(&p, message).await;
            c.error(
                Clause::Unsupported,
                &format!("a push with a delay of {delay:?}"),
                ErrorKind::InvalidInput,
                &answer,
            )?;
        }
    }
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Unsupported, "the one message that was accepted", &sent, &got)
}

/// Postponed for less than a tick, a message comes back; for too long, the postponement is refused, and it is
/// still held.
async fn postponements(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let max = c.capabilities().postpone_delay.map_or(Duration::ZERO, |delay| delay.max);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    for delay in TINY {
        let mut held = c.hold_one(&queue, &p).await?;
        c.settle(&mut held, Status::postponed(delay)).await?;
    }
    let mut held = c.hold_one(&queue, &p).await?;
    let longer = [max.checked_add(Duration::from_millis(1)), Some(Duration::MAX)];
    for delay in longer.into_iter().flatten().filter(|delay| *delay > max) {
        let answer = held.settle(Status::postponed(delay)).await;
        c.error(
            Clause::Unsupported,
            &format!("a postponement by {delay:?}"),
            ErrorKind::InvalidInput,
            &answer,
        )?;
    }
    c.equal(Clause::SettleActions, &sent, "the message that is still held", &sent, &vec![held.id()])?;
    c.settle(&mut held, Status::Processed).await
}

/// An expired message reaches nobody, and one that expires in a century is delivered.
async fn expiries(c: &Context) -> CaseResult {
    let (p, queue, now) = (c.partition("work")?, c.queue()?, SystemTime::now());
    let mut over: Vec<MessageData> = long_ago().map(|time| c.message().with_expires_at(time)).into();
    over.push(c.message().with_expires_at(now));
    over.push(c.message().with_time_to_live(Duration::ZERO));
    over.extend(TINY.map(|ttl| c.message().with_time_to_live(ttl)));
    // Values that do not fit into 32 bits of milliseconds and of seconds, or 63 and 64 bits of nanoseconds
    // and of microseconds.
    let bits = |bits: u32| 2_u128.saturating_pow(bits);
    let of_nanos =
        |nanos: u128| u64::try_from(nanos / 1_000_000_000).map_or(Duration::MAX, Duration::from_secs);
    let far = [
        bits(32) * 1_000_000,
        bits(32) * 1_000_000_000,
        bits(63),
        bits(64),
        bits(63) * 1000,
        bits(64) * 1000,
    ];
    let far = far.map(|nanos| of_nanos(nanos) + Duration::from_secs(1)).into_iter();
    let far: Vec<Duration> = far.chain([Duration::from_millis(1 << 32), CENTURY, Duration::MAX]).collect();
    let mut stays: Vec<MessageData> = far.iter().map(|ttl| c.message().with_time_to_live(*ttl)).collect();
    let times = far.iter().filter_map(|ttl| now.checked_add(*ttl));
    stays.extend(times.map(|time| c.message().with_expires_at(time)));
    let due: Vec<MessageId> = stays.iter().map(MessageData::id).collect();
    c.store(&queue, &p, over).await?;
    c.store(&queue, &p, stays).await?;
    tokio::time::sleep(c.timing().slack).await;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Expiry, "what has not expired", &due, &got)
}

/// A lease longer than declared is refused, and claims nothing; the shortest one ends.
async fn leases(c: &Context) -> CaseResult {
    let (p, queue, declared) = (c.partition("work")?, c.queue()?, c.capabilities().lease);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let shorter = [Some(Duration::ZERO), declared.min.checked_sub(Duration::from_nanos(1))];
    let longer = [declared.max.checked_add(Duration::from_nanos(1)), Some(Duration::MAX)];
    let out = |lease: &Duration| *lease < declared.min || *lease > declared.max;
    for lease in shorter.into_iter().chain(longer).flatten().filter(out) {
        let answer = queue.pull(&p).lease(lease).await;
        c.error(
            Clause::Unsupported,
            &format!("a pull with a lease of {lease:?}"),
            ErrorKind::InvalidInput,
            &answer,
        )?;
    }
    for lease in [declared.min, declared.min + Duration::from_nanos(1)] {
        let pull = queue.pull(&p).wait(c.timing().soon).lease(lease).keep_alive(false);
        let held = c.ok(Clause::LeaseEnd, "a pull", pull.await)?;
        c.equal(Clause::LeaseEnd, &sent, "deliveries under the shortest lease", &1, &held.len())?;
        for handler in &held {
            handler.lost().cancelled().await;
        }
    }
    let mut held = c.hold(&queue, &p, 1).await?;
    for handler in &mut held {
        let answer = handler.extend(Duration::MAX).await;
        c.error(Clause::Unsupported, "an extension forever", ErrorKind::InvalidInput, &answer)?;
    }
    c.processed(&queue, &mut held).await
}
