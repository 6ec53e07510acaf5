//! Work queues for Rust: one API, with any backend behind it.
//!
//! anyqueue is used in three ways:
//!
//! 1. **An application** takes an adapter crate (`anyqueue-memory`, `anyqueue-sqlite`, `anyqueue-postgres`,
//!    `anyqueue-redis`, `anyqueue-rabbitmq` or `anyqueue-sqs`), wraps its storage in a [`Queue`], and pushes,
//!    pulls and settles messages. Switching to another backend changes one line. To run handlers without
//!    writing the pull loop yourself, use the crate `anyqueue-worker`.
//! 2. **An adapter author** implements [`QueueStorage`], [`PushQueueStorage`], [`PullQueueStorage`] and
//!    [`Storage`] for another backend, and declares its [`Capabilities`].
//! 3. **Anybody** can run the conformance suite (the crate `anyqueue-conformance`) against a backend to find
//!    out whether it keeps the contract (`CONTRACT.md` in this crate).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use anyqueue::{MessageData, Queue, QueueMessageStatus};
//!
//! let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! queue.push("thumbnails", MessageData::new(b"cat.png").with_priority(3)).await?;
//!
//! for mut task in queue.pull("thumbnails").max(10).wait(Duration::from_secs(20)).await? {
//!     let status = match std::str::from_utf8(task.payload()) {
//!         Ok(_) => QueueMessageStatus::Processed,
//!         Err(e) => QueueMessageStatus::poisonous(e.to_string()),
//!     };
//!     task.settle(status).await?;
//! }
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```
//!
//! # Why pull
//!
//! The consumer decides how many messages it holds. The queue loses nothing, gives each message to one living
//! consumer at a time, notices dead consumers because their leases expire, takes back what a consumer
//! releases, and respects priorities. Long polling keeps latency low. [`Queue::stream`] is a push-style
//! interface on top of the same pull.
//!
//! # Life of a message
//!
//! A [`MessageData`] is pushed into a partition ([`PartitionId`]). A pull hands it out under a lease as a
//! [`Delivery`], which is settled with one of the seven statuses of [`QueueMessageStatus`]. While the
//! delivery is held, a heartbeat renews its lease. If the delivery is dropped unsettled, the message goes
//! back to the queue; if the process dies, the lease expires. A message that must not be tried again goes to
//! the partition's [dead letters](Queue::dead_letters).
//!
//! # Delivery
//!
//! Delivery is at least once: a consumer can die between doing the work and settling the message. Make
//! handlers idempotent, or key their effects by [`MessageId`], which survives redelivery, moves and redrive.
//!
//! # What a backend gives
//!
//! Backends differ. Each one declares what it offers, as configured and on the server at hand, in its
//! [`Capabilities`]: durability, priorities, groups, delays, limits and more. A call that needs something
//! undeclared fails with [`Unsupported`](ErrorKind::Unsupported) before anything is stored.
//!
//! # Limits and settings
//!
//! [`PartitionOptions`] sets the lease, the longest hold, the delivery limit and more for each partition;
//! [`QueueBuilder`] sets the rest. Nothing is unbounded. [`telemetry`] lists the metrics and spans that core
//! reports.
//!
//! # Errors
//!
//! All calls return one error type, [`Error`], which has a [kind](ErrorKind) and a [retry class](RetryClass).
//! Core itself repeats a call where that is safe (see [`RetryPolicy`]) before it returns an error.
//!
//! [`Capabilities`]: adapter::Capabilities
//! [`PullQueueStorage`]: adapter::PullQueueStorage
//! [`PushQueueStorage`]: adapter::PushQueueStorage
//! [`QueueStorage`]: adapter::QueueStorage
//! [`Storage`]: adapter::Storage

pub mod adapter;
mod amend;
mod beside;
mod capabilities;
mod clock;
pub mod control;
mod counts;
mod end_watches;
mod envelope;
mod error;
mod errors;
mod exec;
mod forward;
mod inspect;
mod io;
mod ledger;
mod lifecycle;
mod message;
mod namespace;
mod partition;
mod queue;
mod registry;
#[cfg(feature = "serde")]
mod serialize;
mod status;
mod storage;
pub mod telemetry;
mod waiters;

pub use amend::{Amend, AmendOutcome, Regroup};
pub use beside::{Beside, LedgerDown};
pub use clock::{Clock, ClockSetter, ManualClock, Skew};
pub use error::{Error, ErrorKind, Operation, Result, RetryClass};
pub use inspect::{Browsed, CancelOutcome, Counts, DeleteOutcome, MAX_PAGE, MessageState, Page};
pub use io::IoThread;
pub use ledger::{
    EndState, Forget, HISTOGRAM_BUCKETS, Histogram, Keep, MAX_COUNTED_TIME, MAX_LOG_BYTES,
    MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, MAX_SERIES_ROWS, MAX_SERIES_STEPS, SERIES_KEPT, SeriesQuery,
    SeriesRow, SeriesStep, Task, TaskCount, TaskFilter, TaskState,
};
pub use lifecycle::Health;
pub use message::{
    Headers, MAX_KEY_BYTES, MessageData, MessageId, OnDuplicate, RESERVED_HEADER_PREFIX, TaskOptions, When,
    header,
};
pub use partition::{IntoPartitionId, PartitionId};
pub use queue::{
    DeadLetter, DeadLetters, DeletedTasks, DeletedWhere, Delivery, DeliveryTwin, DetachedDelivery, Expired,
    GroupDelivery, HandlerStream, MAX_HEADER_NAME_BYTES, MAX_KEPT_KINDS, MAX_SUCCESSORS, PartitionOptions,
    Pull, PullGroups, Pusher, Queue, QueueBuilder, REDRIVE_ASIDE, REDRIVE_HOLD, Redrive, Redriven,
    RetryPolicy, SettlePulls, StreamBuilder, Successors, TaskPage, TaskReport, TaskStream, TraceSource,
};
pub use registry::Registry;
pub use status::{MAX_REASON_BYTES, QueueMessageStatus};
pub use storage::{ExtendOutcome, PushOutcome, SettleOutcome};

/// [`Delivery`] under the longer name that matches [`QueueMessageStatus`].
pub type QueueMessageHandler = Delivery;

pub use bytes::Bytes;
pub use tokio_util::sync::CancellationToken;
