//! The `PostgreSQL` backend of anyqueue: a durable queue in a schema of its own, with transactional push.
//!
//! ```no_run
//! use anyqueue::{MessageData, Queue};
//! use anyqueue_postgres::PostgresQueue;
//! # async fn example() -> Result<(), anyqueue::Error> {
//! let queue = Queue::new(PostgresQueue::open("postgres://app@localhost/shop").await?)?;
//! queue.push("mail", MessageData::new("hello")).await?;
//! let handlers = queue.pull("mail").await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! Strict priority over ten levels, push order within a level, strict fencing, groups, also claimed whole, deduplication, delays,
//! atomic moves. The [successors](anyqueue::Successors) of a delivery are stored in the statement that ends it. Amendments change a
//! message in one statement, in whatever state it waits. The [end](anyqueue::adapter::TaskEnd) of a task is stored in the statement that removes
//! its message. What is acknowledged is committed; whether a commit survives power loss depends on the server's `synchronous_commit` and `fsync`, and is declared accordingly.
//! Claims do not wait for the disk: if the server crashes, the messages are delivered again. All times are the server's.
//!
//! # In an application's database
//! [`PostgresQueue::push_in`] stores messages in the application's own transaction:
//!
//! ```no_run
//! # use anyqueue::{MessageData, PartitionId};
//! # async fn order(queue: anyqueue_postgres::PostgresQueue, mut conn: sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use sqlx::Connection;
//! let mail = PartitionId::new("mail")?;
//! let mut tx = conn.begin().await?;
//! sqlx::query("INSERT INTO orders VALUES ('tea')").execute(&mut *tx).await?;
//! let pushed = queue.push_in(&mut tx, &mail, &[MessageData::new("tea is on its way")]).await?;
//! tx.commit().await?;
//! pushed.after_commit.notify(); // wakes pulls that wait
//! # Ok(()) }
//! ```
//!
//! # Set-up
//! `PostgreSQL` 13 or later. Opening a queue creates the schema; for that the role needs the permission to create schemas in the
//! database, once. With [`create`](PostgresBuilder::create) off it needs only `USAGE` on the schema and `SELECT, INSERT, UPDATE,
//! DELETE` on its tables, and does better with `TRUNCATE` on those of ends. Behind `PgBouncer` in transaction mode turn off [`notify`](PostgresBuilder::notify) and, unless it keeps
//! prepared statements, [`prepared`](PostgresBuilder::prepared).
//!
//! With `notify` on, connections belong to the handle alone, and it sets `default_transaction_isolation`, `statement_timeout` and
//! `idle_in_transaction_session_timeout` on them: a call ends at the server shortly before the client's timeout, and the server
//! process of a call that is dropped is ended, over one further connection. With `notify` off, nothing is set that other clients
//! could find on a shared connection. Without prepared statements each transaction has its own settings. With them, an abandoned
//! call ends at the server only when it gets its locks, and the role's transactions must begin at `READ COMMITTED`, or opening
//! the queue fails.
//!
//! TLS is provided by rustls. `sslmode=verify-full`, with `sslrootcert` for an authority of your own, verifies the server's
//! identity.
//!
//! # By URL
//! `postgres://user@host/database?schema=jobs`; the scheme `postgresql` is the same. With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
//!
//! | option | without it | is |
//! |---|---|---|
//! | `schema` | anyqueue | the schema that holds the queue, up to 40 of a-z 0-9 _ |
//! | `create` | true | whether to create or upgrade the schema where needed |
//! | `notify` | true | whether to send and receive notifications; false behind PgBouncer in transaction mode |
//! | `prepared` | true | whether to keep prepared statements; false behind a proxy that cannot |
//! | `poll_interval` | 450ms | how often waiting pulls look by themselves, 1ms to 60s; 25ms without notify |
//! | `max_connections` | 8 | the most connections, besides one that listens and one that ends calls given up |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 30s | how long the server may take to answer one call |
//! | `message_bytes` | 16777216 | largest encoded message in bytes |
//! | `sslmode` | prefer | disable, allow, prefer, require, verify-ca or verify-full |
//! | `sslrootcert` | the system's | file with the certificates of the authorities to trust |
//! | `sslcert` | none | file with the client's certificate |
//! | `sslkey` | none | file with the client's key |
//! | `application_name` | anyqueue | the name that the server shows for the connections |
//! | `host` | of the URL | the directory of a Unix socket, or a host |
//!
//! # Limits
//! At most 64 MiB per message (16 MiB by default), batches of 1000, leases up to 30 days, delays up to ten years. A pull returns
//! about 32 MiB at most, even if that means fewer messages than requested.
//!
//! If many delays end at the same time, messages of higher priority come first, however many there are. If many leases end at the
//! same time, each pull makes a thousand of their messages ready, so with many thousands one of higher priority can come after
//! others.
//!
//! What becomes urgent is given the highest level by the first pull after that moment, a thousand messages by each pull. It keeps its moment
//! when it dies, is put back or moved, and is urgent there too.
//!
//! # Operation
//! A transaction that stays open for long, anywhere on the server, keeps dead rows from being cleaned up. When scanning them
//! becomes slow (5 ms), pulls start shortly before the last message they found, and scan everything only for a twentieth of the
//! time, or when they find nothing. Until then, messages that became ready at an old position wait: one from a long transaction
//! of the application, the next of a group that another process has advanced, or what another process has amended or found to be urgent. `check` warns of such
//! transactions; [`table_report`](PostgresQueue::table_report) tells more.
//!
//! The time of `check` does not depend on the number of partitions and messages. A purge deletes everything that is not held,
//! even while consumers work; a row that stays locked for longer than a second counts as held.
//!
//! Two settlements can lock each other out if each brings a successor with a deduplication key that the other's delivery has. The
//! server ends one of them after its `deadlock_timeout`, and core repeats it.
//!
//! Pushes that ask for more than [`Keep`](anyqueue::OnDuplicate::Keep) are stored one by one within their statement, and lock the
//! messages that they change until it is committed: pulls pass over what is just being replaced. They lock in one order, as far as the
//! state of a message is known beforehand. Where one that changes at the same moment breaks it, the server ends a call as above.
//!
//! A pull of [whole groups](anyqueue::Pull::whole_groups) claims them in its one statement, without a lock on the groups. A member that
//! another call has locked at that moment stays in line with those behind it, and they come once those before them have ended.
//!
//! An amendment of priority or group reads what is stored, about 32 MiB at once, and changes it if it is still the same; so it takes two
//! statements, and others one. It waits for what is locked without keeping anything locked itself, and gives up after `call_timeout`.
//!
//! If an id is pushed again while it exists, the server logs a violated constraint; that is harmless.
//!
//! # Ends of tasks
//! With a [ledger](anyqueue::QueueBuilder::ledger) each end is a row, stored by the statement that settles; without one the statements are those of
//! before. An end that is kept for 6 hours to 15 days is in a table with those that lapse within the same three hours (kept for more than 30 hours:
//! 36 hours), of two rings of twelve that the schema is made with. Once all in such a table has lapsed, `purge_ended` empties it by `TRUNCATE`, whatever
//! it has, and counts it up to its limit; so what has lapsed last waits for its table to be done. What is kept for a shorter or a longer time, or until it is
//! deleted, is in one more table, and is deleted row by row. So is what nobody has purged before its ring came around, and everything where the role may not
//! `TRUNCATE`. A table that others keep locked for longer than 50 ms is left for the next purge.
//!
//! Where an id has ended more than once, and the last end lapses before a former one, the former one is found again until it lapses too.
//! Ends are [counted](anyqueue::Queue::series) in rows of `series`, by the same statement. Who counts writes to one of 16 shards of each counter that nobody else is
//! writing to, which a lock of the transaction that is only tried for says, or else to rows that belong to its connection: nobody waits for another's commit. A
//! question adds the shards up. Rows are deleted by `purge_ended` once they are older than eight days, up to 250,000 in a call, whatever its limit for ends.
//!
//! Ends that are recorded without a settlement, as those of a queue [beside](anyqueue::Beside) this one, take up to 64 advisory locks of the transaction, of their
//! partition alone: of two that record ends of one task at once, the second waits for the first.
//!
//! Reading looks into each table, and locks about a hundred tables and indexes meanwhile: with hundreds of readers at the same moment, raise the server's
//! `max_locks_per_transaction`.
//!
//! # Control entries
//! [Control entries](anyqueue::control) are rows of `control_entry`, in the order of the bytes of their keys. Who changes some holds, until its commit, up
//! to 64 advisory locks of the transaction, all taken in one order: of two that change one entry at once, the second waits for the first, also where
//! nothing is there yet. Readers wait for nobody. Each call that changes entries deletes up to 200 that have expired, except what others have locked.
//!
//! # How it works
//! A message is one row. Partial indexes contain what is ready, leased, delayed, in front of its group, or in line behind others
//! of it, so that no statement's cost grows with the backlog. Each call is one call of a function in the schema, one round trip, on one of
//! a few connections. Waiting pulls are woken by notifications, which are sent after the commit and never within it, and poll
//! rarely in case one is lost ([`poll_interval`](PostgresBuilder::poll_interval)).
//!
//! A partition and its dead letters share one key, so an id is unique in both; another partition may contain it too. If two
//! messages with the same id are moved to one partition, they become one.
//!
//! # Tested
//! With `PostgreSQL` 15.18, and behind `PgBouncer` 1.18 in transaction mode; the conformance suite also with 16.2, except the
//! cases that disrupt a server of their own. Other versions and hosted variants are untested. When a connection ends, the handle
//! makes a new one, also to a standby that has taken over, once the address in the URL leads to it. A standby whose primary waits
//! for it (`synchronous_standby_names`) has everything that was acknowledged, which is tested. One that follows asynchronously
//! can lack the last of it.

mod abandoned;
mod amend;
mod backend;
mod batch;
mod capabilities;
mod claim;
mod config;
mod control;
mod encoded;
mod ends;
mod error;
mod hint_sender;
mod inspect;
mod ledger;
mod limits;
mod notifier;
mod permissions;
mod poller;
mod pool;
mod pull;
mod push;
mod push_in;
mod report;
mod scan_starts;
mod schema;
mod series;
mod session;
mod settle;
mod settle_query;
mod settlements;
mod sql;
mod storage;
mod successors;
mod token;

pub use backend::backend;
pub use config::PostgresBuilder;
pub use push_in::{AfterCommit, PushedIn};
pub use report::TableReport;
/// In the version whose connections [`PostgresQueue::push_in`] takes.
pub use sqlx;
pub use storage::PostgresQueue;
