//! The permits of one worker.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::async_trait;
use anyqueue::{CancellationToken, Clock, Error, MessageData, PartitionId, Result};
use anyqueue_worker::{Admission, Permits};

use super::keeper::Keeper;

/// The timing with which a worker holds permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitOptions {
    /// The time between beats. With each beat a worker renews the permits that it holds, releases those
    /// that it does not need, and looks for new limits. Default: 5 s.
    pub every: Duration,
    /// How long permits remain a worker's own if it is not heard of again. Default: 15 s.
    pub valid_for: Duration,
}

impl Default for PermitOptions {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), valid_for: Duration::from_secs(15) }
    }
}

impl PermitOptions {
    /// Sets [`every`](Self::every).
    #[must_use]
    pub const fn with_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Sets [`valid_for`](Self::valid_for), which must be at least three times the time between beats.
    #[must_use]
    pub const fn with_valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let most = Duration::from_hours(24);
        let shortest = Duration::from_millis(10);
        if self.every < shortest || self.valid_for > most || self.valid_for < self.every.saturating_mul(3) {
            let (every, valid) =
                (humantime::format_duration(self.every), humantime::format_duration(self.valid_for));
            return Err(Error::invalid(format!(
                "permits renewed every {every} that count for {valid}: let them count for at least three times as long, and at most a day"
            )));
        }
        Ok(())
    }
}

/// The permits of one worker, for [`WorkerBuilder::permits`](anyqueue_worker::WorkerBuilder::permits): see
/// [`Limits::permits`](super::Limits::permits).
#[must_use = "give it to a worker"]
pub struct LimitPermits(pub(super) Arc<Keeper>);

impl fmt::Debug for LimitPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitPermits").field("session", &self.0.me.session).finish_non_exhaustive()
    }
}

impl LimitPermits {
    /// The time; `None` before the worker has begun.
    fn now(&self) -> Option<Instant> {
        self.0.clock.get().map(Clock::now)
    }
}

#[async_trait]
impl Permits for LimitPermits {
    fn room(&self, partition: &PartitionId, wanted: usize) -> Option<usize> {
        let Some(now) = self.now() else { return Some(0) };
        let (room, is_short) = self.0.stock().room(partition, wanted, now);
        if is_short {
            self.0.asked.notify_one();
        }
        room
    }

    fn passes_on(&self, partition: &PartitionId) -> bool {
        self.now().is_some_and(|now| self.0.stock().passes_on(partition, now))
    }

    fn take(&self, partition: &PartitionId, wanted: usize) -> usize {
        self.now().map_or(0, |now| self.0.stock().take(partition, wanted, now))
    }

    fn can_start(&self, partition: &PartitionId, waiting: usize) -> bool {
        let Some(now) = self.now() else { return false };
        let (may, is_short) = self.0.stock().can_start(partition, waiting, now);
        if is_short {
            self.0.asked.notify_one();
        }
        may
    }

    fn start(&self, partition: &PartitionId, permits: usize) -> Option<Arc<CancellationToken>> {
        let now = self.now()?;
        self.0.stock().start(partition, permits, now)
    }

    fn release(&self, partition: &PartitionId, permits: usize, started: bool) {
        let Some(now) = self.now() else { return };
        if self.0.stock().release(partition, permits, started, now) {
            self.0.asked.notify_one();
        }
    }

    fn grace(&self) -> Duration {
        self.0.me.lead()
    }

    fn looks_at_messages(&self) -> bool {
        self.0.gates.are_there()
    }

    async fn admit(&self, message: &MessageData) -> Admission {
        self.0.admit(message).await
    }

    async fn changed(&self) {
        self.0.changed.notified().await;
    }

    async fn keep(&self, worker: &str, partitions: &[PartitionId], clock: &Clock) {
        let clock = self.0.clock.get_or_init(|| clock.clone());
        self.0.keep(worker, partitions, clock).await;
    }

    async fn leave(&self) {
        self.0.leave().await;
    }

    fn problem(&self) -> Option<String> {
        self.0.problem()
    }
}
