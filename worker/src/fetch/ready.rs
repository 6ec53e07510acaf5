//! Messages that are held and have not started: they start when a slot is free, or are released if none
//! becomes free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyqueue::{Delivery, QueueMessageStatus};

use super::partition::{Ready, waits_for_kind};
use super::state::{Fetch, is_suspended};
use crate::handler::Route;
use crate::pool::SlotPermit;
use crate::schedule::SlotRequest;
use crate::shared::Shared;
use crate::summary::Outcome;
use crate::work::{Verdict, Work};

/// How long a task is deferred if its kind is full.
const KIND_FULL: Duration = Duration::from_secs(1);

impl Fetch {
    /// Starts held messages while there are free slots, except in partitions that are suspended.
    pub(super) fn start_ready(&mut self, suspended: &[bool]) {
        let mut started = Vec::new();
        let held = self.partitions.iter().enumerate().filter(|(_, partition)| !partition.ready.is_empty());
        let held = held.map(|(index, _)| index).filter(|index| !is_suspended(suspended, *index));
        let held: Vec<usize> = held.collect();
        for index in &held {
            self.supply(*index);
        }
        self.kept_for = None;
        let mut kept: Vec<usize> = Vec::new();
        while let Some(free) = self.slots.checked_sub(self.shared.pool.occupied()).filter(|free| *free > 0) {
            if self.tasks_left() == 0 {
                break;
            }
            // Other partitions do not get the slots that are kept for a task or reserved by partitions.
            let shared = if kept.is_empty() { self.unreserved(free, false) } else { 0 };
            let Some(index) = self.next_to_start(&held, &kept, shared) else { break };
            if self.needed(index) > free.min(shared + self.unused_reserve(index, false)) {
                self.kept_for = self.kept_for.or(Some(index));
                kept.push(index);
                continue;
            }
            let Some(ready) = self.take_startable(index) else { break };
            started.extend(self.start(index, ready));
        }
        self.shared.runs.add(&self.shared, started);
        let mut waits = false;
        for partition in &mut self.partitions {
            partition.count(&self.shared.routes);
            waits |= !partition.ready.is_empty();
        }
        self.shared.pool.eager.store(waits || self.burst, Ordering::SeqCst);
    }

    /// The partition whose turn it is, among those that hold a message that could start and that no slots are
    /// kept for yet.
    fn next_to_start(&self, held: &[usize], kept: &[usize], shared: usize) -> Option<usize> {
        let requests = held.iter().filter(|index| !kept.contains(index));
        let mut requests = requests.filter_map(|index| self.start_request(*index));
        if let [_] = held {
            let could = |request: &SlotRequest| request.used < request.cap && request.own + shared > 0;
            return requests.next().filter(could).map(|request| request.partition);
        }
        self.schedule.next(&requests.collect::<Vec<_>>(), shared)
    }

    /// The request of a partition that holds a message that could start.
    fn start_request(&self, index: usize) -> Option<SlotRequest> {
        self.partitions.get(index)?.startable(&self.shared.routes)?;
        if !self.may_start(index) {
            return None;
        }
        let used = self.shared.pool.slots_in(index);
        let more = self.most_tasks(index).saturating_sub(self.shared.pool.tasks_in(index));
        let own = self.unused_reserve(index, false);
        Some(SlotRequest { partition: index, used, cap: used.saturating_add(more), own })
    }

    /// How many slots the next task of a partition takes.
    fn needed(&self, index: usize) -> usize {
        if !self.shared.routes.are_weighted() {
            return 1;
        }
        let partition = self.partitions.get(index);
        let next =
            partition.and_then(|partition| partition.ready.get(partition.startable(&self.shared.routes)?));
        next.map_or(1, |ready| self.granted(index, ready.slots))
    }

    fn take_startable(&mut self, index: usize) -> Option<Ready> {
        let partition = self.partitions.get_mut(index)?;
        let position = partition.startable(&self.shared.routes)?;
        partition.ready.remove(position)
    }

