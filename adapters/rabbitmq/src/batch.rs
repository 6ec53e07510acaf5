//! The indexes of items in a batch that is split by partition and answered in order.

use std::collections::HashMap;

use anyqueue::PartitionId;
use anyqueue::adapter::Lease;

/// Returns the indexes of leases in their batch, by partition, in order.
pub(crate) fn by_partition<'l>(
    leases: impl Iterator<Item = &'l Lease>,
) -> Vec<(&'l PartitionId, Vec<usize>)> {
    let mut found: Vec<(&PartitionId, Vec<usize>)> = Vec::new();
    let mut slots: HashMap<&PartitionId, usize> = HashMap::new();
    for (index, lease) in leases.enumerate() {
        let slot = *slots.entry(&lease.partition).or_insert_with(|| {
            found.push((&lease.partition, Vec::new()));
            found.len() - 1
        });
        if let Some((_, indexes)) = found.get_mut(slot) {
            indexes.push(index);
        }
    }
    found
}

/// Puts an answer at its index.
pub(crate) fn put<T>(answers: &mut [T], index: usize, answer: T) {
    if let Some(slot) = answers.get_mut(index) {
        *slot = answer;
    }
}
