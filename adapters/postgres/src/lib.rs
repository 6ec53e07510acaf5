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
//! Strict priority over ten levels, push order within one, strict fencing, groups, deduplication, delays, atomic moves. What is
//! acknowledged is committed; whether a commit survives power loss is up to the server's `synchronous_commit` and `fsync`, and is
//! declared accordingly. Claims do not wait for the disk: if the server crashes, the messages are delivered again. All
//! times are the server's.
//!
//! # In an application's database
//! With [`PostgresQueue::push_in`] messages are stored in the application's own transaction, or not at all:
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
//! `PostgreSQL` 13 or later. Opening creates the schema, for which the role needs the right to create schemas in the
//! database, once. With [`create`](PostgresBuilder::create) off it needs only `USAGE` on the schema and `SELECT, INSERT, UPDATE,
//! DELETE` on its tables. Behind `PgBouncer` in transaction mode turn off [`notify`](PostgresBuilder::notify) and, unless it keeps
//! prepared statements, [`prepared`](PostgresBuilder::prepared).
//!
//! With `notify` on, connections are the handle's own, and it sets `default_transaction_isolation`, `statement_timeout` and
//! `idle_in_transaction_session_timeout` on them: a call ends at the server shortly before the client gives it up, and of one that is
//! dropped half-way the server process is ended, over one further connection. With `notify` off nothing is set that others could find on a
//! shared connection: without prepared statements each transaction has its own settings; with them a call that is given up ends at
//! the server only when its locks are free, and the role's transactions have to begin at `READ COMMITTED`, or the handle does not open.
//!
//! TLS is rustls's: `sslmode=verify-full`, with `sslrootcert` for an authority of one's own, checks that the server is who it should be.
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
//! 64 MiB per message at most (16 MiB unless configured), batches of 1000, leases up to 30 days, delays up to ten years. A pull answers
//! about 32 MiB at most, and then fewer messages than asked for.
//!
//! Of delays that end together the urgent come first, however many they are. Of leases that end together, which are made ready a
//! thousand with each pull, an urgent one can come after others while there are many thousands.
//!
//! # Operation
//! A transaction that stays open for long, anywhere on the server, keeps dead rows from being cleaned up. Where looking through
//! them becomes slow (5 ms), pulls begin shortly before their last find, and look everywhere only for a twentieth of the
//! time, or when they find nothing. Until then a message that became ready at an old place waits: one from a transaction
//! of the application's that took long, or the next of a group that another process let go on. `check` warns of such
//! transactions; [`table_report`](PostgresQueue::table_report) tells more.
//!
//! What `check` asks takes the same time however many partitions and messages there are. A purge deletes what nobody holds, beside consumers
//! too; a row that somebody keeps locked for longer than a second counts as held.
//!
//! An id that is pushed again while it lives shows in the server's log as a violated constraint; it does no harm.
//!
//! # How it works
//! A message is one row. Partial indexes hold what is ready, leased or delayed, and behind others of its group, so that no
//! statement's cost grows with the backlog. Each call is one call of a function in the schema, one round trip, on one of
//! a few connections. Waiting pulls are woken by notifications, sent after the commit and never within it, and poll
//! seldom in case one is lost ([`poll_interval`](PostgresBuilder::poll_interval)).
//!
//! A partition and its dead letters share one key, so that an id lives once in both; in another partition it may live again.
//! Where two messages of one id are moved to one partition, they become one.
//!
//! # Tested
//! On `PostgreSQL` 15.18, and behind `PgBouncer` 1.18 in transaction mode; the conformance suite also on 16.2, but for the cases that
//! harm a server of their own. Other versions and hosted variants are untested. After the end of a connection the handle makes a new one, also to a standby that took over, once the address of the URL leads there.
//! A standby whose primary waits for it (`synchronous_standby_names`) has all that was acknowledged: that is tested. One that follows
//! asynchronously can lack the last of it.

mod abandoned;
mod backend;
mod batch;
mod capabilities;
mod config;
mod error;
mod inspect;
mod limits;
mod lookout;
mod marks;
mod notifier;
mod pool;
mod pull;
mod push;
mod push_in;
mod report;
mod rights;
mod schema;
mod session;
mod settle;
mod sql;
mod storage;
mod teller;
mod token;
mod waiters;

pub use backend::backend;
pub use config::PostgresBuilder;
pub use push_in::{AfterCommit, PushedIn};
pub use report::TableReport;
/// In the version whose connections [`PostgresQueue::push_in`] takes.
pub use sqlx;
pub use storage::PostgresQueue;
