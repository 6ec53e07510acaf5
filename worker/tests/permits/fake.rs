//! Permits that a test hands out.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyqueue::adapter::async_trait;
use anyqueue::{CancellationToken, Clock, PartitionId};
use anyqueue_worker::Permits;
use tokio::sync::Notify;

/// Those of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<(Mutex<State>, Notify)>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// `None`: as many as one likes.
    pub(crate) cap: Option<usize>,
    /// Whether permits pass on although there is a cap, however many are in use.
    pub(crate) passes_on: bool,
    pub(crate) is_closed: bool,
    in_use: usize,
    started: usize,
    pub(crate) most: usize,
    taken: usize,
    pub(crate) revoked: Arc<CancellationToken>,
    is_kept: bool,
    left: usize,
}

impl Fake {
    pub(crate) fn of(cap: usize) -> Self {
        let fake = Self::default();
        fake.state().cap = Some(cap);
        fake
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.1.notify_one();
    }

    /// What is in use, and what of that has started.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        self.see(|state| (state.in_use, state.started))
    }

    /// Looks, and lets go at once.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state())
    }

    pub(crate) fn most(&self) -> usize {
        self.see(|state| state.most)
    }

    pub(crate) fn left(&self) -> usize {
        self.see(|state| state.left)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.see(|state| state.is_kept)
    }
}

struct Kept<'a>(&'a Fake);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.state().is_kept = false;
    }
}

#[async_trait]
impl Permits for Fake {
    fn room(&self, _: &PartitionId, _: usize) -> Option<usize> {
        let state = self.state();
        state.cap.map(|cap| cap.saturating_sub(state.in_use))
    }

    fn passes_on(&self, partition: &PartitionId) -> bool {
        self.see(|state| state.passes_on) || self.room(partition, 0).is_none()
    }

    fn take(&self, partition: &PartitionId, wanted: usize) -> usize {
        let taken = self.room(partition, wanted).map_or(wanted, |room| room.min(wanted));
        let mut state = self.state();
        state.in_use += taken;
        state.taken += taken;
        state.most = state.most.max(state.in_use);
        taken
    }

    fn can_start(&self, _: &PartitionId, _: usize) -> bool {
        !self.state().is_closed
    }

    fn start(&self, _: &PartitionId, permits: usize) -> Option<Arc<CancellationToken>> {
        let mut state = self.state();
        state.started += permits;
        Some(state.revoked.clone())
    }

    fn release(&self, _: &PartitionId, permits: usize, started: bool) {
        self.change(|state| {
            state.in_use -= permits;
            state.started -= if started { permits } else { 0 };
        });
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn changed(&self) {
        self.0.1.notified().await;
    }

    async fn keep(&self, worker: &str, partitions: &[PartitionId], _: &Clock) {
        assert_eq!((worker, partitions.len()), ("w", 1));
        self.state().is_kept = true;
        let _kept = Kept(self);
        std::future::pending::<()>().await;
    }

    async fn leave(&self) {
        assert!(!self.is_kept());
        self.state().left += 1;
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
