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
//! [`MemoryQueue::new`] makes a store on the system's clock, and [`MemoryQueue::client`] another client of the same store, as
//! another process would be of a server.
//!
//! # Guarantees
//! Every clause of the contract in its strictest form: priorities in 10 levels, the higher always first; push order within
//! a level; what comes back goes to the front; groups; deduplication while a message lives; delays and leases that end
//! at their very moment; fenced leases; atomic moves; unique ids; counts, browsing, deletion,
//! cancellation, amendments, urgency and pauses.
//! Nothing survives the process, and nobody outside of it sees the messages.
//!
//! What the contract leaves open is decided like this:
//! - Messages that came back stand in the order in which they were pushed.
//! - A lease is valid until, and not at, its end. From then on settling and extending return `Lost`, whether or not somebody
//!   else has claimed the message since.
//! - A request for cancellation stays with the message when its lease ends; the next holder learns of it. A move clears it.
//! - A message that moves keeps the moment at which it becomes urgent.
//! - A postponed head of a group that is disabled leaves the group to the others, and joins it again at its moment.
//! - A dead-letter partition knows neither groups nor deduplication.
//! - A partition is listed while it, or its dead letters, has messages or is paused. Others are forgotten.
//! - A settlement that replaces headers is counted, but not refused because the store is full. A postponement may not make
//!   the message larger than the limit of one message; a move may, so that the largest can die too.
//! - Closing a client leaves its leases to run out, as a crash would.
//!
//! # By URL
//! `memory:`. Each opening makes a store of its own. With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
//!
//! | option | without it | is |
//! |---|---|---|
//! | `max_messages` | 10000000 | messages the store holds, over all partitions; a push beyond is refused as full |
//! | `max_bytes` | 4294967296 | bytes the store holds, over all partitions; a push beyond is refused as full |
//! | `max_message_bytes` | 16777216 | bytes of one message; a larger one is refused as too large |
//! | `max_ended` | 1000000 | ends of tasks the store keeps, over all partitions; beyond that, the one that would lapse first goes |
//!
//! # Limits
//! A store holds 10 million messages and 4 GiB unless [told otherwise](MemoryConfig); beyond, pushes return
//! [`Full`](anyqueue::ErrorKind::Full). A message counts its payload, headers, ids and keys in bytes, and 512 besides,
//! about what keeping it costs.
//!
//! No call costs more because the backlog is long, but for a logarithm. One lock guards the store: no call holds it longer
//! than one batch takes, except that a call carries out first what fell due (lease ends, maturities) since the last one.
//!
//! # Time
//! All of it is read from one [`Clock`](anyqueue::Clock), given by [`MemoryConfig::with_clock`]. With a
//! [`ManualClock`](anyqueue::ManualClock) time passes when the test says so. A pull that waits needs a tokio runtime with
//! time enabled on the system's clock; every other call is done when it is first polled, on any executor.
//!
//! # How it is built
//! The state machine is synchronous and takes the time as an argument. One partition is in `partition.rs`, its queues and
//! leases in `partition/`; the whole store is in `state.rs` and, command by command, in `push.rs`, `pull.rs`, `settle.rs`
//! and `inspect.rs`, each beside the thin asynchronous shell it serves. Only a pull waits; `waiters.rs` says who is woken when.

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
mod message;
mod partition;
mod pull;
mod push;
mod series;
mod settle;
mod state;
mod storage;
mod waiters;

pub use backend::backend;
pub use config::MemoryConfig;
pub use storage::MemoryQueue;
