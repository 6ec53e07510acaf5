//! The limits that are declared, and checked again when a call comes in.

/// The number of priority levels, which are numbered from 0.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
