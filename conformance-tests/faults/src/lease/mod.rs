//! Faults of leases and cancellation requests.

pub(crate) mod extend;
