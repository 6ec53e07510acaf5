//! One delivery, from its handler's point of view.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::begun::{Begun, Ended, Reply, Wanted};
use super::ending::{Ending, TaskReport};
use super::feed::{Feed, WindowSlot};
use super::keeper::Held;
use super::shared::Shared;
use super::successors::Successors;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::ledger::TaskEnd;
use crate::message::{Headers, MessageData, MessageId};
use crate::partition::PartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::{Action, ExtendOutcome, Lease, SettleOutcome, Settlement};

/// A message that this process holds, and the right to decide what happens to it.
///
/// Until it is settled or dropped, core keeps its lease alive, unless the pull turned that off. Dropping it
/// unsettled releases the message, promptly and without blocking; if the process dies, the lease expires. If
/// ownership is lost all the same (because the server was out of reach for too long, or another consumer has
/// the message now), [`lost`](Self::lost) fires: stop working then, because another consumer may be doing the
/// same work.
#[must_use = "dropping a delivery releases the message"]
pub struct Delivery {
    shared: Arc<Shared>,
    held: Arc<Held>,
    message: MessageData,
    wanted: Wanted,
    receipt: Receipt,
    /// What to record in the ledger about this run.
    report: Option<Box<TaskReport>>,
    concluded: Option<SettleOutcome>,
    /// A settlement that was handed over and whose outcome has not been collected yet.
    pending: Option<Begun>,
    /// This delivery's room in the window of a stream.
    window: Option<Arc<Slot>>,
}

/// Room for a delivery in the window of its stream.
pub(super) type Slot = WindowSlot<Delivery>;

/// Where the deliveries of a stream come from.
pub(super) type HandlerFeed = Feed<Delivery>;

/// A settlement that may share a call with others, and the room that it frees in a stream's window.
pub(super) struct SettleRequest {
    pub(super) settlement: Settlement,
    /// How many bytes of the call its successors and the result of its task take up.
    pub(super) bytes: u64,
    pub(super) window: Option<Arc<Slot>>,
}

impl From<Settlement> for SettleRequest {
    fn from(settlement: Settlement) -> Self {
        Self { settlement, bytes: 0, window: None }
    }
}

/// What the storage reported with the delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) delivery_count: Option<u32>,
    pub(crate) age: Duration,
    pub(crate) received: Instant,
    pub(crate) received_at: SystemTime,
}

impl Delivery {
    pub(crate) fn new(shared: Arc<Shared>, held: Arc<Held>, message: MessageData, receipt: Receipt) -> Self {
        Self {
            shared,
            held,
            message,
            wanted: QueueMessageStatus::Waiting.into(),
            receipt,
            report: None,
            concluded: None,
            pending: None,
            window: None,
        }
    }

    pub(crate) fn with_window(mut self, room: Slot) -> Self {
        self.window = Some(Arc::new(room));
        self
    }

    /// Returns the id of the message.
    pub fn id(&self) -> MessageId {
        self.message.id()
    }

    /// Returns the user's name for the task.
    pub fn task_id(&self) -> Option<&str> {
        self.message.task_id()
    }

    /// Returns the session that the task belongs to.
    pub fn session_id(&self) -> Option<&str> {
        self.message.session_id()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.message.payload()
    }

    /// Returns the payload as shared [`Bytes`], without copying it.
    pub fn payload_bytes(&self) -> Bytes {
        self.message.payload_bytes()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        self.message.headers()
    }

    /// Returns the whole message.
    pub fn message(&self) -> &MessageData {
        &self.message
    }

