//! Pulls for the free slots, and what they bring.

use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Pull, Result};
use futures_util::future::FutureExt;
use tokio_util::sync::CancellationToken;

use super::groups::batches;
use super::partition::{ActivePull, Brought, LastPull, PartitionState, Pulled};
use super::state::{Fetch, GATHER, SATURATED, is_suspended};
use crate::schedule::SlotRequest;

/// How long a pull waits for messages. Pushes wake it, so this only bounds one call.
const POLL_WAIT: Duration = Duration::from_secs(10);
/// A burst gives up on a partition after this many failures in a row.
const BURST_ERRORS: u32 = 5;

impl Fetch {
    /// Slots, and places for prefetched messages, that are not promised to anything.
    fn room(&mut self, now: Instant) -> usize {
        // In this order: a message that a settlement brings is there before its slot is free.
        let occupied = self.shared.pool.occupied();
        self.hold_refills(now);
        // A burst leaves nothing for later: messages that wait for their kind keep it from pulling more.
        let parked = |partition: &PartitionState| if self.burst { partition.parked } else { 0 };
        let claimed: usize =
            self.partitions.iter().map(|partition| partition.claimed() + parked(partition)).sum();
        // A message that was released for want of a slot would only be fetched again, so not before a task
        // has ended.
        let prefetches = self.released_at != Some(self.shared.pool.ended());
        let starts_left = self.starts_left().saturating_sub(claimed);
        let all = self.slots + if prefetches { self.shared.config.prefetch } else { 0 };
        let waiting: usize = self.partitions.iter().map(PartitionState::waiting).sum();
        // If every kind is full, nothing that a pull could bring would start.
        let room = all.saturating_sub(occupied + claimed).min(starts_left);
        room.min(self.shared.routes.room().saturating_sub(waiting))
    }

    /// Pulls for the free slots: at once where messages are or may be, and waiting where there were none.
    pub(super) fn start_pulls(&mut self, now: Instant, suspended: &[bool]) {
        self.stop_pulls(|index, _| is_suspended(suspended, index));
        let room = self.room(now);
        let shared = self.unreserved(room, true);
        if shared == 0 {
            let since = *self.full_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= SATURATED {
                self.stop_pulls(|index, pull| pull.waits() && self.unused_reserve(index, true) == 0);
            }
        } else {
            self.full_since = None;
        }
        if room == 0 {
            return;
        }
        if self.gathers(room, now) {
            return;
        }
        let (empty, others): (Vec<_>, Vec<_>) = self
            .partitions
            .iter()
            .enumerate()
            .filter(|(index, partition)| partition.is_due(now) && !is_suspended(suspended, *index))
            .partition(|(_, partition)| partition.last_pull == LastPull::Empty);
        let empty: Vec<usize> = empty.into_iter().map(|(index, _)| index).collect();
        let requests: Vec<_> =
            others.into_iter().map(|(index, _)| self.slot_request(index, room, now)).collect();
        for (request, reserved) in requests.iter().zip(self.schedule.deal(room, shared, &requests)) {
            if reserved > 0 {
                self.pull(request.partition, reserved, Duration::ZERO, now);
            }
        }
        if !self.burst {
            self.wait_for_messages(&empty, shared, now);
        }
    }

    /// Starts pulls that wait, for slots that are not promised to anything.
    fn wait_for_messages(&mut self, empty: &[usize], shared: usize, now: Instant) {
        if empty.is_empty() {
            return;
        }
        let share = (self.room(now) / empty.len()).max(1);
        for index in empty {
            let request = self.slot_request(*index, 1, now);
            let most = if shared == 0 { request.own } else { share };
            let max = share.min(most).min(request.cap.saturating_sub(request.used));
            if max > 0 {
                self.pull(*index, max, POLL_WAIT, now);
            }
        }
    }

    /// What a partition could use of this much room.
    fn slot_request(&self, index: usize, room: usize, now: Instant) -> SlotRequest {
        let partition = self.partitions.get(index);
        let pool = &self.shared.pool;
        let used = pool.slots_in(index) + partition.map_or(0, PartitionState::claimed);
        let tasks = pool.tasks_in(index) + partition.map_or(0, PartitionState::waiting);
        let demand = partition.map_or(0, |partition| partition.demand(now, self.slots));
        let more = self.most_tasks(index).saturating_sub(tasks).min(demand);
        let slots_each = partition.map_or(1, |partition| partition.slots_each);
        let more = if self.is_limited(index) { self.permitted(index, more.min(room)) } else { more };
        let own = self.unused_reserve(index, true);
        SlotRequest { partition: index, used, cap: used.saturating_add(more.saturating_mul(slots_each)), own }
    }

    /// Whether to wait because few slots are free and others will be in a moment: then one pull serves all of
    /// them.
    fn gathers(&mut self, room: usize, now: Instant) -> bool {
        let pool = &self.shared.pool;
        let since = *self.gathering_since.get_or_insert(now);
        let gathers =
            room < pool.quarter() && pool.settling() > 0 && now.saturating_duration_since(since) < GATHER;
        if !gathers {
            self.gathering_since = None;
        }
        gathers
    }

