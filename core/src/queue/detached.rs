//! Deliveries that are settled without their [`Delivery`]: by another process, or by this one after a
//! restart.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use minicbor::{CborLen, Decode, Encode};

use super::delivery::{Delivery, SettleRequest};
use super::ending::{Ending, TaskReport};
use super::handle::Queue;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, Operation, Result, RetryClass};
use crate::message::{Headers, MessageData, MessageId};
use crate::partition::PartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::{ExtendOutcome, Extension, Lease, SettleOutcome, Settlement, Token};

/// Which layout [`DetachedDelivery::to_bytes`] writes.
const FORMAT: u8 = 1;

/// All that is needed to settle a delivery without its [`Delivery`]: for services that hand messages to
/// others and keep no state of their own.
///
/// Nothing keeps its lease alive, releases the message or notices that the lease is lost. It does not count
/// towards `max_held`. Anyone who has it can settle the message, so keep it as secret as the message itself:
/// [`to_bytes`](Self::to_bytes) neither encrypts nor signs.
///
/// ```
/// use std::time::Duration;
/// use anyqueue::{DetachedDelivery, MessageData, Queue, QueueMessageStatus::Processed, SettleOutcome, TaskReport};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push("mail", MessageData::new("hello")).await?;
///
/// let delivery = queue.pull("mail").lease(Duration::from_secs(60)).keep_alive(false).await?.remove(0);
/// let kept = delivery.detach().expect("a timed lease").to_bytes();
///
/// // Later, perhaps in another process over the same backend:
/// let delivery = DetachedDelivery::from_bytes(&kept)?;
/// assert_eq!(queue.settle_detached(&delivery, Processed, TaskReport::new()).await?, SettleOutcome::Settled);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "nobody releases the message before its lease ends"]
pub struct DetachedDelivery {
    lease: Lease,
    /// With a blank payload: an action that leaves the message as it is does not need the real one.
    message: MessageData,
    delivery_count: Option<u32>,
    age: Duration,
    received_at: SystemTime,
}

impl DetachedDelivery {
    /// Returns the id of the message.
    pub fn id(&self) -> MessageId {
        self.lease.id
    }

    /// Returns the partition that the message was pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.lease.partition
    }

    /// Returns the headers of the message.
    pub fn headers(&self) -> &Headers {
        self.message.headers()
    }

    /// Returns the message with a payload of zeros, as long as the real one.
    pub fn message_without_payload(&self) -> &MessageData {
        &self.message
    }

    /// Returns the number of deliveries so far, including this one, if the backend counts them.
    pub fn delivery_count(&self) -> Option<u32> {
        self.delivery_count
    }

    /// Returns when the message was received, by the clock of the host that received it.
    pub fn received_at(&self) -> SystemTime {
        self.received_at
    }

    /// Encodes this delivery. The result contains the headers but not the payload, and is otherwise small.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let received = self.received_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let options = self.message.options();
        let wire = Wire {
            format: FORMAT,
            partition: self.lease.partition.name(),
            is_dead: self.lease.partition.is_dead_letters(),
            id: *self.lease.id.as_bytes(),
            token: self.lease.token.as_bytes(),
            payload_bytes: self.message.payload().len() as u64,
            headers: self.message.headers().clone(),
            task_id: self.message.task_id(),
            session_id: self.message.session_id(),
            delivery_count: self.delivery_count,
            age_millis: millis(self.age),
            received_millis: millis(received),
            max_retries: options.max_retries,
            max_duration_millis: options.max_duration.map(millis),
        };
        let mut bytes = Vec::with_capacity(minicbor::len(&wire));
        // Writing to memory does not fail.
        let _ = minicbor::encode(&wire, &mut bytes);
        bytes
    }

    /// Decodes what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for any other bytes, [`Incompatible`](ErrorKind::Incompatible) for
    /// those of a newer release.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Error::new(ErrorKind::Corrupt, "these bytes are not a detached delivery");
        let wire: Wire<'_> = minicbor::decode(bytes).map_err(|error| corrupt().with_source(error))?;
        if wire.format > FORMAT {
            let text = format!("a detached delivery of a newer release (format {}): upgrade", wire.format);
            return Err(Error::new(ErrorKind::Incompatible, text));
        }
        let live = PartitionId::new(wire.partition).map_err(|error| corrupt().with_source(error))?;
        let partition = if wire.is_dead { live.dead_letters() } else { live };
        let id = MessageId::from_bytes(wire.id);
        let payload = usize::try_from(wire.payload_bytes).ok().filter(|bytes| *bytes <= MAX_BLANK_BYTES);
        let mut message =
            MessageData::with_id(id, vec![0; payload.ok_or_else(corrupt)?]).with_headers(wire.headers);
        if let Some(task_id) = wire.task_id {
            message = message.with_task_id(task_id);
        }
        if let Some(session_id) = wire.session_id {
            message = message.with_session_id(session_id);
        }
        if let Some(retries) = wire.max_retries {
            message = message.with_max_retries(retries);
        }
        if let Some(most) = wire.max_duration_millis {
            message = message.with_max_duration(Duration::from_millis(most));
        }
        let received = Duration::from_millis(wire.received_millis);
        Ok(Self {
            lease: Lease { partition, id, token: Token::from_bytes(wire.token.to_vec()) },
            message,
            delivery_count: wire.delivery_count,
            age: Duration::from_millis(wire.age_millis),
            received_at: SystemTime::UNIX_EPOCH.checked_add(received).ok_or_else(corrupt)?,
        })
    }
}

