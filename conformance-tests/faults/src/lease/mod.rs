//! Faults of leases and requests for cancellation.

pub(crate) mod extend;
