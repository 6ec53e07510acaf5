//! The optional traits: looking into a storage, and pausing partitions.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::lifecycle::QueueStorage;
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;

/// The largest page, and the largest bounded step of a bulk operation, that core asks an adapter for.
pub const MAX_PAGE: usize = 1000;

/// Which part of a list to return: what comes after an item, and how much.
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
    /// The last item of the page before; `None`: the first page.
    pub after: Option<T>,
    /// The most items to return.
    pub limit: usize,
}

impl<T> Page<T> {
    /// The first page, of at most `limit` items.
    #[must_use]
    pub const fn of(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The page that follows this item. `None` leaves it the first.
    #[must_use]
    pub fn after(mut self, last: impl Into<Option<T>>) -> Self {
        self.after = last.into();
        self
    }

    /// At most [`MAX_PAGE`].
    pub(crate) fn bounded(self) -> Self {
        Self { limit: self.limit.min(MAX_PAGE), ..self }
    }
}

/// Looking into a storage. Each method is declared by a field of [`InspectCapability`](crate::adapter::InspectCapability); one that is
/// not declared returns [`Unsupported`](crate::ErrorKind::Unsupported), and core does not call it.
#[async_trait]
pub trait InspectQueueStorage: QueueStorage {
    /// Live partitions that have messages, or whose dead letters have some, or that are paused, in byte order of their names.
    /// One that has nothing any more may be among them.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>>;

    /// How many messages are in which state. Of a live partition; `dead` counts its dead letters.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn counts(&self, partition: &PartitionId) -> Result<Counts>;

    /// A page of messages in the order of their ids. Neither leases nor counts a delivery,
    /// and locks out nobody. Messages that come or go meanwhile may be seen or not; one that stays is seen exactly once.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>>;

    /// Deletes messages by id, unless they are leased. One result per id, in order.
    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>>;

    /// Deletes up to `limit` messages that are not leased and returns how many; fewer than `limit` means that none is left.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize>;

    /// Requests the cancellation of tasks by id. One that waits is removed; of one that is held, the holder learns by its
    /// next extension. One result per id, in order.
    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>>;
}

/// Pausing. The pause of a partition is kept by the server, where every client sees it, and survives restarts.
#[async_trait]
pub trait PauseQueueStorage: QueueStorage {
    /// From now on the partition delivers nothing; waiting pulls stay empty. Push and settle go on. Idempotent.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()>;

    /// Whether the partition is paused.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn is_paused(&self, partition: &PartitionId) -> Result<bool>;
}

const _: fn(&dyn InspectQueueStorage, &dyn PauseQueueStorage) = |_, _| {};

/// How many messages of a partition are in which state; `None` where the backend cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub struct Counts {
    /// Could be pulled now, or wait behind others of their group.
    pub ready: Option<u64>,
    /// Delayed or postponed.
    pub delayed: Option<u64>,
    /// Held by a consumer.
    pub leased: Option<u64>,
    /// [Disabled](crate::Amend::disabled): given to nobody until they are enabled.
    pub disabled: Option<u64>,
    /// Dead letters of the partition.
    pub dead: Option<u64>,
}

impl Counts {
    /// Counts that are all known, of a partition where nothing is disabled.
    pub fn known(ready: u64, delayed: u64, leased: u64, dead: u64) -> Self {
        let [ready, delayed, leased, dead] = [ready, delayed, leased, dead].map(Some);
        Self { ready, delayed, leased, disabled: Some(0), dead }
    }

    /// Sets how many are disabled.
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
    /// Its state at that moment.
    pub state: MessageState,
    /// Deliveries so far, where counted.
    pub delivery_count: Option<u32>,
    /// How long ago it was pushed, by the server's clock; zero if unknown.
    pub age: Duration,
    /// Of a message that is delayed, postponed or disabled meanwhile: how long until it can be pulled; `None` if unknown.
    pub due_in: Option<Duration>,
    /// Why the message cannot be read; its payload is then what is stored, as it is.
    pub unreadable: Option<Error>,
}

impl Browsed {
    /// A message in this state.
    pub fn new(message: MessageData, state: MessageState) -> Self {
        Self { message, state, delivery_count: None, age: Duration::ZERO, due_in: None, unreadable: None }
    }

    /// Sets the deliveries so far.
    #[must_use]
    pub fn with_delivery_count(mut self, delivery_count: u32) -> Self {
        self.delivery_count = Some(delivery_count);
        self
    }

    /// Sets the age.
    #[must_use]
    pub fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets how long until it can be pulled.
    #[must_use]
    pub fn with_due_in(mut self, due_in: Option<Duration>) -> Self {
        self.due_in = due_in;
        self
    }

    /// Sets why it cannot be read.
    #[must_use]
    pub fn with_unreadable(mut self, why: Option<Error>) -> Self {
        self.unreadable = why;
        self
    }
}

/// Where a stored message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum MessageState {
    /// Could be pulled now, or waits behind others of its group.
    Ready,
    /// Delayed or postponed.
    Delayed,
    /// Held by a consumer.
    Leased,
    /// [Disabled](crate::Amend::disabled): given to nobody until it is enabled.
    Disabled,
}

/// What became of a deletion by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum DeleteOutcome {
    /// Deleted.
    Deleted,
    /// A consumer holds it; it was left alone.
    Leased,
    /// There is no such message in the partition.
    NotFound,
}

/// What became of a request for cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum CancelOutcome {
    /// It was waiting, and is removed.
    Removed,
    /// It is held; its holder learns of the request by the next extension.
    Requested,
    /// There is no such message in the partition.
    NotFound,
}
