//! Which queue goes where.

use anyqueue::PartitionId;

/// The source and the target of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) from: PartitionId,
    pub(crate) to: PartitionId,
}
