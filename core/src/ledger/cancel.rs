//! The cancellation of a waiting task.

use std::sync::Arc;

use super::end::TaskEnd;
use crate::message::MessageId;

/// A task to cancel, and the end to store if it is still waiting: for
/// [`LedgerQueueStorage::cancel`](crate::adapter::LedgerQueueStorage::cancel).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// The id of the message.
    pub id: MessageId,
    /// The end of the task; `None` if nothing is to be kept.
    pub end: Option<Arc<TaskEnd>>,
}