    /// Returns the partition that the message was pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.held.lease.partition
    }

    /// Returns the number of deliveries so far, including this one, if the backend counts them; see
    /// [`DeliveryCount`](crate::adapter::DeliveryCount).
    pub fn delivery_count(&self) -> Option<u32> {
        self.receipt.delivery_count
    }

    /// Returns when the message was received, by this host's clock.
    pub fn received_at(&self) -> SystemTime {
        self.receipt.received_at
    }

    /// Returns how long before its receipt the message was pushed, by the server's clock.
    pub fn age(&self) -> Duration {
        self.receipt.age
    }

    /// Returns the time until which the lease can be trusted if it is not renewed again; each heartbeat moves
    /// it. `None` once the delivery is settled or lost.
    pub fn lease_until(&self) -> Option<Instant> {
        self.shared.keeper.trusted_until(&self.held)
    }

    /// Returns the status that the delivery was last settled with; `Waiting` before that.
    pub fn status(&self) -> &QueueMessageStatus {
        &self.wanted.status
    }

    /// Returns a token that is cancelled when ownership is lost. Settling this delivery does not cancel it.
    pub fn lost(&self) -> &CancellationToken {
        self.held.lost()
    }

    /// Returns whether ownership is lost.
    pub fn is_lost(&self) -> bool {
        self.held.is_lost()
    }

    /// Returns a token that is cancelled, at the next heartbeat, when somebody has [requested the task's
    /// cancellation](crate::Queue::request_cancel).
    pub fn cancel_requested(&self) -> &CancellationToken {
        self.held.cancel_requested()
    }

    /// Ends the delivery with a status. Settlements from many tasks share calls; a lone one is sent at once.
    ///
    /// [`Lost`](SettleOutcome::Lost) means that ownership was lost before: nothing was changed, and another
    /// consumer has, or had, the message. Settling again with the same status returns the same outcome;
    /// settling with another status returns `Lost`.
    ///
    /// # Errors
    /// For a delay or headers that cannot be used: [`Unsupported`](ErrorKind::Unsupported),
    /// [`InvalidInput`](ErrorKind::InvalidInput) or [`TooLarge`](ErrorKind::TooLarge); the delivery is still
    /// held. Otherwise the server's error, after core has repeated what is safe to repeat: settle again.
    ///
    /// # Cancellation
    /// Once polled, the settlement is completed even if the future is dropped; a later call returns its
    /// outcome.
    pub async fn settle(&mut self, status: QueueMessageStatus) -> Result<SettleOutcome> {
        self.settle_with(status, Successors::new()).await
    }

    /// Ends the delivery and stores messages along with its end. Where the backend [declares
    /// it](crate::adapter::Capabilities::successors), both happen in one step. Otherwise the messages are
    /// stored first, and are stored twice if a crash keeps the delivery from ending. If ownership was lost,
    /// none of them is stored.
    ///
    /// A message that is a duplicate, by its id or its deduplication key, is left out. Since the delivery
    /// ends first, a message may take over its deduplication key.
    ///
    /// ```
    /// use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed, Successors};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// queue.push("pages", MessageData::new("1").with_dedup_key("crawl")).await?;
    ///
    /// // Each page is followed by the next, and nobody can add a second chain.
    /// for mut page in queue.pull("pages").await? {
    ///     let next = MessageData::new("2").with_dedup_key("crawl");
    ///     page.settle_with(Processed, Successors::new().then("pages", next)?).await?;
    /// }
    /// assert_eq!(queue.pull("pages").await?[0].payload(), b"2");
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// Settling again with the same status and the same messages returns the same outcome; with others it
    /// returns `Lost`.
    ///
    /// # Errors
    /// As for [`settle`](Self::settle). Also, with the delivery still held, for a successor that cannot be
    /// pushed: the error is that of the push and names the successor. [`Unsupported`](ErrorKind::Unsupported)
    /// if the backend does not declare successors.
    ///
    /// # Cancellation
    /// As for [`settle`](Self::settle).
    pub async fn settle_with(
        &mut self,
        status: QueueMessageStatus,
        successors: Successors,
    ) -> Result<SettleOutcome> {
        let wanted = Wanted { status, successors: successors.ids() };
        if let Some(request) = self.prepare(&wanted, successors)? {
            let reply = self.shared.hand_over(request);
            self.begun(reply);
        }
        self.outcome(&wanted).await
    }

    /// Moves the end of the lease to now + `duration`, and lets the heartbeat renew the lease by that
    /// duration from then on. The duration is cut where it would exceed the partition's `max_hold`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a duration out of range, or once `max_hold` is reached;
    /// otherwise the server's error.
    ///
    /// # Cancellation
    /// If the future is dropped, the lease may or may not be extended.
    pub async fn extend(&mut self, duration: Duration) -> Result<ExtendOutcome> {
        let shared = &self.shared;
        let stamp = |error: Error| error.with_backend(shared.name()).with_operation(Operation::Extend);
        shared.capabilities.lease.check(duration).map_err(stamp)?;
        let _active = shared.enter(Operation::Extend)?;
        if self.concluded.is_some() || self.is_lost() {
            return Ok(ExtendOutcome::Lost);
        }
        let asked_at = shared.caller.clock.now();
        let Some(asked) = shared.keeper.ask(&self.held, asked_at, duration) else {
            return Err(stamp(Error::invalid(
                "this delivery has been held for max_hold: settle it, or raise max_hold",
            )));
        };
        let extension = asked.extension();
        let (caller, timeout) = (shared.caller.clone(), shared.options.call_timeout);
        let call = shared.exec.call(async move { caller.extend(&[extension], timeout).await });
        let outcome = call
            .await
            .map_err(stamp)?
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(stamp(Error::new(ErrorKind::Internal, "no answer"))))?;
        asked.answered(outcome, true);
        Ok(outcome)
    }

    /// Sets what the ledger records about this run if the task ends with it; replaces an earlier report.
    /// If the message becomes a dead letter, its headers say who ran it and for how long, as reported here,
    /// also without a [ledger](crate::QueueBuilder::ledger); everything else is then checked and discarded.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) for a result beyond [`MAX_RESULT_BYTES`](crate::MAX_RESULT_BYTES);
    /// the delivery is still held.
    pub fn report(&mut self, report: TaskReport) -> Result<()> {
        report.check().map_err(|error| error.with_backend(self.shared.name()))?;
        self.report = Some(Box::new(report));
        Ok(())
    }

    /// How long ago it was received.
    fn held_for(&self) -> Duration {
        self.shared.caller.clock.now().saturating_duration_since(self.receipt.received)
    }

    /// What the ledger keeps if the delivery is settled with this status.
    fn end_of_task(
        &self,
        status: &QueueMessageStatus,
        action: &Action,
        successors: usize,
    ) -> Option<Arc<TaskEnd>> {
        self.shared.options.ledger?;
        let ending = Ending {
            partition: self.partition(),
            message: &self.message,
            delivery_count: self.receipt.delivery_count,
            waited: self.receipt.age,
            ran: self.held_for(),
            was_handled: true,
            successors,
        };
        self.shared.end(&ending, status, action, self.report.as_deref())
    }

    /// Prepares the settlement to hand over. Returns `None` if the outcome is known already, or while an
    /// earlier settlement is under way: then this one is sent after it by itself, should it fail.
    pub(super) fn prepare(
        &mut self,
        wanted: &Wanted,
        successors: Successors,
    ) -> Result<Option<SettleRequest>> {
        if let Some(ended) = self.pending.as_mut().and_then(Begun::ended_already) {
            // Nobody needs its error any more: the new settlement takes its place.
            let _ = self.end(ended);
        }
        let is_open = self.is_open();
        if is_open && self.shared.exec.has_ended() {
            return Err(self.shared.refusal(Operation::Settle));
        }
        if is_open && self.is_lost() {
            self.concluded = Some(SettleOutcome::Lost);
        }
        if self.concluded.is_some() {
            return Ok(None);
        }
        if self.shared.closing.is_cancelled() {
            let closed = || self.shared.refusal(Operation::Settle);
            return if self.pending.is_some() { Ok(None) } else { Err(closed()) };
        }
        let lease = self.held.lease.clone();
        let action = self.shared.action(
            &lease.partition,
            &self.message,
            self.receipt.delivery_count,
            || self.held_for(),
            &wanted.status,
            self.report.as_deref(),
        )?;
        let (then, successor_bytes) = self.shared.successors(successors)?;
        let end = self.end_of_task(&wanted.status, &action, then.len());
        let result_bytes = end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, Bytes::len) as u64;
        let settlement = Settlement { lease, action, then, end };
        let bytes = successor_bytes.saturating_add(result_bytes);
        let request = SettleRequest { settlement, bytes, window: self.window.clone() };
        let before = std::mem::replace(&mut self.wanted, wanted.clone());
        let Some(earlier) = self.pending.take() else { return Ok(Some(request)) };
        let hand_over = move |shared: &Shared| shared.hand_over(request);
        self.pending = Some(earlier.followed(before, wanted.clone(), hand_over, &self.shared, &self.held));
        Ok(None)
    }

    /// Notes that a settlement was handed over.
    pub(crate) fn begun(&mut self, reply: Reply) {
        self.pending = Some(Begun::Alone(reply));
    }

    /// Waits for the outcome of what was handed over; returns at once if it is known already.
    pub(super) async fn outcome(&mut self, wanted: &Wanted) -> Result<SettleOutcome> {
        if let Some(pending) = &mut self.pending {
            let ended = pending.ended(&self.shared).await?;
            self.end(ended)?;
        }
        match self.concluded {
            Some(SettleOutcome::Settled) if self.wanted == *wanted => Ok(SettleOutcome::Settled),
            _ => Ok(SettleOutcome::Lost),
        }
    }

    /// Takes over the outcome of what was handed over.
    fn end(&mut self, ended: Ended) -> Result<()> {
        self.pending = None;
        if let Some(wanted) = ended.wanted {
            self.wanted = wanted;
        }
        let outcome = ended.answer?;
        self.concluded = Some(outcome);
        self.window = None;
        self.shared.keeper.release(&self.held);
        if outcome == SettleOutcome::Lost {
            self.held.fire_lost();
        }
        Ok(())
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.held.lease
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What another handle on this delivery needs.
    pub(super) fn parts(&self) -> (&Arc<Shared>, &Arc<Held>, Receipt) {
        (&self.shared, &self.held, self.receipt)
    }

    /// Whether no settlement has been asked for yet.
    pub(super) fn is_open(&self) -> bool {
        self.concluded.is_none() && self.pending.is_none()
    }

    /// Notes that it was settled in another way than by [`settle`](Self::settle).
    pub(crate) fn conclude(mut self, outcome: SettleOutcome) {
        self.concluded = Some(outcome);
        self.shared.keeper.release(&self.held);
    }
}

/// Releases the message if it was not settled. Does no I/O: the release is handed to the batcher, which has a
/// place for each held delivery.
impl Drop for Delivery {
    fn drop(&mut self) {
        if self.concluded.is_none() {
            self.shared.keeper.release(&self.held);
            // If it was lost with its runtime, it is still ours to release.
            let is_ours = !self.held.is_lost() || self.shared.exec.has_ended();
            if self.pending.is_none() && is_ours {
                self.shared.release(&self.held, &self.message, self.receipt.delivery_count);
            }
        }
        self.shared.held.decrement(1.0);
        self.shared.slots.add_permits(1);
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("partition", self.partition())
            .field("message", &self.message)
            .field("status", &self.wanted.status)
            .field("receipt", &self.receipt)
            .field("concluded", &self.concluded)
            .finish_non_exhaustive()
    }
}
