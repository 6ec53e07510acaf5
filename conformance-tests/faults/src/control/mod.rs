//! Faults of the control store.

pub(crate) mod compared;
pub(crate) mod kept;
pub(crate) mod lapsed;
pub(crate) mod listed;
mod model;
mod rules;

use anyqueue_conformance::Clause;

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
const BREAKS: &[Clause] = &[];
