//! The cancellation of a task that waits.

use std::sync::Arc;

use super::end::TaskEnd;
use crate::message::MessageId;

/// A task to cancel, and the end that it gets if it still waits: for
/// [`LedgerQueueStorage::cancel`](crate::adapter::LedgerQueueStorage::cancel).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// The message.
    pub id: MessageId,
    /// Its end; `None` if nothing is to be kept.
    pub end: Option<Arc<TaskEnd>>,
}
