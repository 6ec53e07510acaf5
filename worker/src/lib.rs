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
//! - **At least once.** A task is settled after its handler has ended, never before, unless the handler
//!   [blocks](#handlers-that-block) past its timeout. A task can run twice: when a process dies, or when it
//!   loses its lease because the server was unreachable. Make handlers idempotent, for instance by
//!   [`TaskContext::id`].
//! - **A slot before a claim.** A worker pulls only what it has free slots for.
//!   [`prefetch`](WorkerBuilder::prefetch) is opt-in, and prefetched messages that wait too long are
//!   released.
//! - **Heavy tasks** take [several slots](Kind::slots). The sum never exceeds the slots, and light tasks do
//!   not starve them.
//! - **A reserve.** No other partition takes the slots that a partition [reserves](Partition::reserve).
//! - **A full kind** does not hold up the others if each has [a partition of its own](Partition::per_kind).
//! - **Leases.** The queue's heartbeat renews each lease after a third of its duration. If handlers compute
//!   without awaiting, give the queue an [`IoThread`](anyqueue::IoThread), so that a blocked executor loses
//!   no lease. If a lease is lost all the same, the handler is asked to stop and nothing is settled.
//! - **Retries** are delayed by c·2ⁿ ([`Retry`]). The count and the last errors travel with the message
//!   ([`history`]). Tasks that are out of retries, failed permanently or timed out go to the partition's dead
//!   letters. Tasks that a shutdown interrupts are released, and the attempt does not count.
//! - **A panic** is a failed attempt. The slot is free afterwards.
//! - **A crash loop** ends. A task that was lost with its process more than
//!   [`max_crashes`](WorkerBuilder::max_crashes) times goes to the dead letters instead of running.
//! - **Unknown tasks** (of an unknown kind, or with a payload that cannot be read) are deferred for a worker
//!   that knows them, and go to the dead letters in the end.
//! - **Backend errors never stop the worker**, and a partition that fails does not hold up the others.
//!   [`Worker::health`] shows whether the worker makes progress.
//! - **A shutdown** ends within the times set by [`WorkerBuilder::drain`].
//!
//! [`Queue::request_cancel`](anyqueue::Queue::request_cancel) cancels tasks from any process. A waiting task
//! is removed. The handler of a running task is asked to stop at its next heartbeat. Expired messages never
//! start.
//!
//! # Batches
//!
//! If a partition is pulled in [whole groups](Partition::whole_groups), each call of a [batch
//! handler](WorkerBuilder::batch_handler) gets the tasks of its kind at the front of a group, in order:
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
//! - **One slot.** A batch takes one slot (a [heavy kind](Kind::slots): those of one task), and counts once
//!   towards the concurrency of its partition and its kind. Counts, metrics and retries are kept for each
//!   task.
//! - **The order of a group is kept.** Messages pushed while a batch runs come with the next one. Of the
//!   tasks of other kinds, or of kinds without a batch handler, the first one runs in its turn; those behind
//!   it are released at once, uncounted. A task that is unknown or cannot be read waits for a worker that
//!   knows it, and the tasks behind it wait too.
//! - **Failures** are counted for each task, by its own count and limits. A task that will be retried holds
//!   its group, but tasks behind it in the same batch may have succeeded already: if that must not happen,
//!   return one result for all. A panic fails all.
//! - **Time.** The time limit of a batch is the shortest limit of its tasks.
//! - **Stopping.** A task that is lost or cancelled learns it from its own [`TaskContext`]. The
//!   [`BatchContext`] asks the handler to stop when all tasks are lost or cancelled, when the time is over,
//!   and at the end of a shutdown.
//! - **A crash loop.** Tasks that were lost with their process run one by one, so that one of them does not
//!   take the others along to the dead letters.
//!
//! # Results
//!
//! If the queue has a [ledger](anyqueue::QueueBuilder::ledger), the end of each task is kept for a while: how
//! the task ended, at which attempt, which worker ran it ([`WorkerBuilder::name`]), its errors, and the
//! result that the handler [set](TaskContext::set_result).
//!
//! - **With the settlement.** The end is stored in one step with it. A run that lost its lease leaves no end.
//! - **A result** counts only if the task succeeds in that attempt. If a result is too large, the handler
//!   gets an error.
//! - **A retry as a new message** ends the old one as failed, or timed out, with the id of the retry in its
//!   reason.
//! - **Ends that have lapsed** are deleted by the worker, about once a minute.
//!
//! # Handlers that block
//!
//! A handler that awaits is dropped when its time is over. A handler that blocks its thread cannot be
//! stopped. It is reported as stuck: in the log, by [`Health::stuck`] and by a metric. Run blocking work with
//! `tokio::task::spawn_blocking`, and let it check [`TaskContext::cancel_reason`] now and then.
//!
//! If the task has a timeout, the worker ends it all the same, as timed out, about two seconds after the
//! deadline and the grace period: the task goes to the dead letters, or is
//! [retried](WorkerBuilder::retry_timeouts) by any worker with a free slot. The handler keeps its slot, and
//! whatever it returns has no effect: it is counted as [lost](Summary::lost). This needs a thread that is not
//! blocked, and so a runtime with several threads.
//!
//! A shutdown waits for such a handler only for a limited time. Then it leaves the handler running and counts
//! it in [`Summary::abandoned`]. But the process does not end: at the end of `#[tokio::main]` the runtime
//! waits for every blocked thread, including those of `spawn_blocking`. If handlers may block, shut the
//! runtime down without waiting. The tasks that were left running come back when their leases end:
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
//! Otherwise, once [`Worker::run`] has returned and left handlers running, one more SIGTERM or SIGINT ends
//! the process.
//!
//! # What a backend cannot do
//!
//! [`Worker::limitations`] lists it. The list is also logged when the worker is built.

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

pub use anyqueue::MAX_PROGRESS_BYTES;
pub use attempt::failed_attempt;
pub use batch::{IntoBatchResult, Task};
pub use batch_context::BatchContext;
pub use builder::WorkerBuilder;
pub use config::{MAX_SLOTS, process_name};
pub use context::TaskContext;
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
