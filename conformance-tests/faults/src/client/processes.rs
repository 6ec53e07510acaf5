//! Faults that only other processes notice: state that only the client has, and that is gone with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Extension, Lease, PullRequest, RawDelivery, Settlement, Storage};
use anyqueue::{ExtendOutcome, PartitionId, Result, SettleOutcome};

use crate::basic::Basic;
use crate::state::Local;

/// The lease that the storage gets while the client keeps track of the real one.
const ENDLESS: Duration = Duration::from_hours(1);

impl Basic {
    /// Pulls past what this client holds already, and releases all of it at once, so that others can take it.
    pub(crate) async fn pull_and_let_go(
        &self,
        place: &PartitionId,
        mut request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        let (max, now, lease) = (request.max, Instant::now(), request.lease);
        let held: Vec<_> = {
            let mut local = self.local();
            local.held.retain(|_, until| *until > now);
            local.held.keys().map(|lease| lease.id).collect()
        };
        request.max += held.len();
        let mut got = self.inner.pull(place, request).await?;
        let release = |delivery: &RawDelivery| Settlement::new(delivery.lease.clone(), Action::Release);
        self.inner.settle(&got.iter().map(release).collect::<Vec<_>>()).await;
        got.retain(|delivery| !held.contains(&delivery.lease.id));
        got.truncate(max);
        self.local().held.extend(got.iter().map(|delivery| (delivery.lease.clone(), Instant::now() + lease)));
        Ok(got)
    }

    pub(crate) async fn settle_what_it_let_go(
        &self,
        lease: &Lease,
        action: &Action,
    ) -> Result<SettleOutcome> {
        if self.local().held.remove(lease).is_none() {
            return Ok(SettleOutcome::Lost);
        }
        if let (Action::Remove, Some(inspect)) = (action, self.inner.inspect()) {
            inspect.delete(&lease.partition, &[lease.id]).await;
        }
        Ok(SettleOutcome::Settled)
    }

    /// Pulls with leases that practically never end, and returns messages that were not settled in time,
    /// unless this process is gone by then.
    pub(crate) async fn pull_and_watch(
        &self,
        place: &PartitionId,
        mut request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        let lease = std::mem::replace(&mut request.lease, ENDLESS);
        let got = self.inner.pull(place, request).await?;
        for delivery in &got {
            self.local().held.insert(delivery.lease.clone(), Instant::now() + lease);
            tokio::spawn(watch(self.inner.clone(), self.local.clone(), delivery.lease.clone()));
        }
        Ok(got)
    }

    pub(crate) async fn extend_its_watch(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let now = Instant::now();
        let endless = |extension: &Extension| Extension { duration: ENDLESS, ..extension.clone() };
        for extension in extensions {
            if let Some(until) = self.local().held.get_mut(&extension.lease) {
                *until = now + extension.duration;
            }
        }
        self.inner.extend(&extensions.iter().map(endless).collect::<Vec<_>>()).await
    }
}

/// Returns a message that is still held when its lease ends.
async fn watch(inner: Arc<dyn Storage>, local: Arc<Mutex<Local>>, lease: Lease) {
    let until = || local.lock().unwrap_or_else(PoisonError::into_inner).held.get(&lease).copied();
    while let Some(until) = until().filter(|until| *until > Instant::now()) {
        tokio::time::sleep_until(until.into()).await;
    }
    // If the message was settled meanwhile, this lease is lost, and nothing happens.
    inner.settle(&[Settlement::new(lease, Action::Retry)]).await;
}
