//! The portable queue that applications hold.

mod admin;
mod begun;
mod caller;
mod coalesce;
mod crossing;
mod dead_letters;
mod deliveries;
mod guard;
mod handler;
mod keeper;
mod options;
mod pull;
mod push;
mod redrive;
mod refills;
mod refuse;
mod settle;
mod stream;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use admin::DeletedWhere;
pub use caller::RetryPolicy;
pub use dead_letters::{DeadLetter, DeadLetters, REDRIVE_ASIDE, REDRIVE_HOLD};
pub use guard::{MAX_HEADER_NAME_BYTES, validate};
pub use handler::QueueMessageHandler;
pub use options::{Expired, PartitionOptions, QueueBuilder, TraceSource};
pub use pull::Pull;
pub use redrive::{Redrive, Redriven};
pub use refills::Refills;
pub use stream::{HandlerStream, StreamBuilder};

use caller::Caller;
use coalesce::{Coalescer, Room};
use deliveries::DeliveryCounts;
use keeper::LeaseKeeper;
use options::Options;
use push::PushCall;
use settle::SettleCall;

use crate::capabilities::{Capabilities, SettleConfirm};
use crate::clock::Clock;
use crate::error::{Error, Operation, Result, RetryClass};
use crate::exec::{Exec, runtime_ended};
use crate::message::MessageData;
use crate::partition::PartitionId;
use crate::storage::{Action, Health, SettleOutcome, Settlement, Storage};
use crate::telemetry::PartitionLabels;

/// A work queue over any backend: push, pull, settle, look inside.
///
/// Cheap to clone; all clones are one queue. It adds to its storage what every backend needs alike: checks before anything is
/// sent, splitting into the backend's batches, joining of single calls, repetition of what is safe to repeat, a heartbeat for
/// what is held, and a release for what is dropped.
///
/// Every call may be cancelled by dropping its future. A pull or settlement that was begun is then carried through in the
/// background, and what a dropped pull had claimed is given back.
///
/// A queue belongs to the tokio runtime that it was made in: its connections, its heartbeat and what goes on in the background live
/// there. It can be used from elsewhere while that runtime is driven. When the runtime has ended, every call answers
/// [`Closed`](crate::ErrorKind::Closed), what was held is [lost](QueueMessageHandler::lost), and it comes back at its lease's end at
/// the latest. So tests that have a runtime each need a queue each, or one with an [`IoThread`](crate::IoThread), which belongs to
/// no runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed};
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push("mail", MessageData::new(b"hello")).await?;
/// for mut delivery in queue.pull("mail").max(10).await? {
///     assert_eq!(delivery.payload(), b"hello");
///     delivery.settle(Processed).await?;
/// }
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

/// What all clones, handlers and streams of a queue share.
pub(crate) struct Shared {
    caller: Caller,
    capabilities: Capabilities,
    options: Options,
    exec: Exec,
    pusher: Coalescer<PushCall>,
    settler: Coalescer<SettleCall>,
    keeper: Arc<LeaseKeeper>,
    deliveries: DeliveryCounts,
    /// A permit for each delivery that may be held.
    slots: Arc<Semaphore>,
    held: metrics::Gauge,
    /// A permit for each KiB that may wait in a push.
    push_room: Arc<Semaphore>,
    push_room_permits: u32,
    closing: CancellationToken,
    /// Calls under way, for `close` to wait for.
    active: TaskTracker,
    /// Ends the heartbeat with the last clone.
    _gone: DropGuard,
}

/// What a [`Queue`] can be made of: any storage, or a shared `dyn` handle such as [`Registry::open`](crate::Registry::open)
/// answers. Sealed.
pub trait IntoStorage: sealed::Sealed {
    /// The shared handle.
    fn into_storage(self) -> Arc<dyn Storage>;
}

mod sealed {
    pub trait Sealed {}
    impl<T: crate::storage::Storage> Sealed for T {}
    impl Sealed for std::sync::Arc<dyn crate::storage::Storage> {}
}

impl<T: Storage> IntoStorage for T {
    fn into_storage(self) -> Arc<dyn Storage> {
        Arc::new(self)
    }
}

impl IntoStorage for Arc<dyn Storage> {
    fn into_storage(self) -> Arc<dyn Storage> {
        self
    }
}

impl Queue {
    /// A queue with default options.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) outside a tokio runtime, or if the backend cannot keep the default lease.
    pub fn new(storage: impl IntoStorage) -> Result<Self> {
        Self::builder(storage).build()
    }

    /// Options first.
    pub fn builder(storage: impl IntoStorage) -> QueueBuilder {
        QueueBuilder::new(storage)
    }

