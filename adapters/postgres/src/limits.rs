//! Limits that are declared, and checked again in each call.

use std::time::Duration;

use anyqueue::Result;

use crate::error::invalid;

/// Priority levels: 0 (least urgent) to 9.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(30 * 24);
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(3650 * 24);
/// How much the poll interval varies, so that many processes do not poll at the same time.
pub(crate) const JITTER: f64 = 0.1;

/// Checks a lease against the declared limits.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(format!("a lease must be from {MIN_LEASE:?} to {} days", MAX_LEASE.as_secs() / 86_400)))
}
