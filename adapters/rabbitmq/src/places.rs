//! The places of items in their batch, which is parted by partition and answered in order.

use std::collections::HashMap;

use anyqueue::PartitionId;
use anyqueue::adapter::Lease;

/// The places of leases in their batch, by partition, in order.
pub(crate) fn by_partition<'l>(
    leases: impl Iterator<Item = &'l Lease>,
) -> Vec<(&'l PartitionId, Vec<usize>)> {
    let mut found: Vec<(&PartitionId, Vec<usize>)> = Vec::new();
    let mut index: HashMap<&PartitionId, usize> = HashMap::new();
    for (place, lease) in leases.enumerate() {
        let at = *index.entry(&lease.partition).or_insert_with(|| {
            found.push((&lease.partition, Vec::new()));
            found.len() - 1
        });
        if let Some((_, places)) = found.get_mut(at) {
            places.push(place);
        }
    }
    found
}

/// Puts an answer in its place.
pub(crate) fn put<T>(answers: &mut [T], place: usize, answer: T) {
    if let Some(slot) = answers.get_mut(place) {
        *slot = answer;
    }
}
