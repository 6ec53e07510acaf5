//! A second handle on a delivery, for whoever supervises its handler.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::delivery::{Delivery, Receipt, SettleRequest};
use super::ending::{Ending, TaskReport};
use super::keeper::Held;
use super::shared::Shared;
use super::successors::Successors;
use crate::error::{Error, Operation, Result, RetryClass};
use crate::message::{Headers, MessageData, MessageId};
use crate::partition::PartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::{SettleOutcome, Settlement};

/// A second handle on a [`Delivery`] of this process. It can end the delivery while the first handle is out
/// of reach, for instance inside the future of a handler that blocks its thread. It does not hold the message
/// or keep its lease alive.
///
/// The first handle to settle wins; for the other one the delivery is then lost. If both settle at the same
/// time, the backend decides, as it does between two processes.
///
/// ```
/// use anyqueue::{MessageData, Queue, QueueMessageStatus, SettleOutcome, Successors, TaskReport};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push("mail", MessageData::new("hello")).await?;
///
/// let mut delivery = queue.pull("mail").await?.remove(0);
/// let twin = delivery.twin();
/// let status = QueueMessageStatus::poisonous("it hangs");
/// assert_eq!(twin.settle_with(status, Successors::new(), &TaskReport::new()).await?, SettleOutcome::Settled);
///
/// assert!(delivery.is_lost());
/// assert_eq!(delivery.settle(QueueMessageStatus::Processed).await?, SettleOutcome::Lost);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct DeliveryTwin {
    shared: Arc<Shared>,
    held: Arc<Held>,
    message: MessageData,
    receipt: Receipt,
}

impl Delivery {
    /// Returns a second handle on this delivery.
    pub fn twin(&self) -> DeliveryTwin {
        let (shared, held, receipt) = self.parts();
        DeliveryTwin { shared: shared.clone(), held: held.clone(), message: self.message().clone(), receipt }
    }
}

impl DeliveryTwin {
    /// Returns the id of the message.
    pub fn id(&self) -> MessageId {
        self.message.id()
    }

    /// Returns the whole message.
    pub fn message(&self) -> &MessageData {
        &self.message
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        self.message.headers()
    }

    /// Returns the partition that the message was pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.held.lease.partition
    }

    /// See [`Delivery::delivery_count`].
    pub fn delivery_count(&self) -> Option<u32> {
        self.receipt.delivery_count
    }

    /// See [`Delivery::received_at`].
    pub fn received_at(&self) -> SystemTime {
        self.receipt.received_at
    }

    /// See [`Delivery::age`].
    pub fn age(&self) -> Duration {
        self.receipt.age
    }

    /// See [`Delivery::lease_until`].
    pub fn lease_until(&self) -> Option<Instant> {
        self.shared.keeper.trusted_until(&self.held)
    }

    /// Ends the delivery as [`Delivery::settle_with`] would, with a report of its run for the ledger.
    /// Afterwards the delivery is lost for the first handle: [`Delivery::lost`] fires, and settling or
    /// extending it has no effect.
    ///
    /// # Errors
    /// As for [`Delivery::settle_with`] and [`Delivery::report`]. The delivery can be settled again.
    ///
    /// # Cancellation
    /// Once polled, the settlement is completed even if the future is dropped; its outcome is then known only
    /// to the backend.
    pub async fn settle_with(
        &self,
        status: QueueMessageStatus,
        successors: Successors,
        report: &TaskReport,
    ) -> Result<SettleOutcome> {
        let shared = &self.shared;
        let _active = shared.enter(Operation::Settle)?;
        report.check().map_err(|error| shared.stamp(error, Operation::Settle))?;
        if self.held.is_lost() {
            return Ok(SettleOutcome::Lost);
        }
        let request = self.request(&status, successors, report)?;
        let mut reply = shared.hand_over(request);
        let unknown = |error: Error| shared.stamp(error.with_retry(RetryClass::Safe), Operation::Settle);
        let outcome = shared.exec.answer(&mut reply).await.map_err(unknown)??;
        shared.keeper.release(&self.held);
        self.held.fire_lost();
        Ok(outcome)
    }

    fn request(
        &self,
        status: &QueueMessageStatus,
        successors: Successors,
        report: &TaskReport,
    ) -> Result<SettleRequest> {
        let (shared, lease) = (&self.shared, self.held.lease.clone());
        let count = self.receipt.delivery_count;
        let held = || shared.caller.clock.now().saturating_duration_since(self.receipt.received);
        let action = shared.action(&lease.partition, &self.message, count, held, status, Some(report))?;
        let (then, successor_bytes) = shared.successors(successors)?;
        let ending = Ending {
            partition: &lease.partition,
            message: &self.message,
            delivery_count: count,
            waited: self.receipt.age,
            ran: held(),
            was_handled: true,
            successors: then.len(),
        };
        let end = shared.end(&ending, status, &action, Some(report));
        let result_bytes = end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, Bytes::len) as u64;
        let settlement = Settlement { lease, action, then, end };
        let bytes = successor_bytes.saturating_add(result_bytes);
        Ok(SettleRequest { settlement, bytes, window: None })
    }
}

impl fmt::Debug for DeliveryTwin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryTwin")
            .field("partition", self.partition())
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
