//! Faults of numbers and sizes at the ends of what is allowed.

pub(crate) mod bounds;
pub(crate) mod numbers;
