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
//! Strict priority over ten levels, push order within one, strict fencing, groups, deduplication, delays, atomic moves, ids that live once in
//! a partition and its dead letters. Each call is one script, which the server runs as a whole or not at all. All times are the
//! server's.
//!
//! A member of a group lines up at the end of its level when the one before it has gone. A message that is moved to a partition
//! where its id lives already is that message: it is not stored again.
//!
//! A record that cannot be read is delivered with its stored bytes and the reason, which the queue puts away: what is damaged goes to the
//! dead letters, what a newer release wrote comes again later.
//!
//! # Where it runs
//! | there is | write | differs in |
//! |---|---|---|
//! | one server | `redis://user:password@host:6379/0` | |
//! | the same by TLS | `rediss://host/`, with `ca=FILE` for an authority of one's own, and `cert=FILE&key=FILE` for a server that asks for a certificate | |
//! | a master that sentinels watch | `redis-sentinel://host:26379/0?master=mymaster&nodes=host2:26379,host3:26379`; user and password are the master's, the sentinels are asked without | a fail-over can lose what was acknowledged last |
//! | a Redis Cluster | `redis-cluster://host:6379/?nodes=host2:6379,host3:6379`; one node is enough if it is up | the same, and moves between two partitions are at least once |
//!
//! With TLS these are `rediss-sentinel://` and `rediss-cluster://`. In a cluster each partition, with its dead letters, is on one server: one
//! partition is as fast as one server, many are as fast as all. Who died is replaced without a new handle: meanwhile calls
//! wait in a cluster, for as long as [`call_timeout`](RedisBuilder::call_timeout) allows, and fail under sentinels, saying that they
//! can be repeated.
//!
//! While the slot of a partition is moved to another server of the cluster, no script runs on a part of its keys: calls for it wait for
//! some seconds, and then fail as a whole, `Unavailable` and to be repeated. Nothing acknowledged is lost by it, and other partitions go
//! on. The server that gives a slot away must live until that is done: the one that takes over from it knows nothing of the move, and
//! serves what is left there, until an operator ends the move (`redis-cli --cluster fix`). Ids that come up in line then without their
//! records are kept aside, counted as ready, and told by [`check`](anyqueue::adapter::QueueStorage::check); they are delivered when the records
//! are back.
//!
//! # Durability
//! What is acknowledged survives as much as the server's append-only file does, and
//! [`Capabilities::durability`](anyqueue::adapter::Capabilities) says so:
//!
//! | the server's settings | acknowledged pushes, claims and settlements |
//! |---|---|
//! | `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` | survive power loss |
//! | the same with `no-appendfsync-on-rewrite yes` | power loss while the file is rewritten may take half a minute's worth |
//! | `appendonly yes`, `appendfsync everysec` or `no` | a crash may take the last of them: with `everysec` two seconds' worth at most |
//! | `appendonly no` | a crash may take all since the last snapshot |
//! | a cluster, or sentinels, whatever the settings | a fail-over may take the last of them |
//!
//! Replicas follow asynchronously: what a master acknowledged and its replica had not got when the master died is lost, be it a push, a
//! claim (its message is given to another while the first still works on it, hence `exclusive: BestEffort`) or a settlement (its
//! message comes again). A test prints how much that was: with replicas that keep up, none of 36,000 messages in a cluster and none
//! of 100,000 under a sentinel; with a replica that stood still, all that it had not read.
//!
//! # Set-up
//! Redis 6.2 or later, or Valkey, with `maxmemory-policy noeviction`. Tested is Redis 7.0.15 on one machine: one server, TLS, one
//! sentinel with one replica, and a cluster of three masters with a replica each. One server of Redis 6.2.14 and one of Valkey 9.1.2
//! were run through the whole conformance suite by hand. Moving slots of a cluster to and fro under load is tested,
//! after a restart too. Untested are other versions, clusters and sentinels of these two, a cluster or sentinels by TLS, and a master
//! that dies while a slot of it is moved.
//!
//! A user needs the keys `~anyqueue:*`, the channels `&anyqueue:*`, and the commands
//! `+@read +@write +@scripting +@connection +publish +subscribe +info +time` and, to tell what it can survive, `+config|get`; in a
//! cluster also `+cluster|slots`, under sentinels `+role`. Opening tries them and says which are missing.
//!
//! # By URL
//! `redis://user:password@host:6379/0?prefix=jobs`, and the schemes [above](#where-it-runs). With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
//!
//! | option | without it | is |
//! |---|---|---|
//! | `prefix` | anyqueue | what all keys begin with, 1 to 64 of A-Z a-z 0-9 . _ : - |
//! | `nodes` | none | further nodes of the cluster, or sentinels: host:port,host:port |
//! | `master` | none | the name that the sentinels know the master by |
//! | `ca` | none | file with the certificates of those who may vouch for the servers |
//! | `cert` | none | file with the certificate to show to the servers |
//! | `key` | none | file with its private key |
//! | `poll_interval` | 900ms | how often waiting pulls look by themselves, 1ms to 60s |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 10s | how long the server may take to answer one call |
//! | `message_bytes` | 16777216 | largest encoded message in bytes |
//!
//! # Limits
//! 64 MiB per message at most (16 MiB unless configured), batches of 1000, leases up to 30 days, delays up to ten years. Browsing
//! a partition of more than two thousand messages goes, for each page, through all those of it and its dead letters that were not pushed
//! together, in small steps; payloads of more than 16 KiB are not touched by that. Calls past the batch limit are done in batches, and a
//! pull answers one.
//!
//! # How it works
//! A message is one field of a hash, and its id stands in the list of its level. Messages that are pushed together, sixteen or more with
//! ids of the same 16 milliseconds (`UUIDv7`), of one priority, and without group, key and delay, share a hash of that moment: a pull then
//! reads neighbours in the server's memory, however much waits behind. All others are in one hash. A pull takes ids from the lists and notes
//! them as one *claim* with one end, so a claim of a hundred costs little more than one of one. Scripts touch no more than what they
//! are asked for: none becomes slower behind a backlog. Waiting pulls leave a mark that the next push finds, which then
//! publishes a hint; each handle listens on one connection of its own (in a cluster, to any of its servers, as each hears all), and
//! looks now and then in case a hint is lost ([`poll_interval`](RedisBuilder::poll_interval)).
//!
//! The keys of a partition, here of `mail`, begin with `anyqueue:{mail}:` (or another [`prefix`](RedisBuilder::prefix)). The braces make
//! them one slot of a cluster.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `messages` | hash | messages of the partition and its dead letters, by id |
//! | `bulky` | hash | those of both with records of more than 16 KiB, by id; of these the hashes above and below have the first bytes alone |
//! | `messages:…` | hashes | those of both that were pushed together, by id; named by the six bytes with which the ids begin, without their last four bits |
//! | `windows` | sorted set | the names of these hashes |
//! | `state` | hash | the highest level, whether it is paused, counters |
//! | `ready0` … `ready9` | lists | ids in line, by level |
//! | `due` | sorted set | delayed and postponed, by when they are due |
//! | `leases` | hash | the claim of each leased message |
//! | `claims`, `taken` | sorted set, hash | when claims end, and what they took |
//! | `heads`, `behind:…` | hash, sorted sets | the head of each group, and who waits behind it |
//! | `keys` | hash | deduplication keys in use |
//! | `counts`, `headers`, `asked` | hashes, set | earlier deliveries, replaced headers, requests for cancellation |
//! | `tombs` | hash | ids and levels at which they still stand in line though their message was deleted |
//! | `astray` | hash | ids that came up in line without a record |
//! | `waits` | string | that somebody waits; for three minutes |
//! | `absent` | none | named by calls in a cluster, and never there: so a server refuses them while it has a part of the slot's keys |
//! | `dead:…` | | all these but messages and `bulky`, of its dead letters |
//!
//! Three names belong to no partition: the sorted set `anyqueue:partitions` holds the names of partitions, the set `anyqueue:astray` those
//! that have ids aside, and hints are published on the channel `anyqueue:wake`. The score of a partition in the first is the layout of its
//! keys, which is 2. Opening refuses any other, and a hash `anyqueue:messages`: both are from before the first release, or from a later one.

mod backend;
mod browse;
mod capabilities;
mod clock;
mod config;
mod connect;
mod cross_slot_move;
mod error;
mod extend;
mod hint;
mod inspect;
mod limits;
mod link;
mod listener;
mod missing_records;
mod names;
mod pull;
mod push;
mod recent_names;
mod record;
mod reply;
mod script;
mod server;
mod settle;
mod storage;
mod token;
mod unreadable;
mod url;
mod waiters;
mod window;

pub use backend::backend;
pub use config::RedisBuilder;
pub use storage::RedisQueue;
