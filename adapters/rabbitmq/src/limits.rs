//! What is declared, and checked again where a call comes in.

/// Levels from 0 to one less.
pub(crate) const PRIORITY_LEVELS: u8 = 10;
