//! Pulling: take slots first, then ask the storage, then accept what it returns.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::caller::worth_repeating;
use super::delivery::Delivery;
use super::feed::Terms;
use super::guard;
use super::handle::Queue;
use super::shared::Shared;
use crate::capabilities::{DeliveryCount, Requeue};
use crate::clock::far;
use crate::error::{Error, Operation, Result, RetryClass};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::storage::{PullRequest, RawDelivery, Settlement};

/// A pull, set up by [`Queue::pull`]; await it to run it.
#[derive(Debug)]
#[must_use = "a pull does nothing until it is awaited"]
pub struct Pull {
    pub(super) queue: Queue,
    partition: Result<PartitionId>,
    max: usize,
    wait: Duration,
    lease: Option<Duration>,
    keep_alive: bool,
    thorough: bool,
    pub(super) group_members: usize,
}

impl Queue {
    /// Pulls messages from a partition. By default this asks for one message without waiting, under the
    /// partition's lease, which is renewed as long as the delivery is held.
    pub fn pull(&self, partition: impl IntoPartitionId) -> Pull {
        Pull {
            queue: self.clone(),
            partition: partition.into_partition_id(),
            max: 1,
            wait: Duration::ZERO,
            lease: None,
            keep_alive: true,
            thorough: false,
            group_members: 1,
        }
    }
}

impl Pull {
    /// Sets how many messages to return at most; at least 1. If this exceeds the backend's limit, the backend
    /// is asked several times.
    pub fn max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Sets how long to wait for the first message. Messages that are ready are returned at once, never held
    /// back to fill up the batch.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets a lease other than the partition's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets whether the heartbeat renews the lease while the delivery is held, up to the partition's
    /// `max_hold`. Default: yes.
    pub fn keep_alive(mut self, keep_alive: bool) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// Sets whether an empty result must mean that there is no message, even without a wait. This makes a
    /// difference only for SQS, which answers at once from a sample of its servers: there, a thorough pull
    /// takes a second longer to return nothing. Default: no.
    pub fn thorough(mut self, thorough: bool) -> Self {
        self.thorough = thorough;
        self
    }
}

/// Returns up to `max` deliveries, or none when the wait is over.
///
/// # Errors
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name, a `max` of 0 or a lease out of range;
/// [`Closed`](crate::ErrorKind::Closed); or the server's error, after core has repeated within the wait what
/// is safe to repeat.
///
/// # Cancellation
/// Dropping the future loses nothing: the call runs to its end in the background, and whatever it claimed is
/// released.
impl IntoFuture for Pull {
    type Output = Result<Vec<Delivery>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let shared = self.queue.0;
            let stamp = |error: Error| error.with_backend(shared.name()).with_operation(Operation::Pull);
            let partition = self.partition.map_err(stamp)?;
            if self.max == 0 {
                return Err(stamp(Error::invalid("max is 0: ask for at least 1 message")));
            }
            let options = shared.options.of(partition.name());
            let lease = self.lease.unwrap_or(options.lease);
            shared.capabilities.lease.check(lease).map_err(stamp)?;
            guard::group_members(self.group_members, &shared.capabilities).map_err(stamp)?;
            let stop = CancellationToken::new();
            let task = Pulling {
                until: far(shared.caller.clock.now(), self.wait),
                terms: Terms { partition, lease, keep_alive: self.keep_alive },
                max: self.max,
                thorough: self.thorough,
                group_members: self.group_members,
                stop: stop.clone(),
            };
            // If this future is dropped, the pull below goes on; the guard then asks it to finish early.
            let stop_if_dropped = stop.drop_guard();
            let answer = shared.exec.run(Box::pin(task.run(shared.clone()))).await.map_err(stamp)?;
            stop_if_dropped.disarm();
            answer
        })
    }
}

/// One running pull, independent of whoever waits for it.
struct Pulling {
    terms: Terms,
    max: usize,
    until: Instant,
    thorough: bool,
    group_members: usize,
    stop: CancellationToken,
}

