//! Faults of numbers and sizes at the limits of what is allowed.

pub(crate) mod bounds;
pub(crate) mod numbers;
