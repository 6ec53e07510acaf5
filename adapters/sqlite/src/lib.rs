//! The SQLite backend of anyqueue: a durable queue in one file, shared by processes.
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
//! Strict priority over ten levels, push order within one, strict fencing, groups (of which a pull can claim several members at once),
//! deduplication, delays, atomic moves, amendments of what waits, and messages that become urgent: that moment goes along where a message
//! dies or is put back. The [successors](anyqueue::Successors) of a delivery are stored in the transaction that ends it, and so is what the
//! [ledger](anyqueue::QueueBuilder::ledger) keeps of its task. What is acknowledged is committed, by default ([`Synchronous::Full`]) so that it survives power loss. Several processes may use one file at
//! once; all clocks are the host's.
//!
//! # In an application's database
//! All tables begin with `anyqueue_`, and their migrations keep a ledger of their own. With
//! `SqliteQueue::push_in` (feature `sqlx`) messages are stored in the application's own transaction, or not at all:
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
//! Text in the file must be UTF-8, which is SQLite's default.
//!
//! # By URL
//! `sqlite:jobs.db?synchronous=normal`, or `sqlite:///srv/jobs.db`. With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
//!
//! | option | without it | is |
//! |---|---|---|
//! | `synchronous` | full | full: acknowledged work survives power loss; normal: only process crashes |
//! | `busy_timeout` | 5s | how long to wait for another process's write lock |
//! | `poll_interval` | 8ms | how often a waiting pull looks for other processes' work, 1ms to 1s |
//! | `create` | true | whether to create the file and its tables where missing |
//! | `max_bytes` | none | largest size of the database file in bytes; beyond it pushes answer Full |
//! | `message_bytes` | 16777216 | largest encoded message in bytes |
//!
//! # The file is replaced or deleted
//! A connection goes on writing to the file that it has open, though another one was put in its place. So the writer looks, between
//! each commit and its answer, whether the path still leads to the file (its device and inode) and the write-ahead log beside it is the one
//! it writes. If not, everything returns `Unavailable` and [`check`](anyqueue::adapter::QueueStorage::check) fails: what was acknowledged was in
//! the file that had the name at a moment after its commit. If the same file comes back the handle goes on. It does not open another by itself: SQLite
//! would mix a file that was put back with a log that was left beside it. To put a backup back, stop every process that uses the file,
//! remove `jobs.db-wal` and `jobs.db-shm`, move the backup there, and start again. Overwriting the file in place (`cp`), while it is open,
//! damages it and cannot be noticed. Where there are no inodes nothing is looked at: Windows lets no open file of SQLite's be replaced.
//!
//! # Time
//! Leases and delays end at a time of day. Where the host's clock is set, whoever writes next moves all leases along (on Linux, and for
//! steps of a quarter of a second or more): a step forward gives away no lease that its holder still trusts, and a step back holds up no
//! message of a process that died. Delays keep their time of day: a step makes them late or early by as much. In a container
//! with a boot id or clocks of its own, and on other systems, leases are not moved; keep the clock there by slow
//! adjustments.
//!
//! # Partitions
//! A partition is listed while it, or its dead letters, has messages or is paused. The rows of others are deleted when sixteen more
//! partitions were used, up to 64 at a time, so that names made from ids do not fill the file; but not while ends of tasks, or
//! counts of ends, are kept of them.
//!
//! # Ends of tasks
//! The table `anyqueue_ended` has one row for each task whose end is kept: partition, id, state, when it ended, from when on it is told no more,
//! its rank among ends of the same task, the end itself, and the result. It has an index for each order that is asked for: a page or a capped
//! count of one state, of several, or of a time is as quick among a million ends as among a hundred, and lists read no results. Where no
//! ends are kept not one statement more runs. What has lapsed is freed by
//! [`purge_ended`](anyqueue::Queue::purge_ended), in transactions of about 10 ms.
//!
//! The table `anyqueue_series` has the [counts](anyqueue::Queue::series) of ends: a row for each minute, kind, state, and pair of buckets in which any ended, which each end
//! changes in its own transaction. The same purge frees those that are older than eight days, whatever its limit for ends.
//!
//! # Limits
//! 32 MiB per message at most (16 MiB unless configured), batches of 1000, leases up to 30 days, delays up to ten years. There
//! is one writer per file at a time: keep other write transactions on it short. The file must be on a local
//! disk, since SQLite's write-ahead log does not work over a network. Pushes, and settlements that bring successors or results, answer `Full`
//! when they would leave less than 4 MiB on the disk (a quarter of it, if it is smaller), which SQLite needs for taking messages out.
//!
//! # How it works
//! One thread writes. It joins all requests that wait into one transaction, so that sixty-four tasks that push one message each
//! pay for one wait for the disk, not for sixty-four; a lone request waits for nobody. Counts and pages are read
//! on up to two connections of their own and lock out nobody. Waiting pulls are woken at once by what their own handle
//! does and by time; for what other processes do, the file is polled
//! ([`poll_interval`](SqliteBuilder::poll_interval)), and only while somebody waits.

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
mod report;
mod room;
mod schema;
mod series;
mod settle;
mod sql;
mod steps;
mod storage;
mod stored;
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
/// In the version whose connections [`SqliteQueue::push_in`] takes.
#[cfg(feature = "sqlx")]
pub use sqlx;
pub use storage::SqliteQueue;
