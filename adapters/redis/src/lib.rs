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
//! Strict priority over ten levels, push order within a level, strict fencing, groups, deduplication, delays,
//! atomic moves, ids that are unique in a partition and its dead letters. Each call is one script, which the
//! server runs completely or not at all. All times are the server's.
//!
//! Successors are stored by the script that ends their delivery: both or neither. The successors of one
//! delivery may have 256 MiB together. A server that is out of memory refuses them with `Full`, and their
//! delivery stays held; settlements without successors succeed.
//!
//! A push that changes the waiting message with its key is one script too, so that message has either its old
//! content or all of the new one. A message whose record cannot be read, or was written by a newer release,
//! is not changed: the push returns `Duplicate`.
//!
//! An amendment is one script for each hundred ids. A message with a new priority is placed among its new
//! equals by the time of its push, as the pushing handle estimated it by the server's clock: exactly for the
//! messages of one handle, and to within a fraction of a millisecond between handles, or 20 milliseconds at
//! worst. The server stores when a message [becomes urgent](anyqueue::TaskOptions::urgent_after), and lifts
//! it with the first pull after that. A message that is moved, to the dead letters or elsewhere, loses this
//! moment. In a cluster, a client may send an amendment twice if its connection breaks; within five minutes,
//! the second one only repeats the answer of the first.
//!
//! The [end of a task](anyqueue::adapter::LedgerQueueStorage) is stored by the script that removes its
//! message: both or neither, also in a cluster. Ends are as durable as settlements. A server that is out of
//! memory still settles, and stores ends that come with settlements, because otherwise nothing could be
//! finished there; it refuses other ends with `Full`. An expired end is not returned from the millisecond of
//! its expiry on. Its memory is freed by a purge, at most 250 ends per script.
//!
//! A member of a group joins the end of its level when those before it are gone; one that was released in the
//! meantime goes ahead of messages that were never delivered. A pull of [whole
//! groups](anyqueue::adapter::PullRequest::group_members) is one script like any other: it takes the members
//! out of their group's line together with the first one.
//!
//! A message that is moved to a partition that already has its id counts as that message: it is not stored again.
//!
//! A record that cannot be read is delivered with its stored bytes and the reason. The queue moves damaged
//! records to the dead letters; records that a newer release wrote come again later.
//!
//! # Where it runs
//! | server | URL | difference |
//! |---|---|---|
//! | one server | `redis://user:password@host:6379/0` | |
//! | the same with TLS | `rediss://host/`, with `ca_file=FILE` for an authority of your own, and `cert_file=FILE&key_file=FILE` for a server that asks for a certificate | |
//! | a master with sentinels | `redis-sentinel://host:26379/0?master=mymaster&nodes=host2:26379,host3:26379`; user and password are the master's, sentinels are asked without a login | a fail-over can lose what was acknowledged last |
//! | a Redis Cluster | `redis-cluster://host:6379/?nodes=host2:6379,host3:6379`; one node is enough if it is up | the same, and moves between two partitions are at-least-once, as are successors in another partition than their delivery's |
//!
//! With TLS these are `rediss-sentinel://` and `rediss-cluster://`. In a cluster each partition, with its
//! dead letters, is on one server: one partition is as fast as one server, many are as fast as all servers
//! together. A handle survives the replacement of a dead server. In a cluster, calls wait for it, up to
//! [`call_timeout`](RedisBuilder::call_timeout). With sentinels they fail with an error that says that they
//! can be repeated.
//!
//! In a cluster, successors in other partitions are stored first, while the lease of the delivery is valid;
//! then the delivery ends. If this is interrupted, the delivery comes again although its successors are
//! stored. If it is settled again with the same messages, those that still exist are not stored a second
//! time.
//!
//! While the slot of a partition moves to another server of the cluster, no script runs on only a part of its
//! keys: calls for the partition wait for some seconds, and then fail as a whole, with a repeatable
//! `Unavailable`. Nothing acknowledged is lost, and other partitions are not affected. The server that gives
//! a slot away must live until the move is done: its replacement knows nothing of the move, and serves what
//! is left there until an operator ends the move (`redis-cli --cluster fix`). If ids are found without their
//! records then, they are put aside, counted as ready, and reported by
//! [`check`](anyqueue::adapter::QueueStorage::check). They are delivered when the records are back.
//!
//! # Durability
//! What is acknowledged is as durable as the server's append-only file, and
//! [`Capabilities::durability`](anyqueue::adapter::Capabilities) says so:
//!
//! | the server's settings | acknowledged pushes, claims and settlements |
//! |---|---|
//! | `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` | survive power loss |
//! | the same with `no-appendfsync-on-rewrite yes` | power loss while the file is rewritten can lose half a minute |
//! | `appendonly yes`, `appendfsync everysec` or `no` | a crash can lose the last ones: with `everysec` at most two seconds |
//! | `appendonly no` | a crash can lose everything since the last snapshot |
//! | a cluster, or sentinels, whatever the settings | a fail-over can lose the last ones |
//!
//! Replicas follow asynchronously: if a master dies, what it has acknowledged but its replica has not
//! received is lost. That can be a push, a claim (another consumer gets the message while the first one still
//! works on it, hence `exclusive: BestEffort`) or a settlement (the message comes again). A test prints how
//! much was lost: with replicas that keep up, none of 36,000 messages in a cluster and none of 100,000 with a
//! sentinel; with a replica that had stalled, everything that it had not read.
//!
//! # Set-up
//! Redis 6.2 or later, or Valkey, with `maxmemory-policy noeviction`. Tested with Redis 7.0.15 on one machine: one server, TLS, one
//! sentinel with one replica, and a cluster of three masters with a replica each. A single server of Redis 6.2.14 and one of Valkey 9.1.2
//! passed the whole conformance suite in manual runs. Moving slots of a cluster back and forth under load is tested, also after
//! a restart. Untested: other versions, clusters and sentinels of these two, clusters and sentinels with TLS, and a master that dies
//! while one of its slots moves.
//!
//! A user needs the keys `~anyqueue:*`, the channels `&anyqueue:*`, and the commands
//! `+@read +@write +@scripting +@connection +publish +subscribe +info +time` and, so that the handle can
//! determine the durability, `+config|get`; in a cluster also `+cluster|slots`, with sentinels `+role`.
//! Opening a queue tries them and names those that are missing.
//!
//! # By URL
//! `redis://user:password@host:6379/0?prefix=jobs`, and the schemes [above](#where-it-runs). To
//! open queues by URL, add [`backend`] to a [`Registry`](anyqueue::Registry).
//!
//! | option | without it | is |
//! |---|---|---|
//! | `prefix` | anyqueue | what all keys begin with, 1 to 64 of A-Z a-z 0-9 . _ : - |
//! | `nodes` | none | further nodes of the cluster, or sentinels: host:port,host:port |
//! | `master` | none | the name that the sentinels know the master by |
//! | `ca_file` | none | file with the certificates of the authorities to trust |
//! | `cert_file` | none | file with the certificate to show to the servers |
//! | `key_file` | none | file with its private key |
//! | `poll_interval` | 900ms | how often waiting pulls look by themselves, 1ms to 60s |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 10s | how long the server may take to answer one call |
//! | `message_bytes` | 16777216 | largest encoded message in bytes |
//!
//! # Limits
//! At most 64 MiB per message (16 MiB by default), batches of 1000, leases up to 30 days, delays up to ten
//! years. To browse a partition with more than two thousand messages, each page scans all of its messages and
//! dead letters that were not pushed together, in small steps and without payloads above 16 KiB. Calls above
//! the batch limit are split into batches; a pull returns at most one batch.
//!
//! # How it works
//! A message is one field of a hash, and its id is in the list of its level. Messages that are pushed
//! together share a hash (a *window*) if at least sixteen of them have ids of the same 16 milliseconds
//! (`UUIDv7`), one priority, and no group, key or delay. A pull then reads neighbours in the server's memory,
//! however long the backlog is. All other messages are in one hash. A pull takes ids from the lists and
//! records them as one *claim* with one end, so a claim of a hundred messages costs little more than a claim
//! of one. Scripts touch only what they are asked for, so none becomes slower with a backlog. Waiting pulls
//! leave a mark; the next push finds it and publishes a hint. Each handle listens on one connection (in a
//! cluster to any server, since each receives all hints), and polls now and then in case a hint is lost
//! ([`poll_interval`](RedisBuilder::poll_interval)).
//!
//! The keys of a partition, here `mail`, begin with `anyqueue:{mail}:` (or another [`prefix`](RedisBuilder::prefix)). The braces put
//! them into one slot of a cluster.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `messages` | hash | messages of the partition and its dead letters, by id |
//! | `bulky` | hash | those of both with records above 16 KiB, by id; the other hashes have only the first bytes of these |
//! | `messages:…` | hashes | those of both that were pushed together, by id; named after the first six bytes of the ids, without their last four bits |
//! | `windows` | sorted set | the names of these hashes |
//! | `state` | hash | the highest level, whether it is paused, counters |
//! | `ready0` … `ready9` | lists | ids of ready messages, by level |
//! | `due` | sorted set | delayed and postponed, by when they are due |
//! | `leases` | hash | the claim of each leased message |
//! | `claims`, `taken` | sorted set, hash | when claims end, and what they hold |
//! | `heads`, `behind:…` | hash, sorted sets | who is in front of each group: on offer, held or postponed; and those that wait behind, by their places in it |
//! | `places:…` | sorted sets | only for groups with several members in front or with disabled ones: the places of these; `heads` has how many are in front then |
//! | `since` | hash | since when messages stand in line that matured or moved after their push, and which were released |
//! | `placed0` … `placed9` | sorted sets | ready messages that stand elsewhere than at the end, as amendments put them, by when they were pushed |
//! | `disabled` | hash | disabled messages, and what puts each back where it stood |
//! | `urgent` | sorted set | when messages become urgent; the rest of time for those that were held then |
//! | `done:…` | strings | answers to amendments in a cluster, for five minutes |
//! | `keys` | hash | deduplication keys in use |
//! | `counts`, `headers`, `asked` | hashes, set | earlier deliveries, replaced headers, requests for cancellation |
//! | `tombs` | hash | ids of deleted and of amended messages that are in a list for nothing, and its level |
//! | `astray` | hash | ids that were found without a record |
//! | `ended`, `ended:results` | hashes | ends of tasks, by id, and their results |
//! | `ended:1` … `ended:4` | sorted sets | moments and ids of cancelled, failed, timed out and succeeded tasks, in the order of lists |
//! | `ended:lapsing` | sorted set | ids of ends, those that came together in one member, by when they lapse |
//! | `series:` and a minute since 1970 | hash | counts of ends of that minute, with their kinds up to some 2000 counters; the server lets it go after eight days |
//! | `series` | sorted set | the minutes with such counts |
//! | `waits` | string | tells that a pull waits; for three minutes |
//! | `absent` | none | never exists, but is named by calls in a cluster, so that a server refuses them while it has only a part of the slot's keys |
//! | `dead:…` | | the same for its dead letters, except messages, `bulky` and ends |
//!
//! Four names belong to no partition: the sorted set `anyqueue:partitions` holds the names of partitions,
//! `anyqueue:ended` those with ends that expire, the set `anyqueue:astray` those with ids that were put
//! aside, and hints are published on the channel `anyqueue:wake`.
//!
//! In `anyqueue:ended` the score is when the first end expires. In a cluster it is when a handle last
//! registered the partition; a partition without ends leaves the list ten minutes later, with the next purge.
//!
//! In `anyqueue:partitions` the score is the layout of the partition's keys: 2 at first; 3 once a message of
//! the partition was amended, or was pushed with a moment from which it is urgent; 4 once several members of
//! a group were claimed at once, or one was disabled. From then on, a release that does not know this layout
//! refuses to open the queue. Close the handles of such a release first: they do not find amended messages,
//! and a group may stall if they remove a member of it. Ends of tasks do not affect the layout: a release
//! without them settles without storing any, and leaves existing ones alone. Opening a queue refuses any
//! other layout, and a hash `anyqueue:messages`, because they are from before the first release, or from a
//! later one.
//!
//! Control entries are in three keys, `anyqueue:{:control}:entries`, `:names` and `:lapses`, in one slot of a
//! cluster: a hash with the version, the expiry and the value of each entry, and two sorted sets, one with
//! the names and one with when they expire.

mod amend;
mod backend;
mod browse;
mod bundle;
mod capabilities;
mod clock;
mod config;
mod connect;
mod control;
mod cross_slot_move;
mod cross_slot_successors;
mod end_news;
mod ended_partitions;
mod ends;
mod error;
mod extend;
mod hint;
mod inspect;
mod ledger;
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
mod rows;
mod script;
mod series;
mod server;
mod settle;
mod storage;
mod successors;
mod token;
mod unreadable;
mod url;
mod window;

pub use backend::backend;
pub use config::RedisBuilder;
pub use storage::RedisQueue;
