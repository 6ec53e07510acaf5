//! What requests carry ten of.

use std::sync::Arc;

use crate::error::Refused;
use crate::fifo::FifoIds;

/// Entries in one batch: the server's limit.
pub(crate) const BATCH: usize = 10;

/// What became of each entry of a batch.
pub(crate) type Entries = Vec<Result<(), Refused>>;

/// A message on its way to the server.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) body: String,
    pub(crate) delay_secs: i32,
    /// For FIFO queues alone, which in turn refuse a delay.
    pub(crate) fifo_ids: Option<FifoIds>,
}

/// Makes a message visible after so many seconds.
#[derive(Clone, Debug)]
pub(crate) struct ChangeVisibility(pub(crate) Arc<str>, pub(crate) u64);

/// Deletes a message.
#[derive(Clone, Debug)]
pub(crate) struct Delete(pub(crate) Arc<str>);
