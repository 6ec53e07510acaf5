//! Runs handlers over any anyqueue backend.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use anyqueue::Queue;
//! use anyqueue_worker::{Partition, Retry, TaskContext, TaskResult, Worker, task};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail {
//!     to: String,
//! }
//!
//! async fn send_mail(mail: Mail, task: TaskContext) -> TaskResult {
//!     println!("attempt {} to reach {}", task.attempt(), mail.to);
//!     Ok(())
//! }
//!
//! let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! queue.push("mail", task("send_mail", &Mail { to: "a@example.org".into() })?).await?;
//!
//! let worker = Worker::builder(queue.clone())
//!     .partition(Partition::new("mail").weight(3).concurrency(16))
//!     .partition(Partition::new("reports").timeout(Duration::from_mins(10)).retry(Retry::never()))
//!     .handler("send_mail", send_mail)
//!     .slots(32)
//!     .build()?;
//! let summary = worker.run_once().await?; // or `worker.run()`: until SIGTERM
//! assert_eq!(summary.processed, 1);
//! queue.close().await?;
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```
//!
//! # What it promises, on every backend
//!
//! - **At least once.** A task is settled after its handler has ended, never before. It can run twice: when a process dies, or when
//!   it loses its lease because the server was unreachable. Make handlers idempotent, for instance by [`TaskContext::id`].
//! - **A slot before a claim.** A worker pulls only what it has free slots for. [`prefetch`](WorkerBuilder::prefetch) is opt-in, and
//!   messages that wait too long are released.
//! - **Heavy tasks** take [several slots](Kind::slots). The sum never exceeds the slots, and light tasks do not starve them.
//! - **A reserve.** No other partition takes the slots that a partition [reserves](Partition::reserve).
//! - **A kind that is full** holds up no other where each has [a partition of its own](Partition::per_kind).
//! - **Leases.** The queue's heartbeat renews them after a third of their time. Where handlers compute without awaiting, give the
//!   queue an [`IoThread`](anyqueue::IoThread), so that a blocked executor loses no lease. When a lease is lost all the same, the
//!   handler is asked to stop and nothing is settled.
//! - **Retries** come after c·2ⁿ ([`Retry`]). The count and the last errors travel with the message ([`history`]). Tasks that are out
//!   of retries, failed permanently or timed out go to the partition's dead letters. Tasks that a shutdown interrupts are released,
//!   uncounted.
//! - **A panic** is a failed attempt. The slot is free afterwards.
//! - **A crash loop** ends. A task that was lost with its process more than [`max_crashes`](WorkerBuilder::max_crashes) times goes to
//!   the dead letters instead of running.
//! - **Unknown tasks** are those of an unknown kind, or whose payload cannot be read. They are deferred for a worker that knows them.
//!   In the end they go to the dead letters.
//! - **Backend errors never stop it**, and a partition that fails does not hold up the others. [`Worker::health`] says whether it
//!   makes progress.
//! - **A shutdown** ends within its times: [`WorkerBuilder::drain`].
//!
//! [`Queue::request_cancel`](anyqueue::Queue::request_cancel) cancels tasks from any process. A waiting task is removed. The handler of
//! a running task is asked to stop at its next heartbeat. Expired messages never start.
//!
//! # Batches
//!
//! Where a partition is pulled in [whole groups](Partition::whole_groups), one call of a [batch handler](WorkerBuilder::batch_handler) gets
//! the tasks of its kind that stand at the front of a group, in order:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use anyqueue::Queue;
//! use anyqueue_worker::{BatchContext, Partition, Task, TaskResult, Worker, task};
//!
//! async fn apply(changes: Vec<Task<String>>, batch: BatchContext) -> TaskResult {
//!     let names: Vec<_> = changes.iter().map(|change| change.payload.as_str()).collect();
//!     println!("{}: {}", batch.partition(), names.join(", "));
//!     assert_eq!(names, ["name", "address", "photo"]);
//!     Ok(()) // of all; or a `Vec<TaskResult>`, one for each
//! }
//!
//! let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! for change in ["name", "address", "photo"] {
//!     queue.push("profiles", task("change", &change)?.with_group("user 17")).await?;
//! }
//! let worker = Worker::builder(queue)
//!     .partition(Partition::new("profiles").whole_groups(50))
//!     .batch_handler("change", apply)
//!     .build()?;
//! assert_eq!(worker.run_once().await?.processed, 3);
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```
//!
//! - **One slot.** A batch takes one slot, and one place of its partition and its kind. Counts, metrics and retries are those of each task.
//! - **The order of a group stays.** What is pushed while a batch runs comes with the next one. Of tasks of another kind, and of those
//!   whose kind has no batch handler, the first one runs in its turn; the others are given back at once, uncounted. A task that cannot be
//!   read, or is unknown, waits for a worker that knows it, and those behind it wait too.
//! - **A failure** is that of each task, by its own count and limits. A task that is to be retried holds its group, but those behind it in
//!   its batch may have succeeded: return one result for all where that must not be. A panic fails all.
//! - **Time.** The shortest limit of its tasks is that of the batch.
//! - **Stopping.** A task that is lost or cancelled is told so by its own [`TaskContext`]. The [`BatchContext`] asks the handler to stop
//!   when all are, when its time is over, and at the end of a shutdown.
//! - **A crash loop.** Tasks that were lost with their process run one by one, so that one of them does not take the others along to the
//!   dead letters.
//!
//! # Results
//!
//! Over a queue with a [ledger](anyqueue::QueueBuilder::ledger) the end of each task is kept for a while: how it ended, at which attempt, who
//! ran it ([`WorkerBuilder::name`]), its errors, and the result that the handler [set](TaskContext::set_result).
//!
//! - **With the settlement**, in one step. A run whose lease was lost leaves no end.
//! - **A result** counts only if the task succeeds with that attempt. One that is too large is an error to the handler.
//! - **A retry as a new message** ends the old one as failed, or timed out, with the id of the retry in its reason.
//! - **Ends that have lapsed** are freed by the worker, about once a minute.
//!
//! # Handlers that block
//!
//!
//! A future is dropped when its time is over. A handler that blocks its thread cannot be stopped. It is reported as stuck: in the log,
//! by [`Health::stuck`] and by a metric. Run such work with `tokio::task::spawn_blocking`, and let it check
//! [`TaskContext::cancel_reason`] now and then.
//!
//! If the task has a timeout it ends all the same, as timed out, some two seconds after its deadline and the grace: it goes to the dead
//! letters, or is [retried](WorkerBuilder::retry_timeouts) by whoever has a free slot. The handler keeps its slot, and nothing that it returns has an effect any more: it is
//! counted as [lost](Summary::lost). This needs a thread that is not blocked, so a runtime with several.
//!
//! A shutdown leaves such a handler running after a limited time, and [`Summary::abandoned`] counts it. But the process does not end: at
//! the end of `#[tokio::main]` the runtime waits for every blocked thread, also those of `spawn_blocking`. Where handlers may block, shut
//! the runtime down without waiting. The tasks that were left running come back when their leases end:
//!
//! ```no_run
//! # use anyqueue_worker::{Partition, Summary, TaskContext, Worker};
//! # fn worker() -> anyqueue::Result<Worker> {
//! #     let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! #     let handler = |_: String, _: TaskContext| async { Ok(()) };
//! #     Worker::builder(queue).partition(Partition::new("mail")).handler("send_mail", handler).build()
//! # }
//! async fn serve() -> anyqueue::Result<Summary> {
//!     let worker = worker()?;
//!     let summary = worker.run().await?;
//!     worker.queue().close().await?;
//!     Ok(summary)
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     let end = runtime.block_on(serve());
//!     runtime.shutdown_background(); // does not wait for handlers that block
//!     println!("{:?}", end?);
//!     Ok(())
//! }
//! ```
//!
//! Otherwise one more SIGTERM or SIGINT ends the process after [`Worker::run`] has returned and left handlers running.
//!
//! # What a backend cannot do
//!
//! [`Worker::limitations`] lists it. It is also logged when the worker is made.

