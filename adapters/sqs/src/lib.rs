//! The Amazon SQS backend of anyqueue: standard queues, or FIFO queues with groups, at the price of few requests.
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
//! The service returns a request that does not wait from a part of its servers only. So a pull without a wait may miss one of few
//! messages, and of few messages a lower level may then go before a higher one; a pull that waits misses none. A `thorough` one misses none either: where it
//! finds nothing it asks each level once more, with a wait of a second. So do a worker's `run_once`, redrives and purges, which end there.
//!
//! What a standard queue cannot give is declared, and refused before anything is sent:
//!
//! | not offered | the service's rule |
//! |---|---|
//! | order, and a front to return to | a standard queue keeps no order |
//! | groups | these are a FIFO queue's: [`fifo`](SqsBuilder::fifo) |
//! | deduplication | only FIFO queues drop duplicates, and they answer a duplicate as if it were stored: nobody could be told |
//! | unique ids | a standard queue takes a message as often as it is sent: a push that is repeated after a cut may be there twice |
//! | strict exclusiveness | a standard queue delivers at least once, and now and then twice |
//! | strict fencing | a late deletion by an old receipt handle may succeed |
//! | atomic moves | no request stores and deletes: the copy is stored first, then the original is deleted |
//! | list of partitions | a queue's name may hold no more than a hash of the partition's |
//! | browsing, deletion and cancellation by id | a message can only be seen, and deleted, by whoever has received it |
//! | purge | `PurgeQueue` also deletes what is held |
//! | counts of delayed and of leased messages | what is postponed and what is held are counted as one |
//! | pause | a queue has no such state |
//! | settling and pulling in one round trip | each is a request of its own |
//!
//! Fencing is as strong as it can be made from here: a handle remembers when each of its leases ends, and after that asks the server
//! nothing, but returns `Lost`. What is left is the time that a request is on its way.
//!
//! # FIFO queues
//! With [`fifo`](SqsBuilder::fifo) a partition is a FIFO queue, and its dead letters another. Groups are then kept: one member at a time,
//! in push order. A message without a group is a group of its own. A message under a valid lease is nobody else's. A push whose
//! answer is cut off may be stored. A message that is pushed again later, by a move or by its own handler, is
//! another one, also within the five minutes for which the service remembers what it has seen. If an entry of a batch fails, those behind
//! it in its group that were not sent yet are not sent before it. If some of its own request were stored, it is left to the caller to push
//! it again, behind them. What is different there:
//!
//! | not offered | the service's rule |
//! |---|---|
//! | priority levels | a group is kept together within one queue, and levels are several |
//! | order between groups, and a front to return to | a returned message is the first of its group, not of the queue |
//! | deduplication by key | a duplicate is dropped, but answered as if it were stored: a pusher could not be told which it was |
//! | unique ids | the same: the service drops what it has seen within five minutes, also if that was deleted meanwhile, and answers that it is stored. So each push is told from every other |
//! | delay at push | a FIFO queue takes no delay of a single message |
//! | new headers, and delays beyond eleven hours, at a postponement | it has to hold its group, so it cannot be a copy: it is only hidden, for at most twelve hours from its reception |
//! | redrive by the service | dead letters wait for nobody, so they have left their groups |
//!
//! The service hands out several messages of a group at once. Those behind the first are held with it, for nobody else could be given
//! them, and go to the next pulls here, each when the one before it is gone. If the first comes again, or the lease ends that they came
//! with, they go back, which counts one delivery of each in the eyes of other processes. After that messages are asked for one by one for
//! a minute. A FIFO queue takes 300 requests a second of each kind, unless its high
//! throughput is switched on, which can be done at any time.
//!
//! # Set-up
//! Credentials come by the standard chain of the AWS SDK, or in the URL for emulators. A handle that makes its queues needs
//! `sqs:CreateQueue` and `sqs:GetQueueAttributes`; with `create=false` it needs the second for counts alone, and all levels of the
//! partitions and of their dead letters. All need `sqs:GetQueueUrl` and, for what they do, `sqs:SendMessage`, `sqs:ReceiveMessage`, `sqs:DeleteMessage`
//! and `sqs:ChangeMessageVisibility`. Queues that are made here keep messages for fourteen days, and have a redrive policy as backstop:
//! after 1000 receptions the service itself puts a message among the dead letters of its level. [`SqsQueue::start_redrive`] lets the
//! service put dead letters back; it needs `sqs:StartMessageMoveTask`.
//!
//! # By URL
//! `sqs://REGION/PREFIX?levels=3`: the region, and what the names of all queues begin with. With [`backend`] a [`Registry`](anyqueue::Registry) opens it.
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
//! 1 MiB per body, of which a payload takes four thirds of its size; leases from a second to twelve hours; delays up to seven days, half of
//! what the service keeps a message for.
//!
//! # Cost
//! Pushes and settlements of all callers share requests: ten of one queue go at once, and fewer wait for others, up to 10 ms
//! ([`linger`](SqsBuilder::linger)). So an application that pushes and settles one at a time pays about as much under load as one that works
//! in batches, 0.3 requests a message, also where messages of several levels come mixed. A pull costs at least a request, and one at each level that
//! it looks at in vain: pull many at once. A worker pulls as many as it has free slots, so let that be forty or more where messages are
//! many; with eight it takes twice as many requests. Levels that are not used cost little, a poll of up to twenty seconds at each. A stream asks for more when a quarter of its window is free: let that be a multiple of ten.
//! [`SqsQueue::requests`] tells what was asked.
//!
//! # Ages
//! How old a message is when it first comes, the service tells to the millisecond. When it comes again its age is reckoned from what answers have told of
//! the service's clock. It is then never told too low, and too high by at most a second and the time that a request takes; mostly by a few milliseconds.
//!
//! # How it works
//! Each priority level of a partition, and of its dead letters, is a queue of its own: `jobs_p0-mail` is the lowest level of `mail` under
//! the prefix `jobs`, and `jobs_d0-mail` holds its dead letters. Names that would be too long end with a hash. URLs are asked of the
//! service, and asked for again when it says that a queue does not exist.
//!
//! A pull looks at the levels from the highest down until it has enough. Those that gave something last time are asked one after another,
//! each for all that there is room for, and those in between before them, for one message each and side by side. So a pull takes few round
//! trips, not one for each level, a higher level always goes first, and nothing is received of a level below as long as those above fill
//! the request. What it takes too much, at most one message for each level that gave nothing before, is handed to the next pull within a
//! quarter of a second, or released. The service counts that as a delivery; this handle does not, but others do.
//!
//! A level that was found empty eight times in a row is no longer asked by each pull, for that would cost, but watched by a long poll for
//! one message, as long as pulls find enough elsewhere. A message that is pushed there goes first from when the poll brings it, which the
//! service does at once. A level without a queue counts as empty. Where queues are not made, one that is watched is asked for again when
//! the time of its poll is over, or when nothing is found elsewhere.
//!
//! If all are empty, a pull that waits begins one long poll at each level at once, so that neither waiting nor waking depends on the
//! number of levels. A poll is never cancelled, for what it had selected would be lost for as long as its lease: what it brings when
//! nobody waits any more is handed on or released in the same way. Polls begin with one second and become longer the longer somebody
//! pulls, up to twenty.
//!
//! | status | is done by |
//! |---|---|
//! | processed | `DeleteMessageBatch` |
//! | failed, released | a visibility timeout of 0 |
//! | postponed for up to twelve hours | a visibility timeout; a copy where 10 000 of the queue are hidden already |
//! | postponed for longer, to the end, or with new headers | a copy, then deletion |
//! | dead, moved, redriven | a copy in the other queue, then deletion; if only the deletion fails no second copy is made |
//!
//! A delay beyond the service's fifteen minutes is kept in the message: whoever receives it early hides it again, for up to twelve hours
//! at a time. What is hidden is in flight to the service, as what is held is, and from about 120 000 of a queue on it hands out nothing
//! more of it. So a handle hides at most 10 000 of a queue at once; beyond that it sends a copy with a delay, which costs two requests for
//! ten instead of one, every fifteen minutes. On a FIFO queue nothing but hiding keeps a group together, so there is no such limit there.
//!
//! # Tested
//! Against the emulator ministack 1.5.33, which takes a stale receipt handle for an error, and against a layer that answers as the
//! service does where it differs. Amazon SQS itself and other emulators are untested. The emulator has no `StartMessageMoveTask`: what is
//! sent for it was tested, what the service does with it was not.

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
