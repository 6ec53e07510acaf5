//! The in-memory backend of anyqueue: the reference implementation of the contract, and the test double.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//!
//! use anyqueue::{ManualClock, MessageData, Queue};
//! use anyqueue_memory::{MemoryConfig, MemoryQueue};
//!
//! let time = ManualClock::new();
//! let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
//! let queue = Queue::builder(storage).clock(time.clock()).build()?;
//! queue.push("mail", MessageData::new("later").with_delay(Duration::from_hours(1))).await?;
//!
//! assert!(queue.pull("mail").await?.is_empty());
//! time.advance(Duration::from_hours(1)); // no test has to wait for it
//! assert_eq!(queue.pull("mail").await?.len(), 1);
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```
//!
//! [`MemoryQueue::new`] creates a store that runs on the system's clock. [`MemoryQueue::client`] returns
//! another client of the same store, like a second process connected to the same server.
//!
//! # Guarantees
//! Every clause of the contract in its strictest form: ten priority levels, the higher one always first; push
//! order within a level; returned messages go to the front; groups; deduplication while a message lives;
//! delays and leases that end exactly on time; fenced leases; atomic moves; unique ids; counts, browsing,
//! deletion, cancellation, amendments, urgency and pauses. Nothing survives the process, and no other process
//! sees the messages.
//!
//! Where the contract leaves a choice, this backend behaves as follows:
//! - Returned messages are ordered by when they were pushed.
//! - A lease is valid until its end, but not at it. From then on settling and extending return `Lost`,
//!   whether or not the message has been claimed again since.
//! - A cancellation request stays with the message when its lease ends, so the next holder learns of it. A
//!   move clears it.
//! - A message that moves keeps the moment at which it becomes urgent.
//! - If the postponed head of a group is disabled, the group goes on without it. It joins the group again, at
//!   the end, once it is enabled and its delay is over.
//! - A dead-letter partition has neither groups nor deduplication.
//! - A partition is listed while it, or its dead letters, has messages or is paused. All others are
//!   forgotten.
//! - Headers that a settlement replaces count towards the store's limit, but a full store does not refuse the
//!   settlement. A postponement may not push a message over the limit for one message; a move may, so that
//!   even the largest message can become a dead letter.
//! - Closing a client does not end its leases: they expire, as after a crash.
//!
//! # By URL
//! `memory:`. Each opening creates a new store. To open queues by URL, add [`backend`] to a
//! [`Registry`](anyqueue::Registry).
//!
//! | option | without it | is |
//! |---|---|---|
//! | `max_messages` | 10000000 | messages the store holds, over all partitions; a push beyond is refused as full |
//! | `max_bytes` | 4294967296 | bytes the store holds, over all partitions; a push beyond is refused as full |
//! | `max_message_bytes` | 16777216 | bytes of one message; a larger one is refused as too large |
//! | `max_ended` | 1000000 | ends of tasks the store keeps, over all partitions; beyond that, the one that would lapse first goes |
//!
//! # Limits
//! A store holds 10 million messages and 4 GiB unless [configured otherwise](MemoryConfig); when it is full,
//! pushes return [`Full`](anyqueue::ErrorKind::Full). The size of a message is that of its payload, headers,
//! ids and keys, plus 512 bytes, roughly what storing it costs.
//!
//! The cost of a call grows with the backlog only logarithmically. One lock guards the store. A call holds it
//! for no longer than one batch takes, plus the time to process what has become due (ended leases and delays)
//! since the last call.
//!
//! # Time
//! All time is read from one [`Clock`](anyqueue::Clock), set by [`MemoryConfig::with_clock`]. With a
//! [`ManualClock`](anyqueue::ManualClock) time passes only when the test says so. On the system's clock, a
//! pull that waits needs a tokio runtime with time enabled. Every other call completes when it is first
//! polled, on any executor.
//!
//! # How it is built
//! The state machine is synchronous and takes the time as an argument. One partition is in `partition/`, with
//! its queues and leases. The whole store is in `state.rs`; its commands are in `push.rs`, `pull.rs`,
//! `settle.rs` and `inspect.rs`, each next to the thin asynchronous call that uses it. Only a pull waits;
//! `waiters.rs` decides which waiter is woken when.

#![allow(clippy::vec_box, reason = "messages stay in the boxes they live in, whichever list they are on")]

mod amend;
mod backend;
mod capabilities;
mod config;
mod control;
mod ends;
mod entries;
mod error;
mod inspect;
mod ledger;
mod limits;
mod partition;
mod pull;
mod push;
mod record;
mod series;
mod settle;
mod state;
mod storage;
mod waiters;

pub use backend::backend;
pub use config::MemoryConfig;
pub use storage::MemoryQueue;
