//! Faults of amendments and of urgency.

pub(crate) mod change;
pub(crate) mod disabled;
pub(crate) mod urgent;
