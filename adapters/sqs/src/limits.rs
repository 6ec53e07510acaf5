//! The limits that the backend declares.

use std::time::Duration;

use anyqueue::adapter::{LeaseCapability, LeaseKind};

/// The server's longest visibility timeout.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(12);
/// The server counts visibility timeouts in whole seconds, and hides a message in total for no longer than
/// the longest one.
pub(crate) const LEASE: LeaseCapability = LeaseCapability {
    kind: LeaseKind::Timed,
    min: Duration::from_secs(1),
    max: MAX_LEASE,
    max_hold: Some(MAX_LEASE),
    portable: false,
};
/// Half of the server's retention, so that no message expires because of its delay.
pub(crate) const MAX_DELAY: Duration = Duration::from_hours(7 * 24);
/// How long the server keeps messages: its longest retention.
pub(crate) const RETENTION: Duration = Duration::from_hours(14 * 24);
