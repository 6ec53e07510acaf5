//! Faults of pushing: what is stored, under which id, and in which order.

pub(crate) mod basic;
pub(crate) mod batch;
pub(crate) mod compaction;
pub(crate) mod identity;
pub(crate) mod options;
