//! What a batch handler gets, and what it returns.

use crate::context::TaskContext;
use crate::error::{TaskError, TaskResult};

/// One task of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Task<T> {
    /// The payload that was pushed.
    pub payload: T,
    /// What is known about this one task: its id, its headers, the number of its attempt, and whether this
    /// task has been lost or cancelled.
    pub context: TaskContext,
}

impl<T> Task<T> {
    pub(crate) fn new(payload: T, context: TaskContext) -> Self {
        Self { payload, context }
    }
}

/// What a batch handler returns: one [`TaskResult`] for all tasks, or one for each, in order.
///
/// If the number of results differs from the number of tasks, all of them fail.
pub trait IntoBatchResult {
    /// Returns one result for each of `tasks` tasks.
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

/// An error applies to all tasks.
impl IntoBatchResult for Result<Vec<TaskResult>, TaskError> {
    fn into_batch_result(self, tasks: usize) -> Vec<TaskResult> {
        self.unwrap_or_else(|error| vec![Err(error); tasks])
    }
}
