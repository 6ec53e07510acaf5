//! The Redis backend of anyqueue: a fast queue of lists, hashes and bounded Lua scripts, shared by all clients of the server.
//!
//! ```no_run
//! use anyqueue::{MessageData, Queue};
//! use anyqueue_redis::RedisQueue;
//! # async fn example() -> Result<(), anyqueue::Error> {
//! let queue = Queue::new(RedisQueue::open("redis://localhost/").await?)?;
//! queue.push("mail", MessageData::new("hello")).await?;
//! let handlers = queue.pull("mail").await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! Strict priority over ten levels, push order within one, strict fencing, groups, keys, delays, atomic moves, unique ids. Each
//! call is one script, which the server runs as a whole or not at all. All times are the server's.
//!
//! A member of a group lines up at the end of its level when the one before it has gone.
//!
//! # Durability
//! What is acknowledged survives as much as the server's append-only file does, and
//! [`Capabilities::durability`](anyqueue::Capabilities) says so:
//!
//! | the server's settings | acknowledged pushes, claims and settlements |
//! |---|---|
//! | `appendonly yes`, `appendfsync always` | survive power loss |
//! | `appendonly yes`, `appendfsync everysec` or `no` | a crash may take the last of them: with `everysec` two seconds' worth at most |
//! | `appendonly no` | a crash may take all since the last snapshot |
//!
//! Replicas follow asynchronously: a fail-over may take what was acknowledged last.
//!
//! # How it works
//! A message is one field of one hash, and its id stands in the list of its level. A pull takes ids from the lists and notes
//! them as one *claim* with one end, so a claim of a hundred costs little more than one of one. Scripts touch no more than what they
//! are asked for: none becomes slower behind a backlog. Waiting pulls leave a mark that the next push finds, which then
//! publishes a hint; each handle listens on one connection of its own, and looks now and then in case a hint is lost
//! ([`poll_interval`](RedisBuilder::poll_interval)).
//!
//! | key | type | holds |
//! |---|---|---|
//! | `anyqueue:messages` | hash | every message, by id |
//! | `anyqueue:partitions` | sorted set | names of partitions |
//! | `anyqueue:{mail}:state` | hash | of the partition `mail`: its highest level, whether it is paused, counters |
//! | `anyqueue:{mail}:ready0` … `ready9` | lists | ids in line, by level |
//! | `anyqueue:{mail}:due` | sorted set | delayed and postponed, by when they are due |
//! | `anyqueue:{mail}:leases` | hash | the claim of each leased message |
//! | `anyqueue:{mail}:claims`, `taken` | sorted set, hash | when claims end, and what they took |
//! | `anyqueue:{mail}:heads`, `behind:…` | hash, sorted sets | the head of each group, and who waits behind it |
//! | `anyqueue:{mail}:keys` | hash | deduplication keys in use |
//! | `anyqueue:{mail}:counts`, `headers`, `asked` | hashes, set | earlier deliveries, replaced headers, requests for cancellation |
//! | `anyqueue:{mail}:tombs` | hash | ids that still stand in line though their message was deleted |
//! | `anyqueue:{mail}:waits` | string | that somebody waits |
//! | `anyqueue:{mail}:dead:…` | | the same of its dead letters |
//!
//! # Set-up
//! Redis 6.2 or later, or Valkey (tested is 7.0.15); one server, not a Redis Cluster, with `maxmemory-policy noeviction`. There is
//! no TLS and no Sentinel in this release. A user needs the keys
//! `~anyqueue:*`, the channels `&anyqueue:*`, and the commands
//! `+@read +@write +@scripting +@connection +publish +subscribe +info +time` and, to tell what it can survive, `+config|get`. Opening tries them and says which are missing.
//!
//! # Limits
//! 64 MiB per message at most (16 MiB unless configured), batches of 1000, leases up to 30 days, delays up to ten years. Browsing
//! a partition of more than two thousand messages goes through all messages of all partitions for each page, in small steps.

mod browse;
mod capabilities;
mod carry;
mod config;
mod connect;
mod error;
mod hint;
mod inspect;
mod link;
mod listener;
mod names;
mod pull;
mod push;
mod record;
mod reply;
mod script;
mod server;
mod settle;
mod storage;
mod url;
mod wake;

pub use config::RedisBuilder;
pub use storage::RedisQueue;
pub use url::backend;
