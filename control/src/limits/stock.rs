//! What a process has of all its limits, and what its tasks use of that. Nothing here waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use anyqueue::{CancellationToken, PartitionId};

use super::held::Held;

/// What a process has of its limits.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// Whether the limits have been read: before that, nobody knows what may run.
    pub(super) is_known: bool,
    /// Whether the process is leaving, and takes nothing more.
    pub(super) is_leaving: bool,
    /// The name of the worker, for people.
    pub(super) who: String,
    /// The partitions for which limits are read.
    pub(super) served: Vec<PartitionId>,
    usages: HashMap<PartitionId, Usage>,
    /// By the name of the limit.
    pub(super) limits: BTreeMap<String, Held>,
}

/// What the tasks of a partition use, whether limited or not: a limit can be put while they run.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// The permits that tasks have.
    pub(super) in_use: usize,
    /// How many of those belong to tasks that have started.
    pub(super) started: usize,
    /// The most that were in use since the last look at all limits.
    pub(super) peak: usize,
    /// Cancelled to stop the tasks that have started. They share one token: each clone of it would lock it.
    revoked: Arc<CancellationToken>,
}

impl Stock {
    /// How many of `wanted` permits could be taken; `None` if there is no limit. Also returns whether to
    /// request more.
    pub(super) fn room(
        &mut self,
        partition: &PartitionId,
        wanted: usize,
        now: Instant,
    ) -> (Option<usize>, bool) {
        if !self.is_open(partition) {
            return (Some(0), false);
        }
        let (in_use, unstarted) = self.in_use(partition);
        let (mut least, mut is_short) = (None, false);
        for held in self.of(partition) {
            let room = held.room(in_use, unstarted, now);
            least = Some(least.map_or(room, |least: usize| least.min(room)));
            if wanted > 0 {
                held.ask(wanted.saturating_sub(room), now);
                is_short |= room < wanted;
            }
        }
        (least, is_short)
    }

    /// Whether a permit that is released can be expected to be there for the next task.
    pub(super) fn passes_on(&mut self, partition: &PartitionId, now: Instant) -> bool {
        let in_use = self.in_use(partition).0;
        self.is_open(partition) && self.of(partition).all(|held| held.passes_on(in_use, now))
    }

    /// Whether permits of a partition are handed out at all.
    fn is_open(&self, partition: &PartitionId) -> bool {
        self.is_known && !self.is_leaving && self.served.contains(partition)
    }

    pub(super) fn take(&mut self, partition: &PartitionId, wanted: usize, now: Instant) -> usize {
        let taken = self.room(partition, 0, now).0.map_or(wanted, |room| room.min(wanted));
        let usage = self.usage(partition);
        usage.in_use += taken;
        usage.peak = usage.peak.max(usage.in_use);
        taken
    }

    /// Whether tasks with permits may start, of `waiting` ones. Also returns whether to request more.
    pub(super) fn can_start(
        &mut self,
        partition: &PartitionId,
        waiting: usize,
        now: Instant,
    ) -> (bool, bool) {
        let (mut may, mut is_short) = (true, false);
        let started = self.started(partition);
        for held in self.of(partition) {
            let most = held.can_start(started, now);
            held.waiting = waiting;
            may &= most > 0;
            is_short |= most < waiting;
        }
        (may, is_short)
    }

    /// Notes that tasks start. Returns a token that is cancelled when they have to stop.
    pub(super) fn start(
        &mut self,
        partition: &PartitionId,
        permits: usize,
        now: Instant,
    ) -> Option<Arc<CancellationToken>> {
        let started = self.started(partition);
        if self.of(partition).any(|held| held.can_start(started, now) < permits) {
            return None;
        }
        for tokens in self.of(partition).filter_map(|held| held.rate.as_mut()) {
            tokens.spend(permits);
        }
        let usage = self.usage(partition);
        usage.started += permits;
        Some(usage.revoked.clone())
    }

    /// Returns whether there is something to give to others.
    pub(super) fn release(
        &mut self,
        partition: &PartitionId,
        permits: usize,
        started: bool,
        now: Instant,
    ) -> bool {
        let Some(usage) = self.usages.get_mut(partition) else { return false };
        usage.in_use = usage.in_use.saturating_sub(permits);
        if started {
            usage.started = usage.started.saturating_sub(permits);
        }
        let in_use = usage.in_use;
        self.of(partition).any(|held| held.is_needy(in_use, now))
    }

    /// Stops the running tasks of a partition.
    pub(super) fn revoke(&mut self, partition: &PartitionId) {
        let usage = self.usage(partition);
        std::mem::take(&mut usage.revoked).cancel();
        if usage.started > 0 {
            tracing::warn!(%partition, running = usage.started, "the permits of running tasks could not be kept in time: they are stopped, and released");
        }
    }

    /// Stops tasks whose permits are about to end. Returns when to look next.
    pub(super) fn revoke_due(&mut self, now: Instant) -> Option<Instant> {
        let (mut due, mut next) = (Vec::new(), None);
        for held in self.limits.values_mut() {
            let Some(block) = held.cap.as_mut().filter(|block| !block.is_revoked) else { continue };
            if block.revoke_at <= now {
                block.is_revoked = true;
                due.push(held.partition.clone());
            } else {
                next = Some(next.map_or(block.revoke_at, |next: Instant| next.min(block.revoke_at)));
            }
        }
        for partition in due {
            self.revoke(&partition);
        }
        next
    }

    /// The limits for which there is something to request or to release.
    pub(super) fn needy(&self, now: Instant) -> Vec<String> {
        let needy = |held: &Held| held.is_needy(self.in_use(&held.partition).0, now);
        self.limits.iter().filter(|(_, held)| needy(held)).map(|(name, _)| name.clone()).collect()
    }

    /// When the first limit will be needy.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.limits.values().filter_map(|held| held.wake_at(self.in_use(&held.partition).0, now)).min()
    }

    /// Returns whether a rate that somebody waited for allows the next task now.
    pub(super) fn take_hints(&mut self, now: Instant) -> bool {
        let mut any = false;
        for held in self.limits.values_mut() {
            if held.hint_at.take_if(|at| *at <= now).is_some() {
                any = true;
            }
        }
        any
    }

    /// The permits in use, and how many of them belong to tasks that have not started.
    pub(super) fn in_use(&self, partition: &PartitionId) -> (usize, usize) {
        let usage = self.usages.get(partition);
        usage.map_or((0, 0), |usage| (usage.in_use, usage.in_use.saturating_sub(usage.started)))
    }

    fn started(&self, partition: &PartitionId) -> usize {
        self.usages.get(partition).map_or(0, |usage| usage.started)
    }

    pub(super) fn usage(&mut self, partition: &PartitionId) -> &mut Usage {
        self.usages.entry(partition.clone()).or_default()
    }

    /// Postpones all requests and returns for this limit until then.
    pub(super) fn put_off(&mut self, name: &str, until: Instant) {
        if let Some(held) = self.limits.get_mut(name) {
            (held.next_try, held.next_start) = (Some(until), Some(until));
            (held.give_at, held.hint_at) = (Some(until), None);
        }
    }

    /// Restarts the counting of peaks.
    pub(super) fn forget_peaks(&mut self) {
        for usage in self.usages.values_mut() {
            usage.peak = usage.in_use;
        }
    }

    fn of(&mut self, partition: &PartitionId) -> impl Iterator<Item = &mut Held> {
        self.limits.values_mut().filter(move |held| held.partition == *partition)
    }
}

/// Converts to 64 bits.
pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
