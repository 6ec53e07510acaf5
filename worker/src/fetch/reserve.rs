//! Slots that are reserved for partitions.

use super::partition::PartitionState;
use super::state::Fetch;
use crate::config::PartitionConfig;

impl Fetch {
    /// The number of reserved slots that a partition does not use. With `with_claims`, slots that its
    /// messages wait for count as used.
    pub(super) fn unused_reserve(&self, index: usize, with_claims: bool) -> usize {
        let reserve = self.shared.partitions.get(index).map_or(0, |config| config.reserve);
        if reserve == 0 || self.reserved == 0 {
            return 0;
        }
        let claimed = self.partitions.get(index).filter(|_| with_claims).map_or(0, PartitionState::claimed);
        reserve.saturating_sub(self.shared.pool.slots_in(index) + claimed)
    }

    /// How many of the `free` slots are not reserved.
    pub(super) fn unreserved(&self, free: usize, with_claims: bool) -> usize {
        if self.reserved == 0 {
            return free;
        }
        let unused = (0..self.partitions.len()).map(|index| self.unused_reserve(index, with_claims));
        free.saturating_sub(unused.sum())
    }

    /// How many slots a task of a partition gets if it wants `wanted`: no more than exist and others have not
    /// reserved.
    pub(super) fn granted(&self, index: usize, wanted: usize) -> usize {
        let own = self.shared.partitions.get(index).map_or(0, |config| config.reserve);
        let others = self.reserved.saturating_sub(own);
        wanted.min(self.slots.saturating_sub(others)).max(1)
    }
}

/// How many of these slots are reserved in total: none if there are too few to leave something to each
/// partition.
pub(super) fn reserved(partitions: &[PartitionConfig], slots: usize) -> usize {
    let all: usize = partitions.iter().map(|config| config.reserve).sum();
    let others = partitions.iter().any(|config| config.reserve == 0);
    if slots >= all + usize::from(others) { all } else { 0 }
}
