//! The RabbitMQ backend of anyqueue: strict pulls over quorum queues, confirmed and mandatory publishing, automatic reconnection.
//!
//! ```no_run
//! use anyqueue::{MessageData, Queue};
//! use anyqueue_rabbitmq::RabbitMqQueue;
//! # async fn example() -> Result<(), anyqueue::Error> {
//! let queue = Queue::new(RabbitMqQueue::open("amqp://user:password@localhost/%2f").await?)?;
//! queue.push("mail", MessageData::new("hello")).await?;
//! let handlers = queue.pull("mail").await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! Strict priority over ten levels, push order within a level, requeueing at the front, strict fencing,
//! delays, delivery counts. A push returns `Ok` once the broker has confirmed it; a message that reaches no
//! queue is an error. A pull never holds more messages than it asked for (for partitions with several levels
//! see [below](#how-it-works)).
//!
//! There are no groups, no deduplication, no unique ids, no browsing and no pauses: the broker offers nothing to build them on.
//!
//! | what | limits |
//! |---|---|
//! | a push without an answer | may be stored: repeating it may make a second copy with the same id |
//! | a settlement | is sent with the next pull, or 30 ms after the last one. The protocol does not confirm it: after a crash or a lost connection the message may be redelivered. If the runtime ends without [`close`](anyqueue::adapter::QueueStorage::close), pending settlements are still sent; if the process is killed or calls `exit`, they are not |
//! | a lease | lives as long as its channel; core's own timer releases what nobody extends. After a broken connection every delivery that was held on it is `Lost` |
//! | postponement, death, redrive | a copy is confirmed, then the original is removed: a crash in between leaves both |
//! | successors | are confirmed, then their delivery ends: a crash in between leaves both. If the delivery was lost meanwhile the settlement is an error, which says that repeating it may store them twice. A settlement that brings them waits for the broker, as a push does; one that brings none is sent as before |
//! | the delivery count | is the broker's, which also counts messages that it sent to a consumer and that no handler saw. Those that this handle requeued unseen are subtracted, for the last 10 000 such messages |
//! | a message that cannot be read | is delivered as unreadable, and moved or postponed byte for byte; headers that core adds become AMQP headers |
//! | age | is measured by the clocks of pusher and puller, since the broker does not tell its time |
//!
//! # Durability
//! A quorum queue writes to disk before it confirms. A classic queue may confirm a little earlier, and has no
//! delivery counts, so a message that kills its consumers is delivered forever. All clients with the same
//! prefix must choose the same [`queue_type`](RabbitMqBuilder::queue_type).
//!
//! On a single node, a quorum queue that was younger than about a second was seen to be empty after a
//! `kill -9`, although it had confirmed messages. So a push returns only when its queue is
//! [two seconds old](RabbitMqBuilder::queue_age) and the connection that confirmed it still answers. If that
//! connection broke in the meantime, the push is an error, and may have been stored. The first pushes to a
//! level of a partition, and the first delayed ones, therefore take that long; consumers nevertheless get the
//! messages at once. A client that has seen a queue grow old tells all others. A removed queue is young
//! again, but a handle that knew it before, and did not notice the removal, may push to it without waiting.
//! If the only node of a queue was killed so early, the queue can become unusable (state `down`): remove it
//! by hand.
//!
//! # Set-up
//! RabbitMQ 3.10 or later with quorum queues. A user needs the permissions to configure, write and read
//! `^anyqueue:.*` and the server-named queues (`^amq\.gen.*`) of its virtual host. The server does not say
//! which of the three is missing; errors say what the call needs.
//!
//! - For a cluster, name several nodes, as in `amqp://user:password@one/jobs?nodes=two:5672,three:5672`. They are tried in turn whenever
//!   a connection is made. Quorum queues, and the exchanges and queues that all partitions share, survive the loss of one node of three;
//!   a classic queue is unavailable while its node is down.
//! - With `amqps://` the server's certificate must be signed by an authority that the system or `ca_file` trusts, and must match the
//!   host name in the URL. Client certificates are not supported.
//! - [`init`](anyqueue::adapter::QueueStorage::init) checks the server's version, on a short connection that the server may log as
//!   aborted. Versions before 3.10 are refused; untested versions cause a warning in the log and in `check`. It does not check queue
//!   types: a queue of another type than configured is `Incompatible` at the first push.
//! - The server's `consumer_timeout` (30 minutes by default) closes the channel of a consumer that holds a
//!   message for longer. Clients cannot query it, so configure the same value as
//!   [`consumer_timeout`](RabbitMqBuilder::consumer_timeout). Deliveries are held for a little less.
//! - Its `max_message_size` (16 MiB since 4.0) must be larger than [`message_bytes`](RabbitMqBuilder::message_bytes). The server closes
//!   the channel over a message that is larger: that message is `TooLarge`, messages of the same call that were not confirmed yet may be
//!   stored or not (`MayDuplicate`), and the rest is sent again. From then on the limit is known, and `check` reports it.
//! - If an operator sets a `delivery-limit` policy, it moves messages to the dead letters, without a reason
//!   in their headers; dead letters that exceed it move to the next higher level. Messages that expire by a
//!   `message-ttl` policy stay on the server, invisible, until their level has dead letters. `max-length`
//!   refuses pushes, because the queues are declared with `reject-publish`. Classic queues have no such
//!   protection.
//!
//! ## Versions
//! | version | difference |
//! |---|---|
//! | 3.10 – 3.13 | a quorum queue requeues at the front only if it has a delivery limit: it is set to two thousand million |
//! | 4.0 – 4.2 | the default delivery limit is 20: the one that is set overrides it |
//! | from 4.3 | does not count requeued messages; delivery counts are lower than declared |
//!
//! Only 3.10.8 was tested: one node, also with TLS; three nodes on one machine, of which one is killed; and
//! brokers that are killed, frozen, cut off, or out of memory or disk. Untested: all other versions, network
//! partitions within a cluster, and other brokers that speak AMQP 0-9-1.
//!
//! # By URL
//! `amqp://user:password@host/vhost?prefix=jobs`, or `amqps` for TLS. The virtual host `/` is written `%2f`.
//! To open queues by URL, add [`backend`] to a [`Registry`](anyqueue::Registry).
//!
//! | option | without it | is |
//! |---|---|---|
//! | `nodes` | none | further nodes of the cluster: host:port,host:port |
//! | `prefix` | anyqueue | what all queues and exchanges begin with, 1 to 64 of A-Z a-z 0-9 . _ - |
//! | `queue_type` | quorum | quorum or classic |
//! | `prefetch` | 0 | messages of each level held ready for pulls to come; 0: none |
//! | `queue_age` | 2s | how old a quorum queue must be before a push to it returns; 0s: trust it at once |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 10s | how long the server may take to answer |
//! | `heartbeat` | 10s | how often either side shows that it is alive, in whole seconds |
//! | `consumer_timeout` | 30m | the server's `consumer_timeout`: how long a delivery can be held; at least 1m |
//! | `message_bytes` | 8388608 | largest encoded message in bytes |
//! | `ca_file` | none | certificates in PEM to trust beside the system's own, for amqps |
//!
//! # Limits
//! At most 100 MiB per message (8 MiB by default), batches of 1000, delays up to 30 days in steps of 100 ms. Each partition that is
//! being pulled from needs a channel; a server allows 2047 per connection.
//!
//! # When the server is out of memory or disk
//! Then it accepts no messages. A push waits up to `call_timeout` and then fails with `Full`. If it was sent
//! before the alarm was known, it may still be stored afterwards (`MayDuplicate`); later pushes are not sent
//! at all (`Safe`). Pulls and removals continue. Deliveries that need a copy (postponement, death), or that
//! bring successors, stay held. Everything resumes by itself once there is room.
//!
//! # How it works
//! Each level of a partition has a queue, which is declared with its first message. Only one handle at a time
//! declares it, while the others wait, because the server closes the connection of a client that consumes
//! from a quorum queue before it runs. A waiting handle tries again every 50 ms, which the server logs as
//! `RESOURCE_LOCKED`. Publishing and consuming use separate connections, because a broker with a memory alarm
//! stops reading from connections that publish. Each partition that is pulled from has a channel, and a task
//! that owns it.
//!
//! A pull asks how many messages are ready, and grants a consumer credit for exactly as many as it needs.
//! Acknowledgements free credit of existing consumers, so a busy worker needs no new ones. While a
//! partition's only level is known to have more messages, a pull that comes during another one gets its
//! credit at once. A pull that waits grants credit for one message. When its wait is over, the consumer is
//! cancelled before the pull returns, so that no message arrives without a pull to take it. If several levels
//! are in use, a waiting pull may receive one message of each at once; those beyond its limit are released at
//! once.
//!
//! With [`prefetch`](RabbitMqBuilder::prefetch), consumers stay and keep messages ready, for speed. Messages that no pull has taken
//! within a second are released. From then on fewer are prefetched and they are kept longer, up to 16 seconds, until pulls take all of
//! them again.
//!
//! | name | is |
//! |---|---|
//! | `anyqueue:mail:0` … `:9` | the queues of the partition `mail`, by level |
//! | `anyqueue:mail:dead:0` … | the same for its dead letters; the first of a level is declared as soon as one of its messages is requeued or redelivered |
//! | `anyqueue:mail:0:due` | passes delayed messages on to their level; messages that the level refuses wait here and delay no others |
//! | `anyqueue:mail:0:making`, `…:due:making`, … | exists while a client declares that queue; for queues that delayed messages pass, until it is old |
//! | `anyqueue:known`, `anyqueue:sink` | tell which queues exist: a message sent there is dropped if the queue exists, and returned if not |
//! | `anyqueue:news` | announces new queues to consumers |
//! | `anyqueue:delay:…`, `anyqueue:due` | delays, in steps of 100 ms: queues whose messages expire and move on. Only those that are needed exist, at most 15 for each factor of 16 |
//! | `anyqueue:stray` | due messages of a queue that was removed, or whose `…:due` was; tried again every one to three minutes |
//!
//! If somebody removes a queue, it is declared again by the next pull, by a delayed push within about a
//! second, or by the push after one that the broker returned. Returned messages are not logged, because the
//! client would show their payloads. That requires a `tracing` subscriber that is set before the handle is
//! opened; with the `log` facade alone, silence the target `lapin::returned_messages`.
//!
//! The body of a message is core's envelope. User headers stay inside it, so they cannot control the broker.

mod actor;
mod adaptive_prefetch;
mod backend;
mod batch;
mod capabilities;
mod command;
mod config;
mod consumer_channel;
mod consumer_connection;
mod delay_queues;
mod error;
mod handshake;
mod inspect;
mod limits;
mod link;
mod log_filter;
mod names;
mod publisher;
mod pull;
mod push;
mod record;
mod serve;
mod settle;
mod shared;
mod storage;
mod store_first;
mod token;
mod topology;
mod unseen;
mod url;

pub use backend::backend;
pub use config::{QueueType, RabbitMqBuilder};
pub use storage::RabbitMqQueue;
