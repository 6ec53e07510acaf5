//! What a batch handler gets, and what it returns.

use crate::context::TaskContext;
use crate::error::{TaskError, TaskResult};

/// One task of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task<T> {
    /// What was pushed.
    pub payload: T,
    /// What is known about this task alone: its id, its headers, which attempt it is, and whether it has been lost or cancelled by itself.
    pub context: TaskContext,
}

impl<T> Task<T> {
    pub(crate) fn new(payload: T, context: TaskContext) -> Self {
        Self { payload, context }
    }
}

/// What a batch handler returns: one [`TaskResult`] for all tasks, or one for each, in order.
///
/// Where the number of results is not that of the tasks, all of them have failed.
pub trait IntoBatchResult {
    /// One result for each of so many tasks.
    fn into_batch_result(self, tasks: usize) -> Vec<TaskResult>;
}

impl IntoBatchResult for TaskResult {
    fn into_batch_result(self, tasks: usize) -> Vec<TaskResult> {
        vec![self; tasks]
    }
}

impl IntoBatchResult for Vec<TaskResult> {
    fn into_batch_result(self, _: usize) -> Vec<TaskResult> {
        self
    }
}

/// An error is that of all tasks.
impl IntoBatchResult for Result<Vec<TaskResult>, TaskError> {
    fn into_batch_result(self, tasks: usize) -> Vec<TaskResult> {
        self.unwrap_or_else(|error| vec![Err(error); tasks])
    }
}
