//! Coordinates the processes that share a queue: who works, what is due, and how many tasks run at once.
//!
//! Everything is kept in the [control store](anyqueue::control) of a memory, SQLite, PostgreSQL or Redis
//! queue. Queues on other backends can use the store of one of those.
//!
//! There is no leader: every action is taken by whichever process comes first, and is fenced by the version
//! of the entry that it changes.

pub mod audit;
#[cfg(feature = "cron")]
pub mod cron;
mod entry;
pub mod limits;
mod precondition;
pub mod registry;
#[cfg(all(unix, feature = "supervisor"))]
pub mod supervisor;
pub mod tokens;

pub use precondition::{Deleted, Precondition};
