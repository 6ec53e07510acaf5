//! Settlements: what each of them does, under which lease, and many at once.

pub(super) mod action;
pub(super) mod batch;
pub(super) mod headers;
pub(super) mod moves;
pub(super) mod token;
