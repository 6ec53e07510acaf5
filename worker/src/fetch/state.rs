//! What the loop knows: its partitions, its pulls, and when it has to look again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Error, Result};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::partition::{LastPull, PartitionState, Pulled};
use super::throttle::Throttle;
use crate::runner::LATE;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::telemetry::{PartitionMetrics, SeriesCache};
use crate::usage::Meter;

/// How often the loop goes round if nothing happens.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How long the loop waits for more slots to become free when only few are, so that one pull serves several.
pub(super) const GATHER: Duration = Duration::from_millis(2);
/// How long waiting pulls may continue while no slot is free. Messages that they then bring are held for as
/// long, and released.
pub(super) const SATURATED: Duration = Duration::from_millis(100);

/// Whether a partition takes on nothing; a partition that does not exist never takes on anything.
pub(super) fn is_suspended(suspended: &[bool], index: usize) -> bool {
    suspended.get(index).copied().unwrap_or(true)
}

/// One run of a worker.
pub(crate) struct Fetch {
    pub(super) shared: Arc<Shared>,
    pub(super) partitions: Vec<PartitionState>,
    pub(super) pulls: FuturesUnordered<BoxFuture<'static, Pulled>>,
    pub(super) schedule: Schedule,
    pub(super) meter: Meter,
    /// The number of slots that partitions reserve, in total.
    pub(super) reserved: usize,
    /// The number of slots when the loop last looked.
    pub(super) slots: usize,
    /// The number of slots decreased, and more than that are still occupied.
    pub(super) has_too_many: bool,
    /// Whether the run ends when there is nothing more to do.
    pub(super) burst: bool,
    pub(super) series: SeriesCache,
    pub(super) metrics: Vec<PartitionMetrics>,
    /// The partition whose next task the free slots are kept for, because there are not enough of them yet.
    pub(super) kept_for: Option<usize>,
    /// Since when no slot is free.
    pub(super) full_since: Option<Instant>,
    /// Since when few free slots have been waiting for more.
    pub(super) gathering_since: Option<Instant>,
    /// How many tasks had ended when a message was last released because no slot became free.
    pub(super) released_at: Option<u64>,
    pub(super) next_tick: Instant,
    pub(super) throttle: Throttle,
    /// The number of tasks that have started in this run.
    pub(super) started: u64,
    /// Whether the process occupies more memory than it may.
    pub(super) is_over_memory: bool,
    pub(super) failed: Option<Error>,
}

impl Fetch {
    /// # Errors
    /// `InvalidInput` for a lease that the backend cannot give.
    pub(crate) fn new(shared: Arc<Shared>, burst: bool) -> Result<Self> {
        let configs = || shared.partitions.iter();
        let partitions = configs()
            .map(|config| {
                let settle_pulls = shared.queue.settle_pulls(&config.id, config.lease)?;
                Ok(PartitionState::new(settle_pulls, config.group_members > 1))
            })
            .collect::<Result<_>>()?;
        let weights = configs().map(|config| config.weight);
        Ok(Self {
            partitions,
            pulls: FuturesUnordered::new(),
            schedule: Schedule::new(shared.config.sharing, shared.pool.slots(), weights),
            meter: Meter::default(),
            reserved: 0,
            slots: 0,
            has_too_many: false,
            burst,
            series: SeriesCache::default(),
            metrics: configs().map(|config| PartitionMetrics::new(&config.id)).collect(),
            kept_for: None,
            full_since: None,
            gathering_since: None,
            released_at: None,
            next_tick: shared.queue.clock().now(),
            throttle: Throttle::new(),
            started: 0,
            is_over_memory: false,
            failed: None,
            shared,
        })
    }

    /// The partitions that take on nothing now: those that are paused, or all of them while there are no
    /// slots, the worker is quiet or the run is about to end.
    pub(super) fn suspended(&self) -> Vec<bool> {
        let control = self.shared.control();
        let none = self.slots == 0 || control.quiet || self.tasks_left() == 0;
        if none { vec![true; self.partitions.len()] } else { control.paused.clone() }
    }

