//! The RabbitMQ backend of anyqueue: strict pulls over quorum queues, confirmed and mandatory publishing, connections that are made
//! anew by themselves.
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
//! Strict priority over ten levels, push order within one, returned messages in front, strict fencing, delays, delivery counts. A
//! push is `Ok` once the broker has confirmed it; a message that reaches no queue is an error. A pull never holds more than it
//! was asked for (see [below](#how-it-works) for partitions of several levels).
//!
//! There are no groups, no deduplication, no unique ids, no browsing, no pauses: the broker has nothing to build them on.
//!
//! | what | how far it goes |
//! |---|---|
//! | a push that nobody answered | may be stored: repeating it may make a second copy with the same id |
//! | a settlement | is sent with the next pull, or 30 ms after the last one, and the protocol has no answer: a crash or a cut may redeliver. A program whose runtime ends without [`close`](anyqueue::adapter::QueueStorage::close) sends what it has left, one that is killed or calls `exit` does not |
//! | a lease | lives as long as its channel; core's own timer releases what nobody extends. After a break every delivery held before returns `Lost` |
//! | postponement, death, redrive | a copy is confirmed, then the original is removed: a crash in between leaves both |
//! | the delivery count | is the broker's: it also counts what it had sent to a consumer that ended before seeing it. What this handle gave back unseen is taken off, of the last 10 000 such messages |
//! | a message that cannot be read | is delivered as such, and moved or postponed byte for byte; headers that core adds are AMQP's then |
//! | age | is by the clocks of pusher and puller, as the broker tells no time |
//!
//! # Durability
//! A quorum queue writes to disk before it confirms; a classic queue may confirm a little earlier, and has no delivery counts: a message
//! that kills its consumers is delivered forever. All who use a prefix must choose the same
//! [`queue_type`](RabbitMqBuilder::queue_type).
//!
//! On a single node a quorum queue that is younger than about a second was seen to be empty after a `kill -9`, with all that it had
//! confirmed. So a push is answered when its queue is [two seconds old](RabbitMqBuilder::queue_age) and the connection that it was
//! confirmed on still answers; if that broke meanwhile, the push is an error, and may have been stored. The first pushes to a level of a
//! partition take as long, and the first delayed ones. Consumers get the messages at once all the same. Who knows a queue to be old
//! tells all others. One that was removed is young again, but a handle that knew it before, and did not see it being removed, may push to
//! it without a wait. A queue whose only node was killed so early can be unusable for good (state `down`): remove it by hand.
//!
//! # Set-up
//! RabbitMQ 3.10 or later with quorum queues. A user needs the rights to configure, write and read `^anyqueue:.*` and the
//! server-named queues (`^amq\.gen.*`) of its virtual host. The server does not tell which of the three is missing; errors say
//! what the call needs.
//!
//! - Of a cluster name several nodes, as in `amqp://user:password@one/jobs?nodes=two:5672,three:5672`: whenever a connection is to be
//!   made they are tried in turn. Quorum queues, and what all partitions share, survive the loss of one node of three; a classic
//!   queue is away as long as its node is.
//! - With `amqps://` the server's certificate must be vouched for by whom this system trusts, or by who is in `ca_file`, and bear the
//!   name in the URL. Certificates of clients are not supported.
//! - [`init`](anyqueue::adapter::QueueStorage::init) looks at the server's version, on a short connection that the server may log as broken off:
//!   older than 3.10 is refused, and of what was not tested it warns in the log and by `check`. It warns of no queue type: a queue of another
//!   type than configured is `Incompatible` at the first push.
//! - The server's `consumer_timeout` (30 minutes unless set) ends the channel of a consumer that holds a message for longer, and it
//!   cannot be asked for: tell it by [`consumer_timeout`](RabbitMqBuilder::consumer_timeout). Deliveries are held a little less long.
//! - Its `max_message_size` (16 MiB from 4.0) must leave room for [`message_bytes`](RabbitMqBuilder::message_bytes). The server ends the
//!   channel over a message that is larger: that one is `TooLarge`, those of the same call that it had not confirmed yet may be stored or
//!   not (`MayDuplicate`), and the rest is sent again. From then on the size is known, and `check` tells it.
//! - A policy of an operator that ends messages (`delivery-limit`) puts them with the dead letters, without a reason in their headers; what
//!   ends dead letters so puts them one level up. What a `message-ttl` ends stays with the server, unseen, until its level has dead letters.
//!   `max-length` refuses pushes: the queues are declared with `reject-publish`. Classic queues have no such protection.
//!
//! ## Versions
//! | version | differs |
//! |---|---|
//! | 3.10 – 3.13 | a quorum queue returns a message to its front only if it has a delivery limit: it is set to two thousand million |
//! | 4.0 – 4.2 | has a limit of 20 unless told otherwise: the one that is set stands above it |
//! | from 4.3 | does not count returned messages; counts then are lower than declared |
//!
//! Tested is 3.10.8 alone: one node, also with TLS, and three nodes on one machine of which one is killed; brokers killed, frozen, cut
//! off and out of memory or disk. Untested: every other version, partitions of the network within a cluster,
//! and other brokers that speak AMQP 0-9-1.
//!
//! # By URL
//! `amqp://user:password@host/vhost?prefix=jobs`, or `amqps` for TLS. The virtual host `/` is written `%2f`. With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
//!
//! | option | without it | is |
//! |---|---|---|
//! | `nodes` | none | further nodes of the cluster: host:port,host:port |
//! | `prefix` | anyqueue | what all queues and exchanges begin with, 1 to 64 of A-Z a-z 0-9 . _ - |
//! | `queue_type` | quorum | quorum or classic |
//! | `prefetch` | 0 | messages of each level held ready for pulls to come; 0: none |
//! | `queue_age` | 2s | how old a quorum queue must be before a push to it is answered; 0s: trust it at once |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 10s | how long the server may take to answer |
//! | `heartbeat` | 10s | how often either side shows that it is alive, in whole seconds |
//! | `consumer_timeout` | 30m | the server's `consumer_timeout`: how long a delivery can be held; at least 1m |
//! | `message_bytes` | 8388608 | largest encoded message in bytes |
//! | `ca_file` | none | certificates in PEM to trust beside the system's own, for amqps |
//!
//! # Limits
//! 100 MiB per message at most (8 MiB unless configured), batches of 1000, delays up to 30 days in steps of 100 ms. One channel per
//! partition that is pulled at the same time; a server allows 2047 per connection.
//!
//! # When the server is out of memory or disk
//! It takes no messages then. A push waits for as long as `call_timeout`, and then is `Full`. If it had been sent before the alarm
//! was known it may still be stored afterwards (`MayDuplicate`); later ones are not even sent (`Safe`). Pulls and removals go on;
//! what needs a copy (postponement, death) stays held. All goes on by itself once there is room.
//!
//! # How it works
//! Each level of a partition has a queue, made with the first message. One handle at a time makes it, and the others wait: the server
//! ends the connection of who consumes from a quorum queue that does not run yet. Who waits tries again each 50 ms, which the server logs
//! as `RESOURCE_LOCKED`. Publishing and consuming have a connection each, as a broker
//! in memory alarm stops reading from those who publish. Each partition that is pulled has a channel and a task that owns it.
//!
//! A pull asks how much is ready, and lets a consumer be sent exactly as much. What it settled before makes room in consumers
//! that stand already, so a worker in full flow needs none anew; and as long as a partition's only level is known to have more, a pull
//! that comes while another is under way is asked for at once. A pull that waits leaves room for one message. When it ends, the
//! consumer is ended before it is answered, so that nothing comes for nobody. Where several levels are in use, one message of each
//! may come at once for a pull that waits; what is too many is released at once.
//!
//! With [`prefetch`](RabbitMqBuilder::prefetch) consumers stand and hold messages ready, for speed. What no pull has come for in a second
//! is released; from then on fewer are taken and they are kept longer, up to 16 seconds, until pulls take all again.
//!
//! | name | is |
//! |---|---|
//! | `anyqueue:mail:0` … `:9` | queues of the partition `mail`, by level |
//! | `anyqueue:mail:dead:0` … | the same of its dead letters; the first of a level is made as soon as one of its messages is returned or comes again |
//! | `anyqueue:mail:0:due` | takes over what was delayed, and hands it on: what the level refuses waits here, and in nobody else's way |
//! | `anyqueue:mail:0:making`, `…:due:making` | is there for a moment while somebody makes that queue |
//! | `anyqueue:known`, `anyqueue:sink` | which queues there are: a message there is swallowed, or returned if there is none |
//! | `anyqueue:news` | announces new queues to consumers |
//! | `anyqueue:delay:…`, `anyqueue:due` | the ladder of delays, in steps of 100 ms: queues whose messages expire and move on. As many as the delays in use need, at most 15 for each factor of 16 |
//! | `anyqueue:stray` | what became due for a queue that was removed, `…:due` included; tried again each minute or three |
//!
//! A queue that somebody removes is made anew by the next pull, by a delayed push within about a second, and by the push after one that
//! the broker returned. What the broker returns is not logged: the client would show payloads. That holds where a `tracing` subscriber is
//! set before the handle is opened; with the `log` facade alone, silence the target `lapin::returned_messages`.
//!
//! The body of a message is core's envelope. Headers of users stay in it, and so can command the broker nothing.

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
mod token;
mod topology;
mod unseen;
mod url;

pub use backend::backend;
pub use config::{QueueType, RabbitMqBuilder};
pub use storage::RabbitMqQueue;
