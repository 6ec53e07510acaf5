//! Numbers beyond each power of two in which an adapter could store them: counts, leases, delays.
//!
//! A duration that is slightly longer than the largest number of some width becomes very short if the rest is
//! cut off; this shows on any clock. A duration that is clamped to the largest number shows on a clock that
//! the suite controls.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, Extension, PullRequest, RawDelivery, Settlement, Storage};
use anyqueue::{ExtendOutcome, ManualClock, MessageData, MessageId, PartitionId};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, ids, settlement};
use crate::fault::Fault;
use crate::harness::Harness;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "numbers.deliveries", [DeliveryCount], deliveries)
        .needs(&[Need::DeliveryCount])
        .kills(&[Fault::CountOfEightBits])
        .deadline(LARGE),
    case!(Storage, "numbers.leases", [LeaseEnd], leases)
        .needs(&[Need::TimedLease, Need::HourLease])
        .kills(&[Fault::LeaseOf32BitMicros]),
    case!(Storage, "numbers.delays", [Delays], delays)
        .needs(&[Need::PushDelay, Need::HourPushDelay])
        .kills(&[Fault::DelayOf32BitMillis]),
    case!(Storage, "numbers.postponements", [Delays], postponements)
        .needs(&[Need::PostponeDelay, Need::HourPostponement])
        .kills(&[Fault::PostponeOf32BitMillis]),
    case!(Storage, "numbers.long_leases", [LeaseEnd, Extend], long_leases)
        .needs(&[Need::TimedLease, Need::ControlledClock])
        .kills(&[Fault::LeaseCappedAt32BitMicros, Fault::LeaseEndsLate]),
    case!(Storage, "numbers.long_delays", [Delays], long_delays)
        .needs(&[Need::PushDelay, Need::ControlledClock])
        .kills(&[Fault::DelayCappedAt32BitMicros, Fault::DelayEndsLate]),
];

const LARGE: Duration = Duration::from_mins(2);

/// The first numbers that do not fit into eight and sixteen bits.
const BEYOND_8_BITS: usize = 257;
const BEYOND_16_BITS: usize = 65_537;

/// 2^31 and 2^32 microseconds, milliseconds and seconds.
const WIDTHS: [Duration; 6] = [
    Duration::from_micros(1 << 31),
    Duration::from_micros(1 << 32),
    Duration::from_millis(1 << 31),
    Duration::from_millis(1 << 32),
    Duration::from_secs(1 << 31),
    Duration::from_secs(1 << 32),
];

/// Returns the durations beyond each width by a moment that are within what is declared.
fn beyond(by: Duration, max: Duration) -> impl Iterator<Item = Duration> {
    WIDTHS.into_iter().map(move |width| width + by).filter(move |duration| *duration <= max)
}

