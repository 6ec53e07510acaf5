//! Faults of groups that are claimed whole.

pub(crate) mod claimed;
pub(crate) mod ended;
pub(crate) mod left;

use std::sync::Arc;

use anyqueue::PartitionId;
use anyqueue::adapter::{PullRequest, RawDelivery};
use anyqueue_conformance::Clause;

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
const BREAKS: &[Clause] = &[];

/// Returns whether the pull may return several members of one group.
fn is_whole(partition: &PartitionId, request: &PullRequest) -> bool {
    request.group_members > 1 && !partition.is_dead_letters()
}

fn group_of(delivery: &RawDelivery) -> Option<&Arc<str>> {
    delivery.message.options().group.as_ref()
}

fn are_together(one: &RawDelivery, next: &RawDelivery) -> bool {
    group_of(one).is_some() && group_of(one) == group_of(next)
}

/// Splits the deliveries of a whole pull into groups. A message without a group is alone.
fn groups(deliveries: &[RawDelivery]) -> Vec<Vec<RawDelivery>> {
    deliveries.chunk_by(are_together).map(<[_]>::to_vec).collect()
}
