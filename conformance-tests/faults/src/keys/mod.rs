//! Faults of deduplication keys.

pub(crate) mod compared;
pub(crate) mod freed;
pub(crate) mod window;
