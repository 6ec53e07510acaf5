//! Limits that are declared, and checked again in each call.

use std::time::Duration;

use anyqueue::Result;

use crate::error::invalid;

/// The number of levels; they count from 0.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(30 * 24);
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(3650 * 24);
/// The most messages, deliveries or settlements in one call.
pub(crate) const BATCH: usize = 1000;
/// By how much the poll interval varies, so that many processes do not poll at the same time.
pub(crate) const JITTER: f64 = 0.1;

/// Checks a lease against the declared limits.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(format!("a lease must be from {MIN_LEASE:?} to {} days", MAX_LEASE.as_secs() / 86_400)))
}
