//! The handle that applications hold, and its life: set up, asked, closed.

use std::fmt;
use std::sync::Arc;

use super::shared::Shared;
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::error::{Operation, Result};
use crate::lifecycle::Health;
use crate::storage::Storage;

/// A work queue over any backend: push, pull, settle, look inside.
///
/// Cheap to clone; all clones are one queue. It adds to its storage what every backend needs alike: checks before anything is
/// sent, splitting into the backend's batches, joining of single calls, repetition of what is safe to repeat, a heartbeat for
/// what is held, and a release for what is dropped.
///
/// Every call may be cancelled by dropping its future. A pull or settlement that was begun is then carried through in the
/// background, and what a dropped pull had claimed is released.
///
/// A queue belongs to the tokio runtime that it was made in: its connections, its heartbeat and what goes on in the background live
/// there. It can be used from elsewhere while that runtime is driven. When the runtime has ended, every call returns
/// [`Closed`](crate::ErrorKind::Closed), what was held is [lost](crate::Delivery::lost), and it comes back at its lease's end at
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
pub struct Queue(pub(super) Arc<Shared>);

impl Queue {
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

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("storage", self.0.storage()).finish_non_exhaustive()
    }
}