    /// Stops pulls. Core releases what they claim at that moment.
    pub(super) fn stop_pulls(&self, which: impl Fn(usize, &ActivePull) -> bool) {
        for (index, partition) in self.partitions.iter().enumerate() {
            if let Some(pull) = partition.pull.as_ref().filter(|pull| which(index, pull)) {
                pull.stop.cancel();
            }
        }
    }

    /// Pulls for this many slots.
    fn pull(&mut self, index: usize, slots: usize, wait: Duration, now: Instant) {
        let shared = self.shared.clone();
        let Some(config) = shared.partitions.get(index) else { return };
        let slots_each = self.partitions.get(index).map_or(1, |partition| partition.slots_each);
        let max = (slots / slots_each).max(1);
        // Asking for less than a whole group would cut it, however few slots are free.
        let members = config.group_members;
        let asked = if members > 1 { max.max(members) } else { max };
        // A pull that waits for messages does not keep many permits from others.
        let wanted = if !wait.is_zero() && self.is_limited(index) { members } else { asked };
        let Ok(permit) = self.take_for_pull(index, wanted, now) else { return };
        let asked = permit.as_ref().map_or(asked, |permit| permit.count().min(asked));
        let Some(partition) = self.partitions.get_mut(index) else { return };
        let stop = CancellationToken::new();
        let reserved = if wait.is_zero() { slots } else { 0 };
        let seen = shared.pool.ended();
        partition.pull = Some(ActivePull { reserved, stop: stop.clone(), seen, permit });
        // A burst ends when no messages are found.
        let mut pull = shared.queue.pull(&config.id).max(asked).wait(wait).thorough(self.burst);
        if let Some(lease) = config.lease {
            pull = pull.lease(lease);
        }
        let pulled = async move {
            let result = tokio::select! {
                biased;
                result = bring(pull, members) => Some(result),
                () = stop.cancelled() => None,
            };
            Pulled { partition: index, asked, result }
        };
        self.pulls.push(pulled.boxed());
    }

    /// Takes up what a finished pull brought, or notes why it failed.
    pub(super) fn finish_pull(&mut self, pulled: Pulled) {
        let now = self.shared.queue.clock().now();
        let (index, asked) = (pulled.partition, pulled.asked);
        let Some(partition) = self.partitions.get_mut(index) else { return };
        let pull = partition.pull.take();
        if partition.last_pull == LastPull::Empty {
            self.schedule.woken(index);
        }
        let error = match pulled.result {
            None => {
                partition.last_pull = LastPull::Unknown;
                return;
            }
            Some(Ok(brought)) => {
                self.hold_brought(index, asked, pull, brought, now);
                None
            }
            Some(Err(error)) => {
                self.note_failure(index, &error, now);
                Some(error)
            }
        };
        let mut control = self.shared.control();
        // An error is progress too: a restart would not repair the backend.
        control.progress_at = now;
        if let Some(failing) = control.failing.get_mut(index) {
            failing.pulled(error);
        }
    }

    fn hold_brought(
        &mut self,
        index: usize,
        asked: usize,
        pull: Option<ActivePull>,
        brought: Brought,
        now: Instant,
    ) {
        let Some(partition) = self.partitions.get_mut(index) else { return };
        let messages = brought.len();
        partition.last_pull = if messages >= asked { LastPull::More } else { LastPull::Empty };
        partition.empty_at = pull.as_ref().filter(|_| messages == 0).map(|pull| pull.seen);
        let permit = pull.and_then(|pull| pull.permit);
        match brought {
            Brought::Messages(messages) => partition.hold(messages, permit, &self.shared.routes, now),
            Brought::Groups(groups) => {
                let batches = batches(&self.shared, groups, now);
                partition.hold_batches(batches, permit, &self.shared.routes);
            }
        }
        (partition.errors, partition.retry_at) = (0, None);
    }

    fn note_failure(&mut self, index: usize, error: &Error, now: Instant) {
        let (Some(config), Some(partition)) =
            (self.shared.partitions.get(index), self.partitions.get_mut(index))
        else {
            return;
        };
        partition.failed(&config.id, error, now);
        if error.kind() == ErrorKind::Closed || (self.burst && partition.errors >= BURST_ERRORS) {
            self.failed = Some(error.clone());
        }
        if let Some(metrics) = self.metrics.get(index) {
            metrics.pull_errors.increment(1);
        }
    }
}

/// Awaits a pull, of whole groups if it may bring more than one member of each.
async fn bring(pull: Pull, members: usize) -> Result<Brought> {
    if members > 1 {
        return Ok(Brought::Groups(pull.whole_groups(members).await?));
    }
    Ok(Brought::Messages(pull.await?))
}
