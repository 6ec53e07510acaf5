//! The optional trait for changing messages that wait.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::Result;
use crate::lifecycle::QueueStorage;
use crate::message::{MessageData, MessageId, When};
use crate::partition::PartitionId;

/// Changing messages that wait: declared by [`amend`](crate::adapter::Capabilities::amend).
#[async_trait]
pub trait AmendQueueStorage: QueueStorage {
    /// Changes messages of a live partition by id, unless they are leased. One result per id, in order; of an id that occurs twice the
    /// second finds what the first left. Each message is changed as a whole or not at all.
    ///
    /// Core guarantees: at most [`MAX_PAGE`](crate::MAX_PAGE) ids, a change that is not empty, a priority, a group and a moment that the
    /// backend declares, and the moment [normalised](Amend::normalised). A message that cannot be read fails with its own error and stays as
    /// it is.
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>>;
}

const _: fn(&dyn AmendQueueStorage) = |_| {};

/// What to change of messages that wait, for [`Queue::amend`](crate::Queue::amend). What it does not say stays as it is.
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
    /// Its new level. It stands there as if it had been pushed with it: in push order among its equals.
    pub priority: Option<u8>,
    /// When it is due, counted from now. What is delayed and becomes due at once joins the end of its priority, as it would have at its
    /// time; what could be pulled already stays where it is. What becomes due later waits for that, then joins the end of its priority; the
    /// head of a group holds its group meanwhile.
    pub due: Option<When>,
    /// The group it joins, at the end, or that it is to have none. Of a message that is disabled at that time, the place that it has in the new
    /// group once it is enabled is not promised.
    pub group: Option<Regroup>,
    /// Whether it is set aside. A message that is disabled is given to nobody until it is enabled, and others of its group go past it.
    /// Enabled, it stands where it stood, or still waits for the moment at which it is due. It keeps its deduplication key and its age.
    pub disabled: Option<bool>,
}

/// What becomes of a message's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regroup {
    /// It joins this one, at the end.
    Join(Arc<str>),
    /// It has none.
    Leave,
}

impl Amend {
    /// A change of nothing, which is refused until it says something.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`priority`](Self::priority).
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Makes it due at once.
    pub fn now(self) -> Self {
        self.due_in(Duration::ZERO)
    }

    /// Makes it due so long from now.
    pub fn due_in(mut self, delay: Duration) -> Self {
        self.due = Some(When::In(delay));
        self
    }

    /// Makes it due at this time of day; the past means at once.
    pub fn due_at(mut self, time: SystemTime) -> Self {
        self.due = Some(When::At(time));
        self
    }

    /// Lets it join this group.
    pub fn with_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.group = Some(Regroup::Join(group.into()));
        self
    }

    /// Takes it out of its group.
    pub fn without_group(mut self) -> Self {
        self.group = Some(Regroup::Leave);
        self
    }

    /// Sets it aside.
    pub fn disable(mut self) -> Self {
        self.disabled = Some(true);
        self
    }

    /// Lets it be delivered again.
    pub fn enable(mut self) -> Self {
        self.disabled = Some(false);
        self
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How long from now it is to be due; zero: at once. `now` matters only before core has normalised [`When::At`].
    #[must_use]
    pub fn delay(&self, now: SystemTime) -> Option<Duration> {
        self.due.map(|due| due.from_now(now))
    }

    /// Turns a time of day into a duration from `now`, as every change is before a storage sees it.
    pub fn normalised(mut self, now: SystemTime) -> Self {
        self.due = self.due.map(|due| When::In(due.from_now(now)));
        self
    }

    /// The message with its new priority and group, as it is stored and delivered from then on.
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

/// What became of an amendment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum AmendOutcome {
    /// It is as asked for.
    Amended,
    /// A consumer holds it; it was left alone.
    Leased,
    /// It is a dead letter of the partition; it was left alone.
    Dead,
    /// There is no such message in the partition.
    NotFound,
}