    fn from_builder(builder: QueueBuilder, capabilities: Capabilities) -> Result<Self> {
        let QueueBuilder { storage, options, io, spawner, .. } = builder;
        let clock = options.clock.clone();
        let exec = Exec::new(io, spawner, clock.clone(), options.call_timeout)?;
        let caller = Caller {
            storage,
            clock: clock.clone(),
            retry: options.retry,
            call_timeout: options.call_timeout,
            labels: Arc::new(PartitionLabels::new(options.metric_partitions)),
        };
        let limits = capabilities.limits;
        let push_room = Room { items: limits.push_batch, bytes: limits.push_batch_bytes };
        let settle_room = Room { items: limits.settle_batch, bytes: u64::MAX };
        let push = capabilities.coalesce_push;
        let pusher =
            Coalescer::new(PushCall(caller.clone()), push, push_room, coalesce::GATHER, clock.clone());
        // A settlement that the server does not answer is no round trip: nothing is saved by waiting for others.
        let is_sent = capabilities.settle_confirm == SettleConfirm::Sent;
        let gather = if is_sent { Duration::ZERO } else { coalesce::GATHER };
        let settle = capabilities.coalesce_settle;
        let settler = Coalescer::new(SettleCall(caller.clone()), settle, settle_room, gather, clock);
        let keeper = Arc::new(LeaseKeeper::new(capabilities.lease.min, options.call_timeout));
        let (gone, closing) = (CancellationToken::new(), CancellationToken::new());
        let push_room_permits =
            u32::try_from(options.push_buffer_bytes / 1024).unwrap_or(u32::MAX).clamp(1, MAX_PERMITS);
        let shared = Arc::new_cyclic(|shared: &std::sync::Weak<Shared>| {
            let shared = shared.clone();
            let on_lost = move |held: &keeper::Held| {
                if let Some(shared) = shared.upgrade() {
                    shared.lost_here(held);
                }
            };
            let end = HeartbeatEnd {
                gone: gone.clone(),
                exec: exec.clone(),
                closing: closing.clone(),
                keeper: keeper.clone(),
            };
            let heartbeat =
                keeper::heartbeat(keeper.clone(), caller.clone(), exec.clone(), gone.clone(), on_lost);
            exec.spawn(async move {
                heartbeat.await;
                drop(end);
            });
            Shared {
                held: metrics::gauge!("anyqueue_held", "backend" => caller.name()),
                deliveries: DeliveryCounts::new(&capabilities),
                capabilities,
                slots: Arc::new(Semaphore::new(options.max_held.min(Semaphore::MAX_PERMITS))),
                push_room: Arc::new(Semaphore::new(push_room_permits as usize)),
                push_room_permits,
                options,
                exec,
                caller,
                pusher,
                settler,
                keeper,
                closing,
                active: TaskTracker::new(),
                _gone: gone.drop_guard(),
            }
        });
        Ok(Self(shared))
    }

    /// Creates what the storage needs, or checks that it is there. Idempotent.
    ///
    /// # Errors
    /// [`Incompatible`](crate::ErrorKind::Incompatible) if what is there does not fit this release, [`AccessDenied`](crate::ErrorKind::AccessDenied) for
    /// a missing right, [`TimedOut`](crate::ErrorKind::TimedOut) after the call timeout.
    pub async fn init(&self) -> Result<()> {
        self.0.bounded(Operation::Init, |storage| async move { storage.init().await }).await
    }

    /// Asks the server now whether it can serve.
    ///
    /// # Errors
    /// Says why it cannot.
    pub async fn check(&self) -> Result<Health> {
        self.0.bounded(Operation::Check, |storage| async move { storage.check().await }).await
    }

    /// Ends the queue: refuses new work with [`Closed`](crate::ErrorKind::Closed), wakes waiting pulls, lets what is under way finish, gives
    /// back what is held (its handlers see it lost), and closes the storage. Waits at most the call timeout for each. Idempotent.
    ///
    /// # Errors
    /// If letting go failed; the queue is closed all the same.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.0;
        shared.closing.cancel();
        shared.active.close();
        let finish = async {
            shared.active.wait().await;
            shared.pusher.idle().await;
            shared.settler.idle().await;
        };
        let timeout = shared.options.call_timeout;
        tokio::select! { biased; () = finish => {}, () = shared.exec.sleep(timeout) => {} }
        shared.give_back_all().await;
        shared.bounded(Operation::Close, |storage| async move { storage.close().await }).await
    }

    /// What the backend gives.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// The clock that it goes by: for whatever runs above it and must agree with it about time.
    pub fn clock(&self) -> &Clock {
        &self.0.caller.clock
    }

    /// The storage underneath.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        self.0.storage()
    }
}

