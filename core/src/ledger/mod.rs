//! What became of every task: how each delivery ended, kept for a time after the message is gone.
//!
//! A task that lives, or is dead, is known by its message. What is done is removed from the queue; its end is what the ledger keeps.

mod cancel;
mod end;
mod filter;
mod keep;
mod storage;
mod task;

pub use cancel::Cancelled;
pub use end::{EndState, MAX_LOG_BYTES, MAX_RESULT_BYTES, TaskEnd};
pub use filter::TaskFilter;
pub use keep::Keep;
pub use storage::{EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage};
pub use task::{Task, TaskCount, TaskState};
pub(crate) use task::{attempts, generation, text};
