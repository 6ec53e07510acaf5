//! Messages that are stored together with the end of a delivery.

use super::guard;
use super::shared::Shared;
use crate::error::{Error, Operation, Result};
use crate::message::{MessageData, MessageId};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::storage::Successor;

/// The largest number of successors that one settlement can have.
pub const MAX_SUCCESSORS: usize = 100;

/// Messages that follow a delivery: they are stored when it ends, and only then.
///
/// Pass them to [`Delivery::settle_with`](crate::Delivery::settle_with). There can be at most
/// [`MAX_SUCCESSORS`].
///
/// ```
/// use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed, Successors};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push("orders", MessageData::new("order 7")).await?;
///
/// for mut order in queue.pull("orders").await? {
///     let then = Successors::new()
///         .then("invoices", MessageData::new("invoice for order 7"))?
///         .then("mail", MessageData::new("thanks for order 7"))?;
///     order.settle_with(Processed, then).await?;
/// }
/// assert_eq!(queue.pull("invoices").await?.len(), 1);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "successors do nothing until a delivery is settled with them"]
pub struct Successors(Vec<Successor>);

impl Successors {
    /// Creates an empty list of successors.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a message for a partition. Messages are stored in the order in which they were added.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad partition name.
    pub fn then(mut self, partition: impl IntoPartitionId, message: MessageData) -> Result<Self> {
        self.0.push(Successor { partition: partition.into_partition_id()?, message });
        Ok(self)
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator over the partitions and messages, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&PartitionId, &MessageData)> {
        self.0.iter().map(|successor| (&successor.partition, &successor.message))
    }

    /// The ids, which tell these successors from others.
    pub(super) fn ids(&self) -> Box<[MessageId]> {
        self.0.iter().map(|successor| successor.message.id()).collect()
    }
}

impl Shared {
    /// Checks the successors and returns them as the storage will see them, with the bytes that they count
    /// for in a call: that keeps the successors of all settlements in one call within the limits of a push.
    pub(super) fn successors(&self, successors: Successors) -> Result<(Vec<Successor>, u64)> {
        if successors.is_empty() {
            return Ok((successors.0, 0));
        }
        let stamp = |error: Error| self.stamp(error, Operation::Settle);
        if self.capabilities.successors.is_none() {
            return Err(stamp(guard::unsupported("successors with the end of a delivery")));
        }
        let count = successors.len();
        if count > MAX_SUCCESSORS {
            return Err(stamp(Error::invalid(format!(
                "{count} successors: at most {MAX_SUCCESSORS} go with one settlement; let one of them push the others"
            ))));
        }
        let limits = &self.capabilities.limits;
        let share = limits.push_batch_bytes.div_ceil((limits.push_batch as u64).max(1));
        let (mut checked, mut bytes) = (Vec::with_capacity(count), 0_u64);
        for (position, Successor { partition, message }) in successors.0.into_iter().enumerate() {
            let id = message.id();
            let (message, encoded_len) = self.checked(&partition, message).map_err(|error| {
                let why = format!(
                    "successor {} of {count} (message {id} for {partition}): {}",
                    position + 1,
                    error.message()
                );
                stamp(Error::new(error.kind(), why).with_source(error))
            })?;
            bytes = bytes.saturating_add(encoded_len.max(share));
            checked.push(Successor { partition, message });
        }
        Ok((checked, bytes))
    }
}
