//! Faults of a client among others: its names, its threads, how it ends.

pub(crate) mod crowd;
pub(crate) mod lifetime;
pub(crate) mod names;
pub(crate) mod processes;
pub(crate) mod threads;
