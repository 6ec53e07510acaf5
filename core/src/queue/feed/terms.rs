//! The fixed parameters of a stream's pulls.

use std::time::Duration;

use crate::partition::PartitionId;

/// Where deliveries are pulled from and how they are held.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) partition: PartitionId,
    pub(crate) lease: Duration,
    pub(crate) keep_alive: bool,
}
