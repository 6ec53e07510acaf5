//! Faults of pulling and waiting, and of what a delivery shows.

pub(crate) mod basic;
pub(crate) mod exchange;
pub(crate) mod redelivery;
pub(crate) mod sharing;
pub(crate) mod unreadable;
pub(crate) mod wake;