/// A message fails so often that its count needs more than eight bits (in the thorough tier, sixteen).
async fn deliveries(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let times = c.size(BEYOND_8_BITS, BEYOND_16_BITS);
    // These are more calls than a history should hold.
    let storage = c.unseen().await?;
    let message = c.message();
    let pushed = storage.push(&p, std::slice::from_ref(&message)).await;
    c.ok(Clause::Stored, "a push", pushed.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let mut held: Option<RawDelivery> = None;
    for count in 1..=u32::try_from(times).unwrap_or(u32::MAX) {
        let got = c.ok(Clause::PullBounds, "a pull", failed_and_next(c, &*storage, &p, held.take()).await)?;
        c.equal(Clause::SettleActions, &[], "deliveries of what failed", &1, &got.len())?;
        held = got.into_iter().next();
        let seen = held.as_ref().and_then(|held| held.delivery_count);
        c.equal(Clause::DeliveryCount, &[], "a delivery count of", &Some(count), &seen)?;
    }
    let last: Vec<Settlement> = held.iter().map(|held| settlement(held, Action::Remove)).collect();
    let removed = storage.settle(&last).await;
    c.ok(
        Clause::SettleOutcomes,
        "the last settlement",
        removed.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
    )?;
    c.ok(Clause::Close, "close", storage.close().await)
}

/// Fails the held message, and takes what comes.
async fn failed_and_next(
    c: &Context,
    storage: &dyn Storage,
    p: &PartitionId,
    held: Option<RawDelivery>,
) -> anyqueue::Result<Vec<RawDelivery>> {
    let request = PullRequest::new(1, c.timing().soon, c.timing().long_lease);
    let Some(held) = held else { return storage.pull(p, request).await };
    let (settled, pulled) = storage.exchange(&[settlement(&held, Action::Retry)], p, request).await;
    settled.into_iter().try_for_each(|outcome| outcome.map(drop)).and(pulled)
}

async fn leases(c: &Context) -> CaseResult {
    let (p, client, t) = (c.partition("work")?, c.client(), c.timing());
    let long: Vec<_> = beyond(t.lease, c.capabilities().lease.max).collect();
    // For each length, one message that is pulled with it, and one that is extended by it.
    let mut held = Vec::new();
    for lease in &long {
        client.push(&p, &c.messages(2, |_, message| message)).await?;
        held.extend(client.pull_with(&p, PullRequest::new(1, t.soon, *lease)).await?);
        let [other] = client.take_exact(&p).await?;
        let outcome = client.extend(&other, *lease).await?;
        c.equal(
            Clause::Extend,
            &[other.lease.id],
            "an extension by so much",
            &ExtendOutcome::Extended,
            &outcome,
        )?;
        held.push(other);
    }
    c.equal(Clause::PullBounds, &[], "deliveries", &(2 * long.len()), &held.len())?;
    client
        .nothing(&p, t.never(), Clause::LeaseEnd, "nothing, as each lease is longer than half an hour")
        .await?;
    client.remove(&held).await
}

async fn delays(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let max = c.capabilities().push_delay.map_or(Duration::ZERO, |delay| delay.max);
    let long: Vec<_> = beyond(t.delay, max).collect();
    // A message that is postponed for so long is left behind, so the history does not see it.
    let storage = c.unseen().await?;
    let messages: Vec<_> = long.iter().map(|delay| c.message().with_delay(*delay)).collect();
    for batch in messages.chunks(c.capabilities().limits.push_batch) {
        let pushed = storage.push(&p, batch).await;
        c.ok(Clause::Delays, "a push", pushed.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    }
    stay_away(c, &*storage, &p, &messages).await
}

async fn postponements(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let max = c.capabilities().postpone_delay.map_or(Duration::ZERO, |delay| delay.max);
    let storage = c.unseen().await?;
    let mut messages = Vec::new();
    for delay in beyond(t.delay, max).chain([max]) {
        let message = c.message();
        let pushed = storage.push(&p, std::slice::from_ref(&message)).await;
        c.ok(Clause::Delays, "a push", pushed.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
        let request = PullRequest::new(1, t.soon, t.long_lease);
        let held = c.ok(Clause::PullBounds, "a pull", storage.pull(&p, request).await)?;
        c.equal(Clause::PullBounds, &[], "deliveries", &vec![message.id()], &ids(&held))?;
        let action = Action::Postpone { delay, headers: None };
        let all: Vec<_> = held.iter().map(|held| settlement(held, action.clone())).collect();
        let settled = storage.settle(&all).await;
        let settled = c.ok(
            Clause::Delays,
            "a postponement",
            settled.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
        )?;
        let told = format!("the outcome of a postponement by {delay:?}");
        c.equal(Clause::Delays, &[], &told, &vec![anyqueue::SettleOutcome::Settled], &settled)?;
        messages.push(message);
    }
    stay_away(c, &*storage, &p, &messages).await
}

/// Judges that a message postponed for a long time does not come, and deletes it where that is possible.
async fn stay_away(
    c: &Context,
    storage: &dyn Storage,
    p: &PartitionId,
    messages: &[MessageData],
) -> CaseResult {
    let during = c.timing().never_after(c.timing().delay);
    c.client()
        .nothing(p, during, Clause::Delays, "nothing, as each delay is longer than half an hour")
        .await?;
    let gone: Vec<MessageId> = messages.iter().map(MessageData::id).collect();
    if let Some(inspect) = storage.inspect().filter(|_| c.capabilities().inspect.delete) {
        let deleted = inspect.delete(p, &gone).await;
        c.ok(Clause::Deletion, "deleting", deleted.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    }
    c.ok(Clause::Close, "close", storage.close().await)
}

/// A storage of its own, on a clock that stands still until it is turned.
struct Turned<'a> {
    c: &'a Context,
    clock: ManualClock,
    storage: Arc<dyn Storage>,
    p: PartitionId,
    harness: Arc<dyn Harness>,
    namespace: String,
}

impl<'a> Turned<'a> {
    async fn new(c: &'a Context) -> CaseResult<Self> {
        let (clock, harness) = (ManualClock::new(), c.harness());
        let namespace = format!("turned_{}", uuid::Uuid::new_v4().simple());
        let opening = harness.open_on(&namespace, clock.clock());
        let opening =
            opening.ok_or_else(|| crate::verdict::Stop::NotApplicable("a controlled clock".to_owned()))?;
        let storage = c.ok(Clause::Init, "a storage on a controlled clock", opening.await)?;
        c.ok(Clause::Init, "initialising it", storage.init().await)?;
        Ok(Self { c, clock, storage, p: c.partition("work")?, harness, namespace })
    }

    async fn push(&self, message: MessageData) -> CaseResult {
        let pushed = self.storage.push(&self.p, &[message]).await;
        self.c
            .ok(Clause::Stored, "a push", pushed.into_iter().collect::<anyqueue::Result<Vec<_>>>())
            .map(drop)
    }

    /// Returns what is there at this moment, under such a lease.
    async fn pull(&self, lease: Duration) -> CaseResult<Vec<RawDelivery>> {
        let request = PullRequest::new(1, Duration::ZERO, lease);
        self.c.ok(Clause::PullBounds, "a pull", self.storage.pull(&self.p, request).await)
    }

    /// Judges that nothing is there until the time has passed, and that the message is there once the slack
    /// is over too.
    async fn comes_after(&self, clause: Clause, time: Duration, what: &str) -> CaseResult<Vec<RawDelivery>> {
        const MOMENT: Duration = Duration::from_millis(50);
        let (c, slack) = (self.c, self.c.timing().slack + crate::context::CLOCK_GRAIN);
        self.clock.advance(time.saturating_sub(MOMENT));
        let early = self.pull(c.timing().long_lease).await?;
        let told = format!("nothing {MOMENT:?} before the end of {what} of {time:?}");
        c.check(clause, &[], early.is_empty(), told, format!("{:?} came", ids(&early)))?;
        self.clock.advance(MOMENT + slack);
        let got = self.pull(c.timing().long_lease).await?;
        let told = format!("the message {slack:?} after the end of {what} of {time:?}");
        c.check(clause, &[], got.len() == 1, told, format!("{} messages", got.len()))?;
        Ok(got)
    }

    async fn remove(&self, got: &[RawDelivery]) -> CaseResult {
        let all: Vec<Settlement> = got.iter().map(|held| settlement(held, Action::Remove)).collect();
        let removed = self.storage.settle(&all).await;
        self.c
            .ok(
                Clause::SettleOutcomes,
                "a removal",
                removed.into_iter().collect::<anyqueue::Result<Vec<_>>>(),
            )
            .map(drop)
    }

    async fn close(self) -> CaseResult {
        self.c.ok(Clause::Close, "close", self.storage.close().await)?;
        self.harness.remove(&self.namespace).await;
        Ok(())
    }
}

/// Leases and extensions end when they should, within the declared slack, however long they are.
async fn long_leases(c: &Context) -> CaseResult {
    let turned = Turned::new(c).await?;
    let max = c.capabilities().lease.max;
    for lease in beyond(c.timing().lease, max).chain([c.timing().lease, max]) {
        turned.push(c.message()).await?;
        let held = turned.pull(lease).await?;
        c.equal(Clause::PullBounds, &[], "deliveries", &1, &held.len())?;
        let again = turned.comes_after(Clause::LeaseEnd, lease, "a lease").await?;
        let extensions: Vec<_> =
            again.iter().map(|held| Extension { lease: held.lease.clone(), duration: lease }).collect();
        let extended = turned.storage.extend(&extensions).await;
        let extended =
            c.ok(Clause::Extend, "an extension", extended.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
        c.equal(Clause::Extend, &[], "the extension", &vec![ExtendOutcome::Extended], &extended)?;
        let again = turned.comes_after(Clause::Extend, lease, "an extension").await?;
        turned.remove(&again).await?;
    }
    turned.close().await
}

async fn long_delays(c: &Context) -> CaseResult {
    let turned = Turned::new(c).await?;
    let max = c.capabilities().push_delay.map_or(Duration::ZERO, |delay| delay.max);
    for delay in beyond(c.timing().delay, max).chain([c.timing().delay, max]) {
        turned.push(c.message().with_delay(delay)).await?;
        let got = turned.comes_after(Clause::Delays, delay, "a delay").await?;
        turned.remove(&got).await?;
    }
    turned.close().await
}
