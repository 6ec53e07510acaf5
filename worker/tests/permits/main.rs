//! Permits: who asks for them, who has them, and that none is lost.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

mod asked;
mod fake;
mod passed_on;
