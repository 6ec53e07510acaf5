//! The limits that the backend declares.

use std::time::Duration;

use anyqueue::adapter::LeaseCapability;

/// Priority levels: 0 (least urgent) to 9.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const LEASE: LeaseCapability =
    LeaseCapability::timed(Duration::from_millis(1), Duration::from_hours(30 * 24));
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(3650 * 24);
/// About how many bytes of messages one statement carries.
pub(crate) const BATCH_BYTES: usize = 64 * 1024 * 1024;
/// How much the poll interval varies, so that many processes do not poll at the same time.
pub(crate) const JITTER: f64 = 0.1;
