//! Entries of batch requests.

use std::sync::Arc;

use crate::error::Refused;
use crate::fifo::FifoIds;

/// The most entries in one batch, which is the server's limit.
pub(crate) const BATCH: usize = 10;

/// The result of each entry of a batch.
pub(crate) type Entries = Vec<Result<(), Refused>>;

/// A message to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) body: String,
    pub(crate) delay_secs: i32,
    /// Only for FIFO queues, which do not support a delay.
    pub(crate) fifo_ids: Option<FifoIds>,
}

/// Sets a message's visibility timeout, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct ChangeVisibility(pub(crate) Arc<str>, pub(crate) u64);

/// Deletes a message.
#[derive(Clone, Debug)]
pub(crate) struct Delete(pub(crate) Arc<str>);
