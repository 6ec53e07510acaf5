//! The optional trait for changing waiting messages.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::Result;
use crate::lifecycle::QueueStorage;
use crate::message::{MessageData, MessageId, When};
use crate::partition::PartitionId;

/// Changing waiting messages. Declared by [`amend`](crate::adapter::Capabilities::amend).
#[async_trait]
pub trait AmendQueueStorage: QueueStorage {
    /// Changes messages of a live partition by id, unless they are leased. Returns one result per id, in
    /// order; if an id occurs twice, the second change sees what the first left. Each message is changed as a
    /// whole or not at all.
    ///
    /// Core guarantees at most [`MAX_PAGE`](crate::MAX_PAGE) ids, a change that is not empty, a priority,
    /// group and moment that the backend declares, and that the moment is [normalised](Amend::normalised). A
    /// message that cannot be read fails with its own error and stays as it is.
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>>;
}

const _: fn(&dyn AmendQueueStorage) = |_| {};

/// A change to waiting messages, for [`Queue::amend`](crate::Queue::amend). What it does not mention stays as
/// it is.
///
/// ```
/// use anyqueue::{Amend, AmendOutcome, MessageData, Queue};
/// use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let message = MessageData::new("report").with_delay(Duration::from_secs(3600));
/// let id = message.id();
/// queue.push("jobs", message).await?;
///
/// let outcomes = queue.amend("jobs", &[id], Amend::new().with_priority(9).now()).await?;
/// assert_eq!(outcomes[0].as_ref().unwrap(), &AmendOutcome::Amended);
/// assert_eq!(queue.pull("jobs").await?.len(), 1);
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Amend {
    /// The new priority level. The message takes the place that it would have if it had been pushed with this
    /// level: in push order among its equals.
    pub priority: Option<u8>,
    /// When the message is due, counted from now. A delayed message that becomes due at once joins the end of
    /// its priority, as it would have at its own time; a message that could be pulled already stays where it
    /// is. A message that becomes due later waits until then and joins the end of its priority; if it is the
    /// head of a group, it blocks the group meanwhile.
    pub due: Option<When>,
    /// The group that the message joins, at the end, or that it is to have none. If the message is disabled
    /// at that time, its place in the new group once it is enabled is not specified.
    pub group: Option<Regroup>,
    /// Whether the message is disabled. A disabled message is given to nobody until it is enabled, and others
    /// of its group go past it. Once enabled, it has the place that it had before, or still waits until it is
    /// due. It keeps its deduplication key and its age.
    pub disabled: Option<bool>,
}

/// A change of a message's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regroup {
    /// The message joins this group, at the end.
    Join(Arc<str>),
    /// The message leaves its group.
    Leave,
}

impl Amend {
    /// Creates an empty change, which is refused until it says something.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`priority`](Self::priority).
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Makes the message due at once.
    pub fn now(self) -> Self {
        self.due_in(Duration::ZERO)
    }

    /// Makes the message due after this delay, from now.
    pub fn due_in(mut self, delay: Duration) -> Self {
        self.due = Some(When::In(delay));
        self
    }

    /// Makes the message due at this time of day; a time in the past means at once.
    pub fn due_at(mut self, time: SystemTime) -> Self {
        self.due = Some(When::At(time));
        self
    }

    /// Moves the message into this group.
    pub fn with_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.group = Some(Regroup::Join(group.into()));
        self
    }

    /// Takes the message out of its group.
    pub fn without_group(mut self) -> Self {
        self.group = Some(Regroup::Leave);
        self
    }

    /// Disables the message.
    pub fn disable(mut self) -> Self {
        self.disabled = Some(true);
        self
    }

    /// Enables the message.
    pub fn enable(mut self) -> Self {
        self.disabled = Some(false);
        self
    }

    /// Returns whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how long from `now` the message is to be due; zero means at once. `now` matters only before
    /// core has normalised [`When::At`].
    #[must_use]
    pub fn delay(&self, now: SystemTime) -> Option<Duration> {
        self.due.map(|due| due.from_now(now))
    }

    /// Turns a time of day into a duration from `now`. Core does this to every change before a storage sees
    /// it.
    pub fn normalised(mut self, now: SystemTime) -> Self {
        self.due = self.due.map(|due| When::In(due.from_now(now)));
        self
    }

    /// Returns the message with its new priority and group, as it is stored and delivered from then on.
    pub fn apply(&self, message: MessageData) -> MessageData {
        let mut options = message.options().clone();
        options.priority = self.priority.unwrap_or(options.priority);
        match &self.group {
            Some(Regroup::Join(group)) => options.group = Some(Arc::clone(group)),
            Some(Regroup::Leave) => options.group = None,
            None => {}
        }
        if options == *message.options() { message } else { message.with_options(options) }
    }
}

/// The outcome of an amendment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum AmendOutcome {
    /// The message was changed.
    Amended,
    /// A consumer holds the message; it was left alone.
    Leased,
    /// The message is a dead letter of the partition; it was left alone.
    Dead,
    /// There is no such message in the partition.
    NotFound,
}
