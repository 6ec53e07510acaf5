//! The handle that applications hold: init, check, close.

use std::fmt;
use std::sync::Arc;

use super::shared::Shared;
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::error::{Operation, Result};
use crate::lifecycle::Health;
use crate::storage::Storage;

/// A work queue over any backend: push, pull, settle, inspect.
///
/// Cheap to clone; all clones are the same queue. It adds to its storage what every backend needs: it checks
/// calls before anything is sent, splits batches to the backend's limits, joins single calls, repeats what is
/// safe to repeat, keeps the leases of held deliveries alive with a heartbeat, and releases deliveries that
/// are dropped.
///
/// Every call may be cancelled by dropping its future. A pull or settlement that has begun is then completed
/// in the background, and whatever a dropped pull had claimed is released.
///
/// A queue belongs to the tokio runtime in which it was built: its connections, its heartbeat and its
/// background work live there. It can be used from elsewhere as long as that runtime is being driven. Once
/// that runtime has ended, every call returns [`Closed`](crate::ErrorKind::Closed), deliveries that were held
/// are [lost](crate::Delivery::lost), and their messages come back when their leases end, at the latest.
/// Tests that each have their own runtime therefore need a queue each, or a queue with an
/// [`IoThread`](crate::IoThread), which belongs to no runtime.
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
pub struct Queue(pub(super) Arc<Shared>);

impl Queue {
    /// Creates what the storage needs, or checks that it exists. Idempotent.
    ///
    /// # Errors
    /// [`Incompatible`](crate::ErrorKind::Incompatible) if what exists does not fit this release,
    /// [`AccessDenied`](crate::ErrorKind::AccessDenied) for a missing right,
    /// [`TimedOut`](crate::ErrorKind::TimedOut) after the call timeout.
    pub async fn init(&self) -> Result<()> {
        self.0.bounded(Operation::Init, |storage| async move { storage.init().await }).await
    }

    /// Asks the server whether it can serve requests now.
    ///
    /// # Errors
    /// If it cannot; the error says why.
    pub async fn check(&self) -> Result<Health> {
        self.0.bounded(Operation::Check, |storage| async move { storage.check().await }).await
    }

    /// Closes the queue: refuses new work with [`Closed`](crate::ErrorKind::Closed), wakes waiting pulls,
    /// lets calls in flight finish, releases held deliveries (their handlers see them as lost), and closes
    /// the storage. Waits for at most the call timeout at each step. Idempotent.
    ///
    /// # Errors
    /// If closing the storage failed; the queue is closed all the same.
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
        shared.release_all().await;
        shared.bounded(Operation::Close, |storage| async move { storage.close().await }).await
    }

    /// Returns what the backend offers.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Returns the queue's clock, for code on top of the queue that must agree with it about time.
    pub fn clock(&self) -> &Clock {
        &self.0.caller.clock
    }

    /// Returns the underlying storage.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        self.0.storage()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("storage", self.0.storage()).finish_non_exhaustive()
    }
}
