//! Faults of clocks, and of what is done too late.

pub(crate) mod clocks;
pub(crate) mod lateness;
