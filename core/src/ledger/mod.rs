//! The ledger: how each task ended, kept for a time after its message is gone.
//!
//! A task that lives or is dead is known by its message. A task that has ended is removed from the queue; the
//! ledger keeps its end.

mod about;
mod cancel;
mod end;
mod ended;
mod filter;
mod keep;
mod live;
mod series;
mod storage;
mod task;

pub(crate) use about::{cut, kind_of};
pub use cancel::Cancelled;
pub use end::{EndState, MAX_LOG_BYTES, MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, TaskEnd};
pub use ended::{EndedCursor, EndedQuery, EndedTask};
pub use filter::TaskFilter;
pub use keep::Keep;
pub(crate) use live::FACTS_MARK;
pub use live::{Forget, Forgotten, LivePage, LiveTasks, is_of_facts};
pub use series::{
    HISTOGRAM_BUCKETS, Histogram, MAX_COUNTED_TIME, MAX_SERIES_ROWS, MAX_SERIES_STEPS, SERIES_KEPT,
    SeriesCell, SeriesKey, SeriesQuery, SeriesRow, SeriesStep, first_minute_kept, minute_of,
};
pub use storage::LedgerQueueStorage;
pub use task::{Task, TaskCount, TaskState};
pub(crate) use task::{attempts, attempts_of_dead, generation, ran_of_dead, text};
