//! The SQLite backend of anyqueue: a durable queue in one file, which several processes can share.
//!
//! ```
//! use anyqueue::{MessageData, Queue};
//! use anyqueue_sqlite::SqliteQueue;
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("jobs.db");
//! let queue = Queue::new(SqliteQueue::open(&path).await?)?;
//! queue.push("mail", MessageData::new("hello")).await?;
//! let handlers = queue.pull("mail").await?;
//! assert_eq!(handlers[0].payload(), b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # Guarantees
//! Strict priority over ten levels, push order within a level, strict fencing, groups (a pull can claim
//! several members of one at once), deduplication, delays, atomic moves, amendments of waiting messages, and
//! messages that become urgent. The moment at which a message becomes urgent stays with it when it becomes a
//! dead letter or is moved back. The transaction that ends a delivery also stores its
//! [successors](anyqueue::Successors), and what the [ledger](anyqueue::QueueBuilder::ledger) keeps of its
//! task. What is acknowledged is committed and, by default ([`Synchronous::Full`]), survives power loss.
//! Several processes may use one file at once. All times are those of the host's clock.
//!
//! # In an application's database
//! The names of all tables begin with `anyqueue_`, and their migrations have a version table of their own.
//! With `SqliteQueue::push_in` (feature `sqlx`) messages are stored as part of the application's own
//! transaction:
//!
//! ```
//! # #[cfg(feature = "sqlx")]
//! # async fn order(queue: anyqueue_sqlite::SqliteQueue, mut conn: sqlx::SqliteConnection) -> Result<(), Box<dyn std::error::Error>> {
//! # use anyqueue::{MessageData, PartitionId};
//! use sqlx::Connection;
//! let mail = PartitionId::new("mail")?;
//! let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
//! sqlx::raw_sql("INSERT INTO orders VALUES ('tea')").execute(&mut *tx).await?;
//! let pushed = queue.push_in(&mut tx, &mail, &[MessageData::new("tea is on its way")]).await?;
//! tx.commit().await?;
//! pushed.after_commit.notify(); // wakes pulls that wait
//! # Ok(()) }
//! ```
//!
//! The file must store text as UTF-8, which is SQLite's default.
//!
//! # By URL
//! `sqlite:jobs.db?synchronous=normal`, or `sqlite:///srv/jobs.db`. To open queues by URL,
//! add [`backend`] to a [`Registry`](anyqueue::Registry).
//!
//! | option | without it | is |
//! |---|---|---|
//! | `synchronous` | full | full: acknowledged work survives power loss; normal: only process crashes |
//! | `busy_timeout` | 5s | how long to wait for another process's write lock |
//! | `poll_interval` | 8ms | how often a waiting pull looks for other processes' work, 1ms to 1s |
//! | `create` | true | whether to create the file and its tables where missing |
//! | `max_bytes` | none | largest size of the database file in bytes; beyond it pushes return Full |
//! | `message_bytes` | 16777216 | largest encoded message in bytes |
//!
//! # The file is replaced or deleted
//! An open connection keeps writing to the file that it opened, even if another one was put in its place. So
//! after each commit, and before it answers, the writer checks that the path still leads to that file (by
//! device and inode), and that the write-ahead log next to it is the one it writes to. If not, every call
//! returns `Unavailable`, and [`check`](anyqueue::adapter::QueueStorage::check) fails. So what was
//! acknowledged was in the file with that name at some moment after its commit. If the same file comes back,
//! the handle continues. It does not open another file by itself, because SQLite would mix a restored file
//! with a log that was left next to it. To restore a backup, stop every process that uses the file, remove
//! `jobs.db-wal` and `jobs.db-shm`, move the backup there, and start again. Overwriting the file in place
//! (`cp`) while it is open damages it, and cannot be detected. Systems without inodes are not checked:
//! Windows does not let a file be replaced while SQLite has it open.
//!
//! # Time
//! Leases and delays end at a time of day. If the host's clock is set, the next transaction that writes
//! shifts the ends of all leases accordingly (on Linux, for steps of a quarter of a second or more). So a
//! step forward ends no lease that its holder still relies on, and a step back does not hold up the messages
//! of a process that died. Delays keep their time of day, so a step makes them late or early by as much. In a
//! container that has its own boot id or clocks, and on other systems, leases are not shifted; there, adjust
//! the clock only slowly.
//!
//! # Partitions
//! A partition is listed while it, or its dead letters, has messages or is paused. The rows of all others are
//! deleted, up to 64 at a time, each time sixteen more partitions have been used, so that names made from ids
//! do not fill the file. Partitions with ends of tasks, or counts of ends, are kept.
//!
//! # Ends of tasks
//! The table `anyqueue_ended` has one row for each task whose end is kept: partition, id, state, when it
//! ended, when it expires, its rank among ends of the same task, the end itself, and the result. Each order
//! in which ends are read has an index: a page, or a capped count, of one state, several states or a period
//! takes as long among a million ends as among a hundred, and lists do not read results. If no ends are kept,
//! no additional statement runs. [`purge_ended`](anyqueue::Queue::purge_ended) frees expired ends, in
//! transactions of about 10 ms.
//!
//! The table `anyqueue_series` has the [counts](anyqueue::Queue::series) of ends. There is a row for each
//! combination of minute, kind, state and two duration buckets in which a task ended; each end updates one in
//! its own transaction. The same purge frees rows that are older than eight days, whatever its limit for
//! ends.
//!
//! # Limits
//! At most 32 MiB per message (16 MiB by default), batches of 1000, leases up to 30 days, delays up to ten
//! years. Only one transaction at a time can write to a file, so keep other write transactions on it short.
//! The file must be on a local disk, since SQLite's write-ahead log does not work over a network. Pushes, and
//! settlements that bring successors or results, return `Full` if they would leave less than 4 MiB free on
//! the disk (or less than a quarter of a smaller one), because SQLite needs space in order to remove
//! messages.
//!
//! # How it works
//! One thread writes. It puts all waiting requests into one transaction, so if sixty-four tasks push one
//! message each, they wait for the disk once, not sixty-four times; a lone request does not wait for others.
//! Counts and pages are read on up to two other connections, and do not block anyone. Waiting pulls are woken
//! at once by calls of their own handle, and when a delay or lease ends. To see what other processes did, the
//! file is polled ([`poll_interval`](SqliteBuilder::poll_interval)) while a pull waits.

mod admin;
mod alter;
mod amend;
mod backend;
mod capabilities;
mod claim;
mod config;
mod connect;
mod control;
#[cfg(test)]
mod cost;
mod due;
mod ending;
mod ends;
mod entries;
mod error;
mod forget;
mod found;
mod group;
mod identity;
mod insert;
mod inspect;
mod job;
mod ledger;
mod limits;
mod lookout;
mod new_message;
mod now;
mod often;
mod place;
#[cfg(test)]
mod plans;
mod pull;
mod push;
#[cfg(feature = "sqlx")]
mod push_in;
#[cfg(feature = "sqlx")]
mod push_tx;
mod readers;
mod record;
mod report;
mod room;
mod schema;
mod series;
mod settle;
mod sql;
mod steps;
mod storage;
mod taken;
mod token;
mod tx;
mod urgent;
mod writer;

pub use backend::backend;
pub use config::{SqliteBuilder, Synchronous};
#[cfg(feature = "sqlx")]
pub use push_in::{AfterCommit, PushedIn};
pub use report::FileReport;
/// The version of sqlx whose connections [`SqliteQueue::push_in`] takes.
#[cfg(feature = "sqlx")]
pub use sqlx;
pub use storage::SqliteQueue;
