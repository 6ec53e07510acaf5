//! Faults of clocks, and of things done too late.

pub(crate) mod clocks;
pub(crate) mod lateness;
