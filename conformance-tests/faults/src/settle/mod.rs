//! Faults of settling: what happens to a message.

pub(crate) mod actions;
pub(crate) mod basic;
pub(crate) mod batch;
pub(crate) mod fields;
pub(crate) mod stored_anew;
pub(crate) mod successors;