    /// Gives a message its slots. A message that must not start after all is dropped, which releases it.
    fn start(&mut self, index: usize, mut ready: Ready) -> Option<Work> {
        let held = self.start_permit(index, &mut ready).ok()?;
        let slots = self.granted(index, ready.slots);
        self.schedule.started(index, slots);
        let config = self.shared.partitions.get(index)?;
        let route = self.shared.routes.of(ready.delivery.message()).cloned();
        let kind = route.as_ref().map(|route| route.kind.name.as_str());
        let series = self.series.of(index, &config.id, kind);
        let permit = SlotPermit::new(&self.shared.pool, index, slots, route.clone()).holding(held);
        if let Some(route) = route.as_ref().filter(|route| route.takes_batches()) {
            self.started = self.started.saturating_add(ready.len() as u64);
            self.start_batch(permit, ready, route, &series);
            return None;
        }
        let verdict = self.shared.judge(&ready.delivery, route);
        self.started = self.started.saturating_add(u64::from(matches!(verdict, Verdict::Run(_))));
        Some(Work { permit, verdict, delivery: ready.delivery, claimed_at: ready.claimed_at, series })
    }

    /// Releases messages that no slot became free for, and defers those of full kinds beyond what may wait.
    pub(super) fn release_overdue(&mut self, now: Instant, suspended: &[bool]) {
        let mut overdue = Vec::new();
        for index in 0..self.partitions.len() {
            let ttl = if is_suspended(suspended, index) { Duration::ZERO } else { self.hold(index) };
            let spared = self.spared(index).filter(|_| !ttl.is_zero());
            let Some(partition) = self.partitions.get_mut(index) else { continue };
            let late = partition.take_overdue(now, ttl, spared);
            if !late.is_empty() {
                partition.count(&self.shared.routes);
            }
            overdue.extend(late.into_iter().map(|ready| (index, ready)));
            // More than there are slots would be kept from other workers for nothing.
            let excess = partition.take_overparked(&self.shared.routes, self.slots, now);
            overdue.extend(excess.into_iter().map(|ready| (index, ready)));
        }
        if self.kept_for.is_some_and(|kept| is_suspended(suspended, kept)) {
            self.shared.pool.changed.notify_one(); // others can have those slots
        }
        for (index, ready) in overdue {
            if waits_for_kind(&ready, &self.shared.routes) {
                let status = self.shared.deferred(KIND_FULL);
                self.end(index, ready, status, Outcome::Deferred);
            }
            // Anything else is released by being dropped.
            self.released_at = Some(self.shared.pool.ended());
        }
    }

    /// Settles a message that will not run.
    fn end(&mut self, index: usize, ready: Ready, status: QueueMessageStatus, outcome: Outcome) {
        let Some(config) = self.shared.partitions.get(index) else { return };
        let work = Work {
            permit: SlotPermit::new(&self.shared.pool, index, 1, None),
            verdict: Verdict::End(status, outcome),
            delivery: ready.delivery,
            claimed_at: ready.claimed_at,
            series: self.series.of(index, &config.id, None),
        };
        self.shared.runs.add(&self.shared, [work]);
    }
}

impl Shared {
    /// Whether a delivery may run.
    pub(super) fn judge(&self, delivery: &Delivery, route: Option<Arc<Route>>) -> Verdict {
        let crashes = self.crashes(delivery);
        if crashes > self.config.max_crashes {
            let reason = format!("lost {crashes} times with the process that ran it");
            return Verdict::End(QueueMessageStatus::poisonous(reason), Outcome::Dead);
        }
        if let Some(route) = route {
            return Verdict::Run(route);
        }
        let kind = crate::context::kind(delivery.message());
        self.unknown_task(delivery, &format!("its kind {kind:?} has no handler here")).into_verdict()
    }
}