/// What one tokio semaphore takes in one request.
const MAX_PERMITS: u32 = u32::MAX >> 3;

impl Shared {
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.caller.storage
    }

    fn name(&self) -> &'static str {
        self.caller.name()
    }

    /// Registers a call that `close` waits for, or refuses it.
    fn enter(&self, operation: Operation) -> Result<tokio_util::task::task_tracker::TaskTrackerToken> {
        let token = self.active.token();
        // After taking the token, so that `close` either sees the call or the call sees `close`.
        if self.closing.is_cancelled() {
            return Err(self.refusal(operation));
        }
        Ok(token)
    }

    /// Why nothing is done any more.
    fn refusal(&self, operation: Operation) -> Error {
        let error = if self.exec.has_ended() { runtime_ended() } else { Error::closed() };
        self.stamp(error, operation)
    }

    fn stamp(&self, error: Error, operation: Operation) -> Error {
        error.with_backend(self.name()).with_operation(operation)
    }

    /// A call that answers as a whole, made where the queue's connections live.
    async fn bounded<T, F>(
        &self,
        operation: Operation,
        call: impl FnOnce(Arc<dyn Storage>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        if self.exec.has_ended() && operation != Operation::Close {
            return Err(self.refusal(operation));
        }
        let (caller, timeout) = (self.caller.clone(), self.options.call_timeout);
        let call = async move { caller.bounded(operation, timeout, call(caller.storage.clone())).await };
        self.exec.call(call).await.map_err(|error| self.stamp(error, operation))?
    }

    /// Settles in a call of its own, without joining others.
    async fn settle_apart(&self, settlements: Vec<Settlement>) -> Vec<Result<SettleOutcome>> {
        let (caller, items) = (self.caller.clone(), settlements.len());
        let call = self.exec.call(async move { caller.settle(&settlements).await });
        // Settling twice is harmless.
        let failed = |error: Error| self.stamp(error.with_retry(RetryClass::Safe), Operation::Settle);
        call.await.unwrap_or_else(|error| vec![Err(failed(error)); items])
    }

    /// The lane in which settlements of a partition share calls.
    fn settle_lane(&self, partition: &PartitionId) -> Option<PartitionId> {
        (!self.capabilities.coalesce_settle.across_partitions).then(|| partition.clone())
    }

    /// A lease that ran out by core's own clock. Held by connection, the server does not know: tell it.
    fn lost_here(&self, held: &keeper::Held) {
        self.deliveries.failed(held.lease.id);
        if self.capabilities.lease.kind == crate::LeaseKind::Connection {
            self.hand_back(held, Action::Release);
        }
    }

    /// Gives a delivery back without waiting.
    fn release(&self, held: &keeper::Held, message: &MessageData, delivery_count: Option<u32>) {
        let action = self.returned(message, delivery_count);
        self.deliveries.note(held.lease.id, &action);
        self.hand_back(held, action);
    }

    fn hand_back(&self, held: &keeper::Held, action: Action) {
        let settlement = Settlement { lease: held.lease.clone(), action };
        self.settler.submit_detached(&self.exec, self.settle_lane(&held.lease.partition), settlement.into());
    }

    async fn give_back_all(&self) {
        let held = self.keeper.drain();
        let settlements: Vec<_> = held
            .iter()
            .map(|held| Settlement { lease: held.lease.clone(), action: Action::Release })
            .collect();
        for held in &held {
            held.fire_lost();
        }
        for part in settlements.chunks(self.capabilities.limits.settle_batch.max(1)) {
            for error in
                self.settle_apart(part.to_vec()).await.iter().filter_map(|answer| answer.as_ref().err())
            {
                // The lease ends it instead.
                tracing::debug!(%error, "a delivery could not be given back at close");
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("storage", self.0.storage()).finish_non_exhaustive()
    }
}

/// Dropped with the heartbeat's task. Unless that is because the queue is gone its runtime has ended, and the queue with it: without
/// a heartbeat nothing can be held.
struct HeartbeatEnd {
    gone: CancellationToken,
    exec: Exec,
    closing: CancellationToken,
    keeper: Arc<LeaseKeeper>,
}

impl Drop for HeartbeatEnd {
    fn drop(&mut self) {
        if self.gone.is_cancelled() {
            return;
        }
        self.exec.end();
        self.closing.cancel();
        // Whoever takes deliveries into care from now on sees that it has ended.
        for held in self.keeper.drain() {
            held.fire_lost();
        }
    }
}