    /// Takes up messages that settlements brought.
    pub(super) fn hold_refills(&mut self, now: Instant) {
        let mut any = false;
        for partition in &mut self.partitions {
            any |= partition.hold_refills(&self.shared.routes, now);
        }
        if any {
            self.shared.control().progress_at = now;
        }
    }

    /// Lets settlements bring the next message if no other partition could want the slot.
    pub(super) fn open_refills(&self, suspended: &[bool]) {
        let mut willing = self
            .partitions
            .iter()
            .enumerate()
            .filter(|(_, partition)| partition.last_pull != LastPull::Empty)
            .map(|(index, _)| index);
        // One message for one slot does not work out if tasks take several slots.
        let is_near_end = self.starts_left() <= self.slots;
        let suits = !self.burst && !self.has_too_many && !is_near_end && !self.shared.routes.are_weighted();
        let only = willing.next().filter(|_| willing.next().is_none() && suits);
        for (index, partition) in self.partitions.iter().enumerate() {
            let open = only == Some(index)
                && !is_suspended(suspended, index)
                && partition.takes_refills()
                && self.passes_on(index);
            partition.settle_pulls.set_open(open);
        }
    }

    /// The largest number of tasks of a partition.
    pub(super) fn most_tasks(&self, index: usize) -> usize {
        self.shared.partitions.get(index).map_or(0, |config| config.concurrency)
    }

    /// How long a partition may hold messages that do not start.
    pub(super) fn hold(&self, index: usize) -> Duration {
        let partition = self.partitions.get(index);
        let parked = partition.is_some_and(|partition| partition.parked > 0);
        let in_groups = partition.is_some_and(|partition| partition.in_groups);
        if parked && self.burst {
            Duration::MAX
        } else if parked || in_groups || self.shared.config.prefetch > 0 {
            self.shared.config.prefetch_ttl
        } else {
            SATURATED
        }
    }

    /// The position of the task that the free slots are kept for, if it is in this partition.
    pub(super) fn spared(&self, index: usize) -> Option<usize> {
        let partition = self.partitions.get(index).filter(|_| self.kept_for == Some(index));
        partition?.startable(&self.shared.routes)
    }

    /// Whether a burst has nothing more to do: no task runs, and none has ended since every partition was
    /// found empty.
    pub(super) fn is_done(&mut self, suspended: &[bool]) -> bool {
        let pool = &self.shared.pool;
        let held =
            self.partitions.iter().any(|partition| !partition.ready.is_empty() || partition.pull.is_some());
        if held || pool.occupied() > 0 {
            return false;
        }
        let ended = pool.ended();
        let mut done = true;
        for (partition, suspended) in self.partitions.iter_mut().zip(suspended) {
            if *suspended || partition.empty_at == Some(ended) {
                continue;
            }
            done = false;
            if partition.last_pull == LastPull::Empty {
                partition.last_pull = LastPull::Unknown;
                // The loop goes round once more, and pulls.
                pool.changed.notify_one();
            }
        }
        done
    }

    /// When the loop must go round if nothing else happens.
    pub(super) fn wake_at(&self, now: Instant) -> Instant {
        let mut wake = self.next_tick;
        for (index, partition) in self.partitions.iter().enumerate() {
            let retry = partition.retry_at.filter(|at| *at > now);
            let first = partition.first_to_release(self.spared(index));
            let overdue = first.and_then(|ready| ready.claimed_at.checked_add(self.hold(index)));
            let probe = partition.probe_at.filter(|at| *at > now);
            wake = [retry, overdue, probe].into_iter().flatten().fold(wake, Instant::min);
        }
        let full = self.full_since.map(|since| since + SATURATED).filter(|at| *at > now);
        let gathered = self.gathering_since.map(|since| since + GATHER).filter(|at| *at > now);
        let runs = Some(now + LATE).filter(|_| self.shared.runs.is_left());
        [full, gathered, runs].into_iter().flatten().fold(wake, Instant::min)
    }
}
