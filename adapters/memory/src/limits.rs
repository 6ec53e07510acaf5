//! The limits that the store declares.

use std::time::Duration;

use anyqueue::adapter::LeaseCapability;

pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MAX_BATCH: usize = 1000;
pub(crate) const LEASE: LeaseCapability =
    LeaseCapability::timed(Duration::from_millis(1), Duration::from_hours(7 * 24));
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(10 * 365 * 24);
