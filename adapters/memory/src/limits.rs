//! What is declared, and checked again where a call comes in.

use std::time::Duration;

use anyqueue::{ErrorKind, Operation, Result};

use crate::error::error;

pub(crate) const PRIORITY_LEVELS: u8 = 10;
pub(crate) const MAX_BATCH: usize = 1000;
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(1);
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(7 * 24);
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(10 * 365 * 24);

pub(crate) fn check_lease(operation: Operation, lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    let text = format!("a lease of {lease:?} cannot be had: use {MIN_LEASE:?} to {MAX_LEASE:?}");
    Err(error(operation, ErrorKind::InvalidInput, text))
}
