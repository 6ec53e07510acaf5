//! Permits, taken before a pull, and before a message that came without one starts.

use std::time::Instant;

use super::partition::{PartitionState, Ready, waits_for_kind};
use super::state::{Fetch, SATURATED};
use crate::handler::Routes;
use crate::permits::Permit;

/// Waits until there may be more permits; forever if none are needed.
pub(super) async fn changed(shared: &crate::shared::Shared) {
    match &shared.config.permits {
        Some(permits) => permits.changed().await,
        None => std::future::pending().await,
    }
}

impl Fetch {
    /// How many of `wanted` tasks of a partition may be pulled now.
    pub(super) fn permitted(&self, index: usize, wanted: usize) -> usize {
        self.permits_for(index, wanted).map_or(wanted, |room| room.min(wanted))
    }

    /// Whether a limit applies to the partition.
    pub(super) fn is_limited(&self, index: usize) -> bool {
        self.permits_for(index, 0).is_some()
    }

    /// Whether settlements may bring the next tasks of a partition, as far as permits are concerned.
    pub(super) fn passes_on(&self, index: usize) -> bool {
        let config = self.shared.partitions.get(index);
        let (Some(config), Some(permits)) = (config, &self.shared.config.permits) else { return true };
        let Some(partition) = self.partitions.get(index) else { return false };
        // A message comes before the settlement that brought it releases a permit. More of them than there
        // are settlements under way wait for permits that somebody else has got. They must not wait for long.
        let lacking = partition.without_permit(&self.shared.routes);
        let waits = lacking > self.shared.pool.settling() || self.hold(index) > SATURATED;
        !(waits && self.is_limited(index)) && permits.passes_on(&config.id)
    }

    fn permits_for(&self, index: usize, wanted: usize) -> Option<usize> {
        let config = self.shared.partitions.get(index)?;
        self.shared.config.permits.as_ref()?.room(&config.id, wanted)
    }

    /// Takes permits for a pull of `wanted` messages; the error means that there are none.
    pub(super) fn take_permits(&self, index: usize, wanted: usize) -> Result<Option<Permit>, ()> {
        let config = self.shared.partitions.get(index).ok_or(())?;
        let Some(permits) = &self.shared.config.permits else { return Ok(None) };
        Permit::take(permits, &config.id, wanted).map(Some).ok_or(())
    }

    /// Takes permits for the messages that settlements have brought, all at once.
    pub(super) fn supply(&mut self, index: usize) {
        let routes = &self.shared.routes;
        let lacking = self.partitions.get(index).map_or(0, |partition| partition.without_permit(routes));
        let taken = if lacking > 0 { self.take_permits(index, lacking) } else { Ok(None) };
        if let (Ok(Some(mut permit)), Some(partition)) = (taken, self.partitions.get_mut(index)) {
            partition.hand_out(&mut permit, &self.shared.routes);
        }
    }

    /// Takes permits for a pull like [`take_permits`](Self::take_permits), but leaves theirs to the messages
    /// that settlements have brought.
    pub(super) fn take_for_pull(
        &mut self,
        index: usize,
        wanted: usize,
        now: Instant,
    ) -> Result<Option<Permit>, ()> {
        let Some(mut permit) = self.take_permits(index, wanted)? else { return Ok(None) };
        if self.is_limited(index) {
            // In this order: a message that a settlement brings is there before its permit is free.
            self.hold_refills(now);
            self.partitions.get_mut(index).ok_or(())?.hand_out(&mut permit, &self.shared.routes);
        }
        if permit.count() > 0 { Ok(Some(permit)) } else { Err(()) }
    }

    /// Whether the next task of a partition may start, as far as permits are concerned.
    pub(super) fn may_start(&self, index: usize) -> bool {
        let config = self.shared.partitions.get(index);
        let (Some(config), Some(permits)) = (config, &self.shared.config.permits) else { return true };
        let Some(partition) = self.partitions.get(index) else { return false };
        let next = partition.startable(&self.shared.routes).and_then(|next| partition.ready.get(next));
        let Some(next) = next else { return false };
        let has_permit = next.permit.is_some()
            || permits.room(&config.id, next.len()).is_none_or(|room| room >= next.len());
        has_permit && permits.can_start(&config.id, partition.waiting())
    }

    /// The permit of a message that starts now; the error means that it must not start.
    pub(super) fn start_permit(&self, index: usize, ready: &mut Ready) -> Result<Option<Permit>, ()> {
        if self.shared.config.permits.is_none() {
            return Ok(None);
        }
        let permit = match ready.permit.take() {
            Some(permit) => permit,
            None => self.take_permits(index, ready.len())?.ok_or(())?,
        };
        let is_enough = permit.count() >= ready.len();
        Some(permit).filter(|_| is_enough).and_then(Permit::started).map(Some).ok_or(())
    }
}

impl PartitionState {
    /// How many messages have no permit yet, because settlements brought them. Those of full kinds, which
    /// hold up nobody, take theirs when their kinds have room.
    pub(super) fn without_permit(&self, routes: &Routes) -> usize {
        self.ready.iter().filter(|ready| lacks_permit(ready, routes)).map(Ready::len).sum()
    }

    /// Hands permits to the messages that have none, in order: one without a permit would hold up those
    /// behind it that have theirs.
    pub(super) fn hand_out(&mut self, permit: &mut Permit, routes: &Routes) {
        for ready in self.ready.iter_mut().filter(|ready| lacks_permit(ready, routes)) {
            ready.permit = permit.split(ready.len());
        }
    }
}

fn lacks_permit(ready: &Ready, routes: &Routes) -> bool {
    ready.permit.is_none() && !waits_for_kind(ready, routes)
}
