//! A handle that can push, and nothing else.

use super::handle::Queue;
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::message::MessageData;
use crate::partition::IntoPartitionId;
use crate::storage::PushOutcome;

/// A handle that can only push: it cannot pull, settle, inspect, change or close anything. Cheap to clone;
/// made by [`Queue::pusher`].
///
/// It limits what a part of a program can do by mistake. What a process may do is a matter of its
/// credentials' rights.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue::{MessageData, Pusher, Queue};
///
/// async fn sign_up(mail: &Pusher, address: &str) -> anyqueue::Result<()> {
///     mail.push("mail", MessageData::new(format!("welcome, {address}"))).await?;
///     Ok(())
/// }
///
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// sign_up(&queue.pusher(), "a@example.org").await?;
/// assert_eq!(queue.pull("mail").await?.len(), 1);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Pusher(Queue);

impl Queue {
    /// Returns a handle on this queue that can only push. It shares the queue's buffer and calls, and works
    /// until the queue is closed.
    pub fn pusher(&self) -> Pusher {
        Pusher(self.clone())
    }
}

impl Pusher {
    /// Pushes one message: see [`Queue::push`].
    ///
    /// # Errors
    /// As for [`Queue::push`].
    ///
    /// # Cancellation
    /// As for [`Queue::push`].
    pub async fn push(&self, partition: impl IntoPartitionId, message: MessageData) -> Result<PushOutcome> {
        self.0.push(partition, message).await
    }

    /// Pushes messages in order: see [`Queue::push_many`].
    ///
    /// # Errors
    /// As for [`Queue::push_many`].
    ///
    /// # Cancellation
    /// As for [`Queue::push_many`].
    pub async fn push_many(
        &self,
        partition: impl IntoPartitionId,
        messages: Vec<MessageData>,
    ) -> Result<Vec<Result<PushOutcome>>> {
        self.0.push_many(partition, messages).await
    }

    /// Checks whether a message could be pushed: see [`Queue::check_push`].
    ///
    /// # Errors
    /// As for [`Queue::check_push`].
    pub fn check_push(&self, partition: impl IntoPartitionId, message: &MessageData) -> Result<()> {
        self.0.check_push(partition, message)
    }

    /// Returns what the backend offers.
    pub fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
}
