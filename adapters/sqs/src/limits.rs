//! What is declared, and checked again where a call comes in.

use std::time::Duration;

use anyqueue::Result;

use crate::error::invalid;

/// The server counts leases in seconds.
pub(crate) const MIN_LEASE: Duration = Duration::from_secs(1);
/// The server's longest visibility timeout.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(12);
/// Half of what the server retains a message for, so that it does not die of its delay.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(7 * 24);
/// How long the server keeps what nobody pulls: its longest.
pub(crate) const RETENTION: Duration = Duration::from_hours(14 * 24);

/// Whether a lease is as long as declared.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid("a lease is from 1s to 12h"))
}
