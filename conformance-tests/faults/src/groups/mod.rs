//! Faults of groups.

pub(crate) mod locked;
