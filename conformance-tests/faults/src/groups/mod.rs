//! Faults of groups.

pub(crate) mod locked;
pub(crate) mod matured;
