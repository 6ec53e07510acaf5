//! Pulling: claiming ready messages, and waiting for them.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{Extension, PullQueueStorage, PullRequest, RawDelivery, Settlement, async_trait};
use anyqueue::{ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};
use tokio::sync::Notify;

use crate::error::stamp;
use crate::limits::{LEASE, MAX_BATCH};
use crate::partition::Partition;
use crate::record::after;
use crate::state::{State, Store, enter};
use crate::storage::MemoryQueue;

#[async_trait]
impl PullQueueStorage for MemoryQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.pull_batch(partition, &request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settle_batch(settlements)
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.extend_batch(extensions)
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.exchange_batch(settlements, partition, &request).await
    }
}

impl MemoryQueue {
    async fn pull_batch(&self, partition: &PartitionId, request: &PullRequest) -> Result<Vec<RawDelivery>> {
        self.check_pull(request)?;
        let (deliveries, now) = self.store.run(|state, now| (state.pull(now, partition, request), now));
        if deliveries.is_empty() && !request.wait.is_zero() {
            return self.wait(partition, request, after(now, request.wait)).await;
        }
        Ok(deliveries)
    }

    /// Settles and claims in one command, under one lock.
    async fn exchange_batch(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: &PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        if let Err(error) = self.check_pull(request) {
            return (self.settle_batch(settlements), Err(error));
        }
        let (settled, deliveries, now) = self.store.run(|state, now| {
            let settled = state.settle(now, settlements, &self.terms());
            (settled, state.pull(now, partition, request), now)
        });
        let outcomes = settled.outcomes;
        if deliveries.is_empty() && !request.wait.is_zero() {
            return (outcomes, self.wait(partition, request, after(now, request.wait)).await);
        }
        (outcomes, Ok(deliveries))
    }

    /// Waits for messages. The claim is made in the same poll that returns it, so a future that is dropped
    /// earlier has claimed nothing.
    async fn wait(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
        deadline: Instant,
    ) -> Result<Vec<RawDelivery>> {
        let mut waiter = Waiter::new(&self.store, partition);
        loop {
            self.ensure_open(Operation::Pull)?;
            let sleep_until = match waiter.attempt(request, deadline) {
                Attempt::Over(deliveries) => return Ok(deliveries),
                Attempt::Sleep(until) => until,
            };
            tokio::select! {
                biased;
                () = request.stop.cancelled() => return Ok(Vec::new()),
                () = waiter.bell.notified() => {}
                () = self.store.clock.sleep_until(sleep_until) => {}
                () = self.closed.cancelled() => {}
            }
        }
    }

    fn check_pull(&self, request: &PullRequest) -> Result<()> {
        self.ensure_open(Operation::Pull)?;
        request.check(&LEASE).map_err(|error| stamp(error, Operation::Pull))
    }
}

impl State {
    /// Claims what is ready now, up to the limits of the request.
    fn pull(&mut self, now: Instant, id: &PartitionId, request: &PullRequest) -> Vec<RawDelivery> {
        let deliveries = self.claim(now, id, request);
        self.tidy(id);
        deliveries
    }

    fn claim(&mut self, now: Instant, id: &PartitionId, request: &PullRequest) -> Vec<RawDelivery> {
        let Some(partition) = enter(&mut self.partitions, now, id) else { return Vec::new() };
        partition.claim(now, request.max.min(MAX_BATCH), request.group_members, request.lease)
    }
}

/// A pull that waits. When it is dropped it leaves the line, and a call that it has not followed goes to
/// another waiter.
struct Waiter<'a> {
    store: &'a Store,
    partition: &'a PartitionId,
    bell: Arc<Notify>,
    /// Its place in the line, which it keeps across attempts.
    ticket: u64,
    in_line: bool,
}

enum Attempt {
    Over(Vec<RawDelivery>),
    /// To be repeated when the bell rings, or at this moment.
    Sleep(Instant),
}

impl<'a> Waiter<'a> {
    fn new(store: &'a Store, partition: &'a PartitionId) -> Self {
        let ticket = store.run(|state, _| state.take_ticket());
        Self { store, partition, bell: Arc::new(Notify::new()), ticket, in_line: false }
    }

    /// Claims messages, or else joins the line (again). Both happen in one command, so no change can be
    /// missed in between.
    fn attempt(&mut self, request: &PullRequest, deadline: Instant) -> Attempt {
        self.store.run(|state, now| {
            self.leave(state);
            let deliveries = state.claim(now, self.partition, request);
            let over = !deliveries.is_empty() || now >= deadline;
            let alarm = if over { None } else { self.join(state) };
            state.tidy(self.partition);
            if over {
                Attempt::Over(deliveries)
            } else {
                Attempt::Sleep(alarm.map_or(deadline, |at| at.min(deadline)))
            }
        })
    }

    fn join(&mut self, state: &mut State) -> Option<Instant> {
        self.in_line = true;
        let alarm = state.partitions.get(self.partition).and_then(Partition::next_alarm);
        let line = state.lines.entry(self.partition.clone()).or_default();
        line.join(self.ticket, Arc::clone(&self.bell), alarm)
    }

    fn leave(&mut self, state: &mut State) {
        if std::mem::take(&mut self.in_line)
            && let Some(line) = state.lines.get_mut(self.partition)
        {
            line.leave(self.ticket);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.in_line {
            self.store.run(|state, _| {
                self.leave(state);
                state.tidy(self.partition);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::MessageData;
    use anyqueue::adapter::PushQueueStorage;

    use super::*;

    fn lines(queue: &MemoryQueue) -> usize {
        queue.store.run(|state, _| state.lines.len())
    }

    #[tokio::test]
    async fn waiting_leaves_nothing_behind_however_it_ends() {
        let queue = MemoryQueue::new();
        let request = |wait| PullRequest::new(1, wait, Duration::from_secs(1));
        let (short, long) = (Duration::from_millis(1), Duration::from_mins(1));
        let jobs = PartitionId::new("jobs").unwrap();

        queue.pull(&jobs, request(short)).await.unwrap();
        assert_eq!(lines(&queue), 0, "the deadline");

        let mut dropped = queue.pull(&jobs, request(long));
        assert!(futures_util::poll!(&mut dropped).is_pending());
        assert_eq!(lines(&queue), 1);
        drop(dropped);
        assert_eq!(lines(&queue), 0, "dropped asleep");

        let mut called = queue.pull(&jobs, request(long));
        let mut dropped = queue.pull(&jobs, request(long));
        assert!(futures_util::poll!(&mut called).is_pending());
        assert!(futures_util::poll!(&mut dropped).is_pending());
        queue.push(&jobs, &[MessageData::new("a"), MessageData::new("b")]).await;
        drop(dropped);
        assert_eq!(called.await.unwrap().len(), 1);
        assert_eq!(lines(&queue), 0, "called, and dropped when called");
    }
}