impl Pulling {
    async fn run(self, shared: Arc<Shared>) -> Result<Vec<Delivery>> {
        let _active = shared.enter(Operation::Pull)?;
        let mut handlers = Vec::new();
        if self.stop.is_cancelled() {
            return Ok(handlers); // it begins only now, and whoever asked has gone away
        }
        let mut refused = 0; // in a row, as long as nothing else came
        loop {
            let want = (self.max - handlers.len()).max(refused);
            let Some(mut slots) = self.slots(&shared, want, !handlers.is_empty()).await else {
                return Ok(handlers);
            };
            let asked = slots.num_permits();
            // Once there is something to hand over, do not wait for more.
            let thorough = self.thorough && handlers.is_empty();
            let until = if handlers.is_empty() { self.until } else { shared.caller.clock.now() };
            let deliveries = match self.ask(&shared, asked, until, thorough).await {
                Ok(deliveries) => deliveries,
                Err(error) if handlers.is_empty() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a further call of a pull failed; returning what the first brought");
                    return Ok(handlers);
                }
            };
            let got = deliveries.len();
            let accepted = shared.accept(&self.terms, deliveries);
            if let Some(used) = slots.split(accepted.len()) {
                used.forget(); // each handler gives its slot back itself
            }
            handlers.extend(accepted);
            if shared.exec.has_ended() {
                return Err(shared.refusal(Operation::Pull)); // nothing is held without a heartbeat
            }
            // Ask again only if the backend's limit cut this short, or if everything that came had to be
            // refused.
            let more = if handlers.is_empty() { got > 0 } else { got >= asked && handlers.len() < self.max };
            if !more || self.stop.is_cancelled() || shared.closing.is_cancelled() {
                break;
            }
            if !handlers.is_empty() {
                refused = 0;
                continue;
            }
            if shared.caller.clock.now() >= far(self.until, shared.capabilities.slack) {
                break; // what else has expired is left to the next pull
            }
            refused = shared.next_batch(refused + got);
        }
        // Extra deliveries, asked for to get past expired messages, are released when dropped.
        handlers.truncate(self.max);
        Ok(handlers)
    }

    /// Takes slots for up to `want` deliveries; waits for the first one, unless there is something to return
    /// already.
    async fn slots(&self, shared: &Shared, want: usize, have_some: bool) -> Option<OwnedSemaphorePermit> {
        let want = want.min(shared.capabilities.limits.pull_batch.max(1));
        if let Some(slots) = shared.free_slots(want) {
            return Some(slots);
        }
        if have_some {
            return None;
        }
        let mut slots = tokio::select! {
            biased;
            slot = Arc::clone(&shared.slots).acquire_owned() => slot.ok()?,
            () = shared.caller.clock.sleep_until(self.until) => return None,
            () = self.stop.cancelled() => return None,
            () = shared.closing.cancelled() => return None,
        };
        // Keep this slot: if released, it would go to the next waiter, and round in circles among those who
        // wait.
        if let Some(more) = shared.free_slots(want.saturating_sub(1)) {
            slots.merge(more);
        }
        Some(slots)
    }

    /// Asks the storage once, and takes waiting settlements along where that saves a round trip.
    async fn ask(
        &self,
        shared: &Shared,
        max: usize,
        until: Instant,
        thorough: bool,
    ) -> Result<Vec<RawDelivery>> {
        let request = |wait| {
            let request = PullRequest::new(max, wait, self.terms.lease).with_stop(self.stop.clone());
            request.with_thorough(thorough).with_group_members(self.group_members)
        };
        if shared.capabilities.exchange {
            let lane = shared.settle_lane(&self.terms.partition);
            let carried = shared.settler.take(&lane);
            if !carried.is_empty() {
                let settlements: Vec<Settlement> =
                    carried.iter().map(|pending| pending.request.settlement.clone()).collect();
                let (answers, deliveries) = shared
                    .caller
                    .exchange(&settlements, &self.terms.partition, request(Duration::ZERO))
                    .await;
                let mut again = Vec::new();
                for (pending, answer) in carried.into_iter().zip(answers) {
                    match answer {
                        Err(error) if error.retry() == RetryClass::Safe => again.push(pending),
                        answer => pending.answer(answer),
                    }
                }
                shared.settler.enqueue(&shared.exec, lane, again);
                match deliveries {
                    Ok(found) if found.is_empty() => {}
                    Err(error) if worth_repeating(&error) => {} // by the pull below
                    done => return done,
                }
            }
        }
        let wait = until.saturating_duration_since(shared.caller.clock.now());
        let pull = shared.caller.pull(&self.terms.partition, request(wait));
        if wait.is_zero() {
            return pull.await;
        }
        // `close` ends waiting pulls in the same way as a caller that goes away.
        tokio::pin!(pull);
        tokio::select! {
            biased;
            answer = &mut pull => answer,
            () = shared.closing.cancelled() => {
                self.stop.cancel();
                pull.await
            }
        }
    }
}

impl Shared {
    /// How many to ask for after `refused` deliveries in a row had to be refused: thousands like them may
    /// follow, and fetching them one by one would take a call each. What exceeds the pull's own `max` is
    /// released, so this is done only where a release leaves no trace.
    fn next_batch(&self, refused: usize) -> usize {
        let leaves_no_trace = self.capabilities.requeue == Requeue::Front
            && self.capabilities.delivery_count != DeliveryCount::Deliveries;
        if leaves_no_trace { refused } else { 0 }
    }

    /// Takes up to `want` of the slots that nobody holds or waits for; `None` if there are none.
    fn free_slots(&self, want: usize) -> Option<OwnedSemaphorePermit> {
        let mut want = u32::try_from(self.slots.available_permits().min(want)).unwrap_or(u32::MAX);
        while want > 0 {
            if let Ok(slots) = Arc::clone(&self.slots).try_acquire_many_owned(want) {
                return Some(slots);
            }
            want /= 2; // others were quicker
        }
        None
    }
}
