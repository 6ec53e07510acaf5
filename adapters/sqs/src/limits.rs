//! Limits that are declared, and checked again in each call.

use std::time::Duration;

use anyqueue::Result;

use crate::error::invalid;

/// The server counts visibility timeouts in seconds.
pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);
/// The server's longest visibility timeout.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(12);
/// Half of the server's retention, so that no message expires because of its delay.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(7 * 24);
/// How long the server keeps messages: its longest retention.
pub(crate) const RETENTION: Duration = Duration::from_hours(14 * 24);

/// Checks a lease against the declared limits.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid("a lease must be from 1s to 12h"))
}
