//! The Amazon SQS backend of anyqueue: standard queues, or FIFO queues with groups, using few requests.
//!
//! ```no_run
//! use anyqueue::{MessageData, Queue};
//! use anyqueue_sqs::SqsQueue;
//! # async fn example() -> Result<(), anyqueue::Error> {
//! let queue = Queue::new(SqsQueue::open("sqs://eu-central-1/jobs").await?)?;
//! queue.push("mail", MessageData::new("hello")).await?;
//! let handlers = queue.pull("mail").await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! Ten strict priority levels, leases and delays in whole seconds, delivery counts, settlements that the service has confirmed, every
//! byte of payload and headers. Each entry of each batch gets its own answer.
//!
//! The service answers a request that does not wait from only a part of its servers. So a pull without a wait may miss one of few
//! messages, and a lower level may then go before a higher one; a pull that waits misses none. A `thorough` pull misses none either: if
//! it finds nothing, it asks each level once more, with a wait of a second. A worker's `run_once`, redrives and purges use such pulls,
//! because they end when nothing is left.
//!
//! What a standard queue cannot offer is declared, and refused before anything is sent:
//!
//! | not offered | because of the service |
//! |---|---|
//! | order, requeueing at the front | a standard queue keeps no order |
//! | groups | only FIFO queues have them: [`fifo`](SqsBuilder::fifo) |
//! | deduplication | only FIFO queues drop duplicates |
//! | unique ids | a standard queue accepts a message as often as it is sent: a push that is repeated after a lost connection may be stored twice |
//! | strict exclusiveness | a standard queue delivers at least once, and sometimes twice |
//! | strict fencing | a late deletion with an old receipt handle may succeed |
//! | atomic moves, and successors in one step with the end of their delivery | no request both stores and deletes: what is to be stored is stored first, then the original is deleted |
//! | list of partitions | a queue's name may contain only a hash of the partition's |
//! | browsing, deletion and cancellation by id | a message can only be seen, and deleted, by a consumer that has received it |
//! | purge | `PurgeQueue` also deletes messages in flight |
//! | counts of delayed and of leased messages | postponed and held messages are counted together |
//! | pause | a queue has no such state |
//! | settling and pulling in one round trip | each is a request of its own |
//!
//! Fencing is as strong as a client can make it: a handle remembers when each of its leases ends. After that
//! it sends nothing to the server, but returns `Lost`. A gap remains only while a request is on its way.
//!
//! # FIFO queues
//! With [`fifo`](SqsBuilder::fifo) a partition is a FIFO queue, and its dead letters another. Groups are
//! kept: one member at a time, in push order. A message without a group is a group of its own. Nobody else
//! can receive a message under a valid lease. If the answer to a push is lost, it may have been stored. A
//! message that is pushed again later, by a move or by its own handler, counts as another message, even
//! within the five minutes for which the service remembers deduplication ids; only a successor that the same
//! delivery brings again is the same. If an entry of a batch fails, later entries of its group that were not
//! sent yet are not sent before it. If later entries of the same request were stored, the caller must push
//! the failed one again, behind them. The differences:
//!
//! | not offered | because of the service |
//! |---|---|
//! | priority levels | a group is kept together only within one queue, and levels are several queues |
//! | order between groups, requeueing at the front | a released message is the first of its group, not of the queue |
//! | deduplication while a message lives | the service remembers a [key](anyqueue::TaskOptions::dedup_key) for five minutes, whatever became of the message. What is pushed with it in that time is dropped, and reported as stored |
//! | unique ids | the same: within five minutes the service drops a duplicate, even of a deleted message, and reports it as stored. So each push without a key gets a deduplication id of its own |
//! | delay at push | a FIFO queue supports no delay of a single message |
//! | new headers, and delays beyond eleven hours, at a postponement | the message must hold up its group, so it cannot be a copy: it is only made invisible, for at most twelve hours from its receive |
//! | redrive by the service | dead letters do not hold each other up, so they have left their groups |
//!
//! The service delivers several messages of a group together. This handle holds those behind the first one,
//! since nobody else could receive them, and delivers each to one of its next pulls when the one before it is
//! gone. If the first one is released, or their lease ends, they are released too; other processes count that
//! as a delivery of each. After that, messages are received one at a time for a minute. A FIFO queue allows
//! 300 requests a second of each kind, unless its high throughput mode is enabled, which can be done at any
//! time.
//!
//! # Set-up
//! Credentials come from the standard chain of the AWS SDK, or for emulators from the URL. A handle that creates its queues needs
//! `sqs:CreateQueue` and `sqs:GetQueueAttributes`; with `create=false` it needs only the second, for counts, and all levels of the
//! partitions and of their dead letters must exist. All handles need `sqs:GetQueueUrl` and, depending on their use, `sqs:SendMessage`,
//! `sqs:ReceiveMessage`, `sqs:DeleteMessage` and `sqs:ChangeMessageVisibility`. Queues that a handle creates keep messages for fourteen
//! days, and have a redrive policy as a backstop: after 1000 receives the service itself moves a message to the dead letters of its
//! level. [`SqsQueue::start_redrive`] lets the service move dead letters back; it needs `sqs:StartMessageMoveTask`.
//!
//! # By URL
//! `sqs://REGION/PREFIX?levels=3`: the region, and what the names of all queues begin with. To
//! open queues by URL, add [`backend`] to a [`Registry`](anyqueue::Registry).
//!
//! | option | without it | is |
//! |---|---|---|
//! | `endpoint` | the region's | where the service is, for emulators |
//! | `levels` | 10 | priority levels, each a queue of its own, 1 to 10 |
//! | `fifo` | false | whether these are FIFO queues, which have groups and one level |
//! | `create` | true | whether missing queues are made |
//! | `message_bytes` | 1048576 | largest body of a message in bytes |
//! | `linger` | 10ms | how long single pushes and settlements wait for others to share a request with |
//! | `connect_timeout` | 5s | how long making a connection may take |
//! | `call_timeout` | 10s | how long the server may take to answer one request, beyond a wait |
//!
//! # Limits
//! At most 1 MiB per body, of which a payload takes four thirds of its size; leases from one second to twelve
//! hours; delays up to seven days, half of the service's retention.
//!
//! # Cost
//! The pushes and settlements of all callers share requests: ten entries of one queue are sent at once, and
//! fewer wait up to 10 ms for others ([`linger`](SqsBuilder::linger)). So under load an application that
//! pushes and settles one at a time pays about as much as one that works in batches, 0.3 requests per
//! message, even if messages of several levels are mixed. A pull costs at least one request, and one more for
//! each level that it polls in vain, so pull many messages at once. A worker pulls as many as it has free
//! slots, so give it forty or more if there are many messages; with eight it takes twice as many requests.
//! Unused levels cost little: each takes one poll of up to twenty seconds at a time. A stream asks for more
//! when a quarter of its window is free; make that a multiple of ten. [`SqsQueue::requests`] counts the
//! requests.
//!
//! # Ages
//! At the first delivery, the service reports a message's age to the millisecond. At later deliveries the age
//! is computed from what answers reveal about the service's clock. It is then never too low, and too high by
//! at most a second plus the time of a request; usually by a few milliseconds.
//!
//! # How it works
//! Each priority level of a partition, and of its dead letters, is a queue: `jobs_p0-mail` is the lowest
//! level of `mail` with the prefix `jobs`, and `jobs_d0-mail` holds its dead letters. Names that would be too
//! long end with a hash. The handle asks the service for the URL of a queue, and asks again when the service
//! says that the queue does not exist.
//!
//! A pull polls the levels from the highest down until it has enough. Levels that had messages last time are
//! asked one after another, each for as many messages as there is room for. The levels in between are asked
//! before them, for one message each and concurrently. So a pull takes few round trips, not one for each
//! level; a higher level always goes first; and nothing is received from a lower level while higher ones fill
//! the request. Surplus messages, at most one for each level that was empty before, go to the next pull
//! within a quarter of a second, or are released. The service counts that as a delivery; this handle does
//! not, but others do.
//!
//! A level that was empty eight times in a row is no longer asked by each pull, because that costs money.
//! Instead a long poll for one message watches it, as long as pulls find enough elsewhere. A message that is
//! pushed there goes first as soon as the poll brings it, which the service does at once. A level without a
//! queue counts as empty. If the handle does not create queues, a watched level is looked up again when its
//! poll would end, or when nothing is found elsewhere.
//!
//! If all levels are empty, a pull that waits starts a long poll at each level at the same time, so that
//! neither waiting nor waking depends on the number of levels. A poll is never cancelled, because its
//! messages would be lost until their leases end. If no pull waits any more, what it brings goes to the next
//! pull, or is released in the same way. Polls start with one second and become longer the longer pulls wait,
//! up to twenty seconds.
//!
//! | status | is done by |
//! |---|---|
//! | processed | `DeleteMessageBatch` |
//! | failed, released | a visibility timeout of 0 |
//! | postponed for up to twelve hours | a visibility timeout; a copy if 10 000 messages of the queue are postponed already |
//! | postponed for longer, to the end, or with new headers | a copy, then deletion |
//! | dead, moved, redriven | a copy in the other queue, then deletion; if only the deletion fails, no second copy is made |
//! | any, with successors | the successors are sent together with the copy, if there is one, then as above; if only the rest fails, nothing is sent again |
//!
//! Successors take `SendMessageBatch`, one additional request for ten. If the lease ends before the delivery
//! does, the settlement is an error and not `Lost`, because the successors are stored; nothing is deleted
//! then. A lease of another handle cannot bring successors, because this handle does not know whether it is
//! valid. If the answer about a successor is lost, a standard queue may store it twice (`MayDuplicate`). On a
//! FIFO queue its deduplication id is made from its delivery and its own id, so the service stores it once,
//! if it is sent again within five minutes.
//!
//! A delay beyond the service's fifteen minutes is stored in the message. A handle that receives it early
//! postpones it again, for up to twelve hours at a time. To the service, postponed messages are in flight,
//! like held ones, and a queue with about 120 000 messages in flight delivers no more. So a handle postpones
//! at most 10 000 messages of a queue in this way. Beyond that it sends a copy with a delay, which costs two
//! requests for ten messages instead of one, every fifteen minutes. On a FIFO queue only a visibility timeout
//! keeps a group together, so there is no such limit there.
//!
//! # Tested
//! With the emulator ministack 1.5.33, which treats a stale receipt handle as an error, and with a layer that
//! answers as the service does where that differs. Amazon SQS itself and other emulators are untested. The
//! emulator has no `StartMessageMoveTask`: the request was tested, but not what the service does with it.

mod backend;
mod batch;
mod capabilities;
mod clock;
mod config;
mod delays;
mod entries;
mod entry;
mod error;
mod fifo;
mod group_backlog;
mod in_flight;
mod inspect;
mod join;
mod joined;
mod level_poll;
mod limits;
mod listener;
mod names;
mod poll_state;
mod postponed;
mod pull;
mod push;
mod queues;
mod receive;
mod received;
mod record;
mod redrive;
mod rules;
mod server;
mod settle;
mod settle_job;
mod settle_request;
mod shared;
mod storage;
mod unpack;
mod unseen_receives;

pub use backend::backend;
pub use config::SqsBuilder;
pub use rules::server_rule;
pub use server::Requests;
pub use storage::SqsQueue;
