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
//! Strict priority over ten levels, push order within a level, strict fencing, groups, which can also be
//! claimed whole, deduplication, delays, atomic moves. The statement that ends a delivery also stores its
//! [successors](anyqueue::Successors), and the statement that removes a message also stores the
//! [end](anyqueue::adapter::TaskEnd) of its task. An amendment changes a waiting message, in whatever state
//! it is, in one statement. What is acknowledged is committed. Whether a commit survives power loss depends
//! on the server's `synchronous_commit` and `fsync`, and is declared accordingly. Claims do not wait for the
//! disk: if the server crashes, their messages are delivered again. All times are the server's.
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
//! `PostgreSQL` 13 or later. Opening a queue creates the schema. For that the role needs the permission to
//! create schemas in the database, once. With [`create`](PostgresBuilder::create) off it needs only `USAGE`
//! on the schema and `SELECT, INSERT, UPDATE, DELETE` on its tables; `TRUNCATE` on the tables of ends is
//! recommended. Behind `PgBouncer` in transaction mode, turn off [`notify`](PostgresBuilder::notify) and,
//! unless `PgBouncer` keeps prepared statements, [`prepared`](PostgresBuilder::prepared).
//!
//! With `notify` on, connections belong to the handle alone, and it sets `default_transaction_isolation`,
//! `statement_timeout` and `idle_in_transaction_session_timeout` on them: a call ends at the server shortly
//! before the client's timeout, and if a call is dropped, its server process is ended, over one further
//! connection. With `notify` off, the handle makes no settings that other clients could find on a shared
//! connection. Without prepared statements, each transaction then has its own settings. With prepared
//! statements, an abandoned call ends at the server only when it gets its locks, and the role's transactions
//! must begin at `READ COMMITTED`; otherwise opening the queue fails.
//!
//! TLS is provided by rustls. `sslmode=verify-full` verifies the server's identity, with `sslrootcert` for a
//! certificate authority of your own.
//!
//! # By URL
//! `postgres://user@host/database?schema=jobs`; the scheme `postgresql` means the same. To open
//! queues by URL, add [`backend`] to a [`Registry`](anyqueue::Registry).
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
//! At most 64 MiB per message (16 MiB by default), batches of 1000, leases up to 30 days, delays up to ten
//! years. A pull returns about 32 MiB at most, even if that means fewer messages than requested.
//!
//! If many delays end at the same time, messages of higher priority come first, however many there are. If
//! many leases end at the same time, each pull makes a thousand of their messages ready. So if there are many
//! thousands, a message of higher priority can come after others.
//!
//! The first pull after a message becomes urgent gives it the highest level; each pull does so for up to a
//! thousand messages. A message that becomes a dead letter, is redriven or moved keeps the moment at which it
//! becomes urgent.
//!
//! # Operation
//! A transaction that stays open for long, anywhere on the server, keeps dead rows from being cleaned up.
//! When scanning them becomes slow (5 ms), pulls start shortly before the last message they found. They scan
//! everything only for a twentieth of the time, or when they find nothing. Until then, messages that became
//! ready at an old position wait: those from a long transaction of the application, the next one of a group
//! that another process has advanced, and those that another process has amended or found to be urgent.
//! `check` warns of such transactions; [`table_report`](PostgresQueue::table_report) has details.
//!
//! The time of `check` does not depend on the number of partitions and messages. A purge deletes everything
//! that is not held, even while consumers work; a row that stays locked for longer than a second counts as
//! held.
//!
//! Two settlements can deadlock if each brings a successor whose deduplication key belongs to the other's
//! delivery. The server ends one of them after its `deadlock_timeout`, and core repeats it.
//!
//! Pushes that ask for more than [`Keep`](anyqueue::OnDuplicate::Keep) are stored one by one within their
//! statement, and lock the messages that they change until it is committed; meanwhile pulls skip these
//! messages. The locks are taken in a fixed order if the states of the messages are known beforehand. If a
//! message that changes at the same moment breaks this order, the server ends one call, as above.
//!
//! A pull of [whole groups](anyqueue::Pull::whole_groups) claims them in its one statement, without locking
//! the groups. A member that another call has locked at that moment stays in line, with those behind it. They
//! come once the members before them have ended.
//!
//! An amendment of priority or group reads the stored messages, about 32 MiB at a time, and changes each if
//! it is still the same. So it takes two statements; other amendments take one. It waits for locked messages
//! without keeping any others locked, and gives up after `call_timeout`.
//!
//! If an id is pushed again while it exists, the server logs a constraint violation, which is harmless.
//!
//! # Ends of tasks
//! With a [ledger](anyqueue::QueueBuilder::ledger) each end is a row, stored by the statement that settles;
//! without one, the statements do not change. The schema has two rings of twelve tables for ends that are
//! kept for 6 hours to 15 days. A table contains the ends that expire within the same three hours or, in the
//! second ring, for ends kept for more than 30 hours, within the same 36 hours. Once all ends in such a table
//! have expired, `purge_ended` empties it by `TRUNCATE`, whatever its size, and counts its ends up to the
//! limit. So the ends that expire last determine when the space of a table is freed. Ends that are kept for a
//! shorter or longer time, or until they are deleted, are in one more table, and are deleted row by row. So
//! are ends that nobody purged before their ring came around, and all ends if the role may not `TRUNCATE`. A
//! table that others keep locked for longer than 50 ms is left for the next purge.
//!
//! If an id has ended more than once, and the last end expires before an earlier one, the earlier one is
//! found again until it expires too.
//!
//! The same statement [counts](anyqueue::Queue::series) ends, in rows of `series`. Each counter has 16
//! shards. A transaction writes to a shard that no other transaction is writing to, which it finds by trying
//! advisory locks without waiting, or else to rows that belong to its connection. So nobody waits for
//! another's commit. Queries add the shards up. `purge_ended` deletes rows that are older than eight days, up
//! to 250,000 per call, whatever its limit for ends.
//!
//! Ends that are recorded without a settlement, such as those of a queue [beside](anyqueue::Beside) this one,
//! take up to 64 advisory locks of the transaction, which concern only their partition. If two calls record
//! ends of the same task, the second waits for the first.
//!
//! A read looks into each table, and locks about a hundred tables and indexes while it runs. With hundreds of
//! concurrent readers, raise the server's `max_locks_per_transaction`.
//!
//! # Control entries
//! [Control entries](anyqueue::control) are rows of `control_entry`, ordered by the bytes of their keys. A
//! call that changes entries holds up to 64 advisory locks until its commit, all taken in one order. If two
//! calls change the same entry, the second waits for the first, even if the entry does not exist yet. Reads
//! never wait. Each call that changes entries also deletes up to 200 expired ones, except those that others
//! have locked.
//!
//! # How it works
//! A message is one row. Partial indexes contain the messages that are ready, leased, delayed, in front of
//! their group, or in line behind others of it, so no statement becomes more expensive with the backlog. Each
//! call is one function call in the schema, one round trip, on one of a few connections. Waiting pulls are
//! woken by notifications, which are sent after the commit and never within it. They also poll rarely, in
//! case a notification is lost ([`poll_interval`](PostgresBuilder::poll_interval)).
//!
//! A partition and its dead letters share one key, so an id is unique in both together; another partition may
//! contain it too. If two messages with the same id are moved to one partition, they become one.
//!
//! # Tested
//! With `PostgreSQL` 15.18, and behind `PgBouncer` 1.18 in transaction mode; the conformance suite also with
//! 16.2, except the cases that disrupt a server of their own. Other versions and hosted variants are
//! untested. When a connection breaks, the handle opens a new one, also to a standby that has taken over,
//! once the address in the URL leads to it. A standby whose primary waits for it
//! (`synchronous_standby_names`) has everything that was acknowledged, which is tested. A standby that
//! follows asynchronously may lack what was acknowledged last.

mod abandoned;
mod amend;
mod backend;
mod batch;
mod capabilities;
mod claim;
mod config;
mod control;
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
mod record;
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
/// The version of sqlx whose connections [`PostgresQueue::push_in`] takes.
pub use sqlx;
pub use storage::PostgresQueue;