/// The longest payload that zeros may stand in for.
const MAX_BLANK_BYTES: usize = 256 << 20;

#[derive(Encode, Decode, CborLen)]
#[cbor(map)]
struct Wire<'b> {
    #[n(0)]
    format: u8,
    #[cbor(b(1))]
    partition: &'b str,
    #[n(2)]
    is_dead: bool,
    #[cbor(n(3), with = "minicbor::bytes")]
    id: [u8; 16],
    #[cbor(b(4), with = "minicbor::bytes")]
    token: &'b [u8],
    #[n(5)]
    payload_bytes: u64,
    #[n(6)]
    headers: Headers,
    #[cbor(b(7))]
    task_id: Option<&'b str>,
    #[cbor(b(8))]
    session_id: Option<&'b str>,
    #[n(9)]
    delivery_count: Option<u32>,
    #[n(10)]
    age_millis: u64,
    #[n(11)]
    received_millis: u64,
    #[n(12)]
    max_retries: Option<u32>,
    #[n(13)]
    max_duration_millis: Option<u64>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Delivery {
    /// Detaches the delivery from this process, for whoever will settle it with [`Queue::settle_detached`].
    /// Its lease is no longer renewed.
    ///
    /// # Errors
    /// Returns the delivery unchanged if its lease is not
    /// [portable](crate::adapter::LeaseCapability::portable), if it is lost, or if a settlement has been
    /// asked for.
    #[allow(clippy::result_large_err, reason = "the delivery is handed back as it came")]
    pub fn detach(self) -> std::result::Result<DetachedDelivery, Self> {
        if !self.shared().capabilities.lease.portable || !self.is_open() || self.is_lost() {
            return Err(self);
        }
        let message = self.message();
        let blank = MessageData::with_id(message.id(), Bytes::from(vec![0; message.payload().len()]))
            .with_headers(message.headers().clone())
            .with_options(message.options().clone());
        let blank = match message.task_id() {
            Some(task_id) => blank.with_task_id(task_id),
            None => blank,
        };
        let blank = match message.session_id() {
            Some(session_id) => blank.with_session_id(session_id),
            None => blank,
        };
        let detached = DetachedDelivery {
            lease: self.lease().clone(),
            message: blank,
            delivery_count: self.delivery_count(),
            age: self.age(),
            received_at: self.received_at(),
        };
        self.conclude(SettleOutcome::Settled);
        Ok(detached)
    }
}

