//! Faults of inspection, deletion and pause.

pub(crate) mod at_rest;
pub(crate) mod basic;
pub(crate) mod beside_work;
pub(crate) mod pause;
