//! The optional traits for inspecting a storage and for pausing partitions.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::lifecycle::QueueStorage;
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;

/// The largest page, and the largest step of a bulk operation, that core asks an adapter for.
pub const MAX_PAGE: usize = 1000;

/// Which part of a list to return: the items after a given one, up to a limit.
///
/// ```
/// use anyqueue::{MessageData, Page, Queue};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push_many("mail", ["a", "b", "c"].map(MessageData::new).into()).await?;
///
/// let first = queue.browse("mail", Page::of(2)).await?;
/// let rest = queue.browse("mail", Page::of(2).after(first.last().map(|it| it.message.id()))).await?;
/// assert_eq!((first.len(), rest.len()), (2, 1));
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The last item of the previous page; `None` for the first page.
    pub after: Option<T>,
    /// The maximum number of items to return.
    pub limit: usize,
}

impl<T> Page<T> {
    /// Returns the first page, of at most `limit` items.
    #[must_use]
    pub const fn of(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// Makes this the page that follows `last`. With `None` it remains the first page.
    #[must_use]
    pub fn after(mut self, last: impl Into<Option<T>>) -> Self {
        self.after = last.into();
        self
    }

    /// Limits the page to [`MAX_PAGE`] items.
    pub(crate) fn bounded(self) -> Self {
        Self { limit: self.limit.min(MAX_PAGE), ..self }
    }
}

/// Inspecting a storage. Each method is declared by a field of
/// [`InspectCapability`](crate::adapter::InspectCapability); a method that is not declared returns
/// [`Unsupported`](crate::ErrorKind::Unsupported), and core does not call it.
#[async_trait]
pub trait InspectQueueStorage: QueueStorage {
    /// Returns the live partitions that have messages, have dead letters or are paused, in byte order of
    /// their names. A partition that has become empty may still be among them.
    ///
    /// # Errors
    /// The server's error.
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>>;

    /// Returns how many messages of a live partition are in which state; `dead` counts its dead letters.
    ///
    /// # Errors
    /// The server's error.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts>;

    /// Returns a page of messages in the order of their ids. This neither leases messages nor counts as a
    /// delivery, and locks out nobody. A message that comes or goes meanwhile may or may not be seen; one
    /// that stays is seen exactly once.
    ///
    /// # Errors
    /// The server's error.
    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>>;

    /// Deletes messages by id, unless they are leased. Returns one result per id, in order.
    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>>;

    /// Deletes up to `limit` messages that are not leased and returns how many; fewer than `limit` means that
    /// none are left.
    ///
    /// # Errors
    /// The server's error.
    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize>;

    /// Requests the cancellation of tasks by id. A waiting message is removed; the holder of a leased one
    /// learns of the request at its next extension. Returns one result per id, in order.
    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>>;
}

/// Pausing partitions. The server keeps the pause, so every client sees it and it survives restarts.
#[async_trait]
pub trait PauseQueueStorage: QueueStorage {
    /// Pauses or resumes a partition. While it is paused it delivers nothing, and waiting pulls stay empty;
    /// push and settle go on. Idempotent.
    ///
    /// # Errors
    /// The server's error.
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()>;

    /// Returns whether the partition is paused.
    ///
    /// # Errors
    /// The server's error.
    async fn is_paused(&self, partition: &PartitionId) -> Result<bool>;
}

const _: fn(&dyn InspectQueueStorage, &dyn PauseQueueStorage) = |_, _| {};

/// How many messages of a partition are in which state; a field is `None` if the backend cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub struct Counts {
    /// Messages that could be pulled now, or that wait behind others of their group.
    pub ready: Option<u64>,
    /// Delayed or postponed.
    pub delayed: Option<u64>,
    /// Held by a consumer.
    pub leased: Option<u64>,
    /// [Disabled](crate::Amend::disabled) messages, which nobody gets until they are enabled.
    pub disabled: Option<u64>,
    /// Dead letters of the partition.
    pub dead: Option<u64>,
}

impl Counts {
    /// Creates counts that are all known, for a partition in which nothing is disabled.
    pub fn known(ready: u64, delayed: u64, leased: u64, dead: u64) -> Self {
        let [ready, delayed, leased, dead] = [ready, delayed, leased, dead].map(Some);
        Self { ready, delayed, leased, disabled: Some(0), dead }
    }

    /// Sets [`disabled`](Self::disabled).
    #[must_use]
    pub fn with_disabled(mut self, disabled: u64) -> Self {
        self.disabled = Some(disabled);
        self
    }
}

/// A message as browsing shows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Browsed {
    /// The message.
    pub message: MessageData,
    /// Its state when it was browsed.
    pub state: MessageState,
    /// The number of deliveries so far, if the backend counts them.
    pub delivery_count: Option<u32>,
    /// How long ago it was pushed, by the server's clock; zero if unknown.
    pub age: Duration,
    /// How long until a message that is delayed, postponed or meanwhile disabled can be pulled; `None` if
    /// unknown.
    pub due_in: Option<Duration>,
    /// Why the message cannot be read, if so; its payload is then the stored bytes as they are.
    pub unreadable: Option<Error>,
}

impl Browsed {
    /// Creates a message in this state.
    pub fn new(message: MessageData, state: MessageState) -> Self {
        Self { message, state, delivery_count: None, age: Duration::ZERO, due_in: None, unreadable: None }
    }

    /// Sets [`delivery_count`](Self::delivery_count).
    #[must_use]
    pub fn with_delivery_count(mut self, delivery_count: u32) -> Self {
        self.delivery_count = Some(delivery_count);
        self
    }

    /// Sets [`age`](Self::age).
    #[must_use]
    pub fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets [`due_in`](Self::due_in).
    #[must_use]
    pub fn with_due_in(mut self, due_in: Option<Duration>) -> Self {
        self.due_in = due_in;
        self
    }

    /// Sets [`unreadable`](Self::unreadable).
    #[must_use]
    pub fn with_unreadable(mut self, why: Option<Error>) -> Self {
        self.unreadable = why;
        self
    }
}

/// The state of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum MessageState {
    /// It could be pulled now, or waits behind others of its group.
    Ready,
    /// Delayed or postponed.
    Delayed,
    /// Held by a consumer.
    Leased,
    /// [Disabled](crate::Amend::disabled): nobody gets it until it is enabled.
    Disabled,
}

/// The outcome of a deletion by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum DeleteOutcome {
    /// Deleted.
    Deleted,
    /// A consumer holds the message; it was left alone.
    Leased,
    /// There is no such message in the partition.
    NotFound,
}

/// The outcome of a request for cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum CancelOutcome {
    /// The message was waiting, and has been removed.
    Removed,
    /// A consumer holds the message, and learns of the request at its next extension.
    Requested,
    /// There is no such message in the partition.
    NotFound,
}
