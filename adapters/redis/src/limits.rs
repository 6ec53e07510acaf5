//! The limits that the backend declares.

use std::time::Duration;

use anyqueue::adapter::LeaseCapability;

/// The number of priority levels, which are numbered from 0.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const LEASE: LeaseCapability =
    LeaseCapability::timed(Duration::from_millis(1), Duration::from_hours(30 * 24));
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(3650 * 24);
/// The most messages, deliveries or settlements in one call.
pub(crate) const BATCH: usize = 1000;
/// By how much the poll interval varies, so that many processes do not poll at the same time.
pub(crate) const JITTER: f64 = 0.1;
/// The most bytes of successors in one settlement. They go to the server in one call.
pub(crate) const SUCCESSOR_BYTES: usize = 256 * 1024 * 1024;
/// The approximate limit for the bytes of results in one call, during which a server executes nothing else.
pub(crate) const RESULT_BYTES: usize = 32 * 1024 * 1024;