impl Queue {
    /// Ends a delivery that was [detached](Delivery::detach), here or in another process over the same
    /// backend, as [`Delivery::settle`] would, with a report of its run for the ledger. Settlements from many
    /// tasks share calls.
    ///
    /// [`Lost`](SettleOutcome::Lost) means that the lease had already ended, or that the delivery was already
    /// settled.
    ///
    /// # Errors
    /// As for [`Delivery::settle`] and [`Delivery::report`]. The delivery can be settled again.
    ///
    /// # Cancellation
    /// Once polled, the settlement is completed even if the future is dropped.
    pub async fn settle_detached(
        &self,
        delivery: &DetachedDelivery,
        status: QueueMessageStatus,
        report: TaskReport,
    ) -> Result<SettleOutcome> {
        let shared = &self.0;
        let _active = shared.enter(Operation::Settle)?;
        report.check().map_err(|error| shared.stamp(error, Operation::Settle))?;
        let DetachedDelivery { lease, message, delivery_count, .. } = delivery;
        let held = || shared.held_for(delivery);
        let action =
            shared.action(&lease.partition, message, *delivery_count, held, &status, Some(&report))?;
        let ending = Ending {
            partition: &lease.partition,
            message,
            delivery_count: *delivery_count,
            waited: delivery.age,
            ran: held(),
            was_handled: true,
            successors: 0,
        };
        let end = shared.end(&ending, &status, &action, Some(&report));
        let bytes = end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, Bytes::len) as u64;
        let settlement = Settlement::new(lease.clone(), action).with_end(end);
        let mut reply = shared.hand_over(SettleRequest { settlement, bytes, window: None });
        // Settling twice is harmless.
        let unknown = |error: Error| shared.stamp(error.with_retry(RetryClass::Safe), Operation::Settle);
        shared.exec.answer(&mut reply).await.map_err(unknown)?
    }

    /// Moves the lease ends of [detached](Delivery::detach) deliveries to now + the given durations, in as
    /// few calls as the backend allows. A duration is cut where it would exceed the partition's `max_hold`,
    /// counted from when the message was received. Returns one result per delivery, in order.
    ///
    /// # Cancellation
    /// If the future is dropped, each lease may or may not be extended.
    pub async fn extend_detached(
        &self,
        deliveries: &[(&DetachedDelivery, Duration)],
    ) -> Vec<Result<ExtendOutcome>> {
        let checked: Vec<_> =
            deliveries.iter().map(|(delivery, duration)| self.0.extension(delivery, *duration)).collect();
        let extensions: Vec<Extension> =
            checked.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
        let mut answers = self.0.extend_all(&extensions).await.into_iter();
        let missing = || self.0.stamp(Error::new(ErrorKind::Internal, "no answer"), Operation::Extend);
        checked
            .into_iter()
            .map(|one| one.and_then(|_| answers.next().unwrap_or_else(|| Err(missing()))))
            .collect()
    }
}

impl Shared {
    /// How long ago it was received, by the time of day, since that may have been in another process. If the
    /// clock was set back, this is zero.
    fn held_for(&self, delivery: &DetachedDelivery) -> Duration {
        self.caller.clock.wall().duration_since(delivery.received_at).unwrap_or_default()
    }

    fn extension(&self, delivery: &DetachedDelivery, duration: Duration) -> Result<Extension> {
        let stamp = |error: Error| self.stamp(error, Operation::Extend);
        self.capabilities.lease.check(duration).map_err(stamp)?;
        let own = self.options.of(delivery.partition().name()).max_hold;
        let most = self.capabilities.lease.max_hold.map_or(own, |most| most.min(own));
        let duration = duration.min(most.saturating_sub(self.held_for(delivery)));
        if self.capabilities.lease.check(duration).is_err() {
            return Err(stamp(Error::invalid(
                "this delivery has been held for max_hold: settle it, or raise max_hold",
            )));
        }
        Ok(Extension { lease: delivery.lease.clone(), duration })
    }

    async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let started = Instant::now();
        let mut answers = Vec::with_capacity(extensions.len());
        for part in extensions.chunks(self.capabilities.limits.settle_batch.max(1)) {
            let part = part.to_vec();
            let items = part.len();
            let call = self.enter(Operation::Extend).map(|active| {
                let (caller, timeout) = (self.caller.clone(), self.options.call_timeout);
                let left = timeout.saturating_sub(started.elapsed());
                self.exec.call(async move {
                    let answers = caller.extend(&part, left).await;
                    drop(active);
                    answers
                })
            });
            let answer = match call {
                Ok(call) => call.await.map_err(|error| self.stamp(error, Operation::Extend)),
                Err(error) => Err(error),
            };
            answers.extend(answer.unwrap_or_else(|error| vec![Err(error); items]));
        }
        answers
    }
}

impl fmt::Debug for DetachedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedDelivery")
            .field("partition", self.partition())
            .field("id", &self.id())
            .field("delivery_count", &self.delivery_count)
            .finish_non_exhaustive()
    }
}
