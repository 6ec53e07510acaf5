//! The settings of a store.

use anyqueue::adapter::{StorageUrl, UrlOption};
use anyqueue::{Clock, Result};

/// Settings of an in-memory store. Each has a default.
///
/// ```
/// use anyqueue::ManualClock;
/// use anyqueue_memory::{MemoryConfig, MemoryQueue};
///
/// let time = ManualClock::new();
/// let config = MemoryConfig::default().with_clock(time.clock()).with_max_messages(1_000);
/// let queue = MemoryQueue::with_config(config);
/// # drop(queue);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryConfig {
    pub(crate) clock: Clock,
    pub(crate) max_messages: usize,
    pub(crate) max_bytes: u64,
    pub(crate) max_message_bytes: u64,
    pub(crate) max_ended: usize,
}

impl MemoryConfig {
    /// The default limit of messages in a store: ten million.
    pub const DEFAULT_MAX_MESSAGES: usize = 10_000_000;
    /// The default limit of bytes in a store: 4 GiB.
    pub const DEFAULT_MAX_BYTES: u64 = 4 << 30;
    /// The default limit of bytes in one message: 16 MiB.
    pub const DEFAULT_MAX_MESSAGE_BYTES: u64 = 16 << 20;

    /// The default limit of task ends that a store keeps: one million.
    pub const DEFAULT_MAX_ENDED: usize = 1_000_000;

    /// The clock for leases, delays, waits and ages. Default: the system's. With a
    /// [`ManualClock`](anyqueue::ManualClock) a test decides when time passes.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How many messages the store holds, over all partitions. Pushes beyond that return
    /// [`Full`](anyqueue::ErrorKind::Full).
    pub fn with_max_messages(mut self, max_messages: usize) -> Self {
        self.max_messages = max_messages;
        self
    }

    /// How many bytes the store holds, over all partitions, as counted by
    /// [`encoded_len`](anyqueue::adapter::PushQueueStorage::encoded_len). Pushes beyond that return
    /// [`Full`](anyqueue::ErrorKind::Full). Headers that a settlement adds count too, but are never refused
    /// for lack of space, because a message must always be able to become a dead letter.
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The largest size of one message in bytes, counted in the same way. A larger message returns
    /// [`TooLarge`](anyqueue::ErrorKind::TooLarge).
    pub fn with_max_message_bytes(mut self, max_message_bytes: u64) -> Self {
        self.max_message_bytes = max_message_bytes;
        self
    }

    /// How many task ends the store keeps, over all partitions, if a [ledger](anyqueue::QueueBuilder::ledger)
    /// is kept. Beyond that number, or if their results have more bytes than the store may hold, the ends
    /// that expire first are dropped, so that no task has to wait for space in order to end.
    pub fn with_max_ended(mut self, max_ended: usize) -> Self {
        self.max_ended = max_ended;
        self
    }

    /// Reads the options of a `memory:` URL; see [`backend`](crate::backend).
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a value that is not a number.
    pub fn from_url(url: &StorageUrl) -> Result<Self> {
        let default = Self::default();
        Ok(Self {
            max_messages: url.option(MAX_MESSAGES.name)?.unwrap_or(default.max_messages),
            max_bytes: url.option(MAX_BYTES.name)?.unwrap_or(default.max_bytes),
            max_message_bytes: url.option(MAX_MESSAGE_BYTES.name)?.unwrap_or(default.max_message_bytes),
            max_ended: url.option(MAX_ENDED.name)?.unwrap_or(default.max_ended),
            clock: default.clock,
        })
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            max_messages: Self::DEFAULT_MAX_MESSAGES,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            max_message_bytes: Self::DEFAULT_MAX_MESSAGE_BYTES,
            max_ended: Self::DEFAULT_MAX_ENDED,
        }
    }
}

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[MAX_MESSAGES, MAX_BYTES, MAX_MESSAGE_BYTES, MAX_ENDED];
const MAX_ENDED: UrlOption = UrlOption::new(
    "max_ended",
    "1000000",
    "ends of tasks the store keeps, over all partitions; beyond that, the one that would lapse first goes",
);
const MAX_MESSAGES: UrlOption = UrlOption::new(
    "max_messages",
    "10000000",
    "messages the store holds, over all partitions; a push beyond is refused as full",
);
const MAX_BYTES: UrlOption = UrlOption::new(
    "max_bytes",
    "4294967296",
    "bytes the store holds, over all partitions; a push beyond is refused as full",
);
const MAX_MESSAGE_BYTES: UrlOption = UrlOption::new(
    "max_message_bytes",
    "16777216",
    "bytes of one message; a larger one is refused as too large",
);
