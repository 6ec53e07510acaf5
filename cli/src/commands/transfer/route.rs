//! Which queue goes where.

use anyqueue::PartitionId;

/// From where to where.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) from: PartitionId,
    pub(crate) to: PartitionId,
}
