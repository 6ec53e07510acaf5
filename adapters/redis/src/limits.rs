//! What is declared, and checked again where a call comes in.

use std::time::Duration;

use anyqueue::Result;

use crate::error::invalid;

/// Levels from 0 to one less.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(30 * 24);
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(3650 * 24);
/// Messages, deliveries or settlements in one call.
pub(crate) const BATCH: usize = 1000;
/// By how much the poll interval varies, so that many processes do not poll in step.
pub(crate) const JITTER: f64 = 0.1;

/// Whether a lease is as long as declared.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(format!("a lease is from {MIN_LEASE:?} to {} days", MAX_LEASE.as_secs() / 86_400)))
}