#![forbid(unsafe_code)]

mod attempt;
mod balance;
mod batch;
mod batch_context;
mod builder;
mod config;
mod context;
mod error;
mod execute;
mod fetch;
mod governor;
mod handler;
mod keep_permits;
mod kind_partition;
mod limit;
mod log;
mod memory;
mod message;
mod orders;
mod overdue;
mod panics;
mod partition;
mod permits;
mod pool;
mod purge;
mod push_or_run;
mod received;
mod report;
mod retry;
mod room;
mod run_batch;
mod runner;
mod running;
mod runs;
mod schedule;
mod settle;
mod shared;
mod signal;
mod slots;
mod stop;
mod successors;
mod summary;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod usage;
mod work;
mod work_set;
mod worker;

pub use attempt::failed_attempt;
pub use batch::{IntoBatchResult, Task};
pub use batch_context::BatchContext;
pub use builder::WorkerBuilder;
pub use config::{MAX_SLOTS, process_name};
pub use context::{MAX_PROGRESS_BYTES, TaskContext};
pub use error::{ErrorClass, TaskError, TaskResult};
pub use governor::{Governor, ResourceGovernor};
pub use handler::{Kind, Run};
pub use kind_partition::{kind_partition, partition_kind};
pub use memory::resident_memory;
pub use message::{Failure, FailureKind, MAX_ERROR_BYTES, MAX_HISTORY, header, history, task};
pub use partition::Partition;
pub use permits::{Admission, Permits, Ticket};
pub use push_or_run::{Fallback, PushedOrRan, push_or_run};
pub use retry::Retry;
pub use room::Room;
pub use schedule::Sharing;
pub use shared::Stage;
pub use signal::shutdown_signal;
pub use stop::CancelReason;
pub use summary::{RunLimit, Summary};
pub use usage::SlotUsage;
pub use work_set::{MAX_CURSOR_BYTES, MAX_WIDTH, Part, WorkSet, WorkSource};
pub use worker::{Health, Worker};
