//! What a handler knows about its task, and how it learns that it should stop.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{
    Bytes, Clock, Delivery, DeliveryTwin, Error, ErrorKind, IntoPartitionId, MAX_PROGRESS_BYTES,
    MAX_RESULT_BYTES, MAX_SUCCESSORS, MessageData, MessageId, PartitionId, Queue, Result, Successors,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::batch_context::BatchContext;
use crate::log::TaskLog;
use crate::message::{Failure, history, task};
use crate::stop::{CancelReason, Stop};
use crate::successors;

/// What a handler knows about its task: the message, which attempt this is, and whether to stop. Cheap to
/// clone.
///
/// A handler that awaits can be stopped without its help: its future is dropped some seconds after it was
/// asked to stop. To end in an orderly way, it awaits [`cancelled`](Self::cancelled) next to its work. A
/// handler that computes checks [`cancel_reason`](Self::cancel_reason) now and then.
///
/// ```
/// use anyqueue_worker::{TaskContext, TaskError, TaskResult};
/// use std::time::Duration;
///
/// async fn render(pages: u32, task: TaskContext) -> TaskResult {
///     for page in 0..pages {
///         tokio::select! {
///             () = tokio::time::sleep(Duration::from_millis(10)) => println!("page {page} of task {}", task.id()),
///             reason = task.cancelled() => return Err(TaskError::retry(format!("stopped: {reason}"))),
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct TaskContext(Arc<Inner>);

struct Inner {
    queue: Queue,
    message: MessageData,
    partition: PartitionId,
    attempt: u32,
    /// How often the task may be retried in total.
    retries: u32,
    delivery_count: Option<u32>,
    /// When the attempt times out.
    deadline: Option<Instant>,
    stop: Stop,
    role: Role,
    successors: Mutex<Successors>,
    result: Mutex<Option<Bytes>>,
    started_at: Instant,
    progress: Mutex<Option<Arc<str>>>,
    log: Mutex<TaskLog>,
    /// The cursor that this run of a part of a work set has reached.
    cursor: Mutex<Option<String>>,
    /// Ends the task if its handler blocks its thread beyond the deadline.
    twin: Option<DeliveryTwin>,
    /// Whether the end of the task has been claimed already.
    is_ended: AtomicBool,
    /// Whether the task was found running when its handler should have been dropped.
    is_overdue: AtomicBool,
}

/// What a task is to its handler.
pub(crate) enum Role {
    /// The handler runs it alone.
    Alone,
    /// The first task of a batch: it stands for all of them where handlers are counted.
    First(BatchContext),
    /// Any other task of a batch.
    Behind,
}

impl TaskContext {
    pub(crate) fn new(
        queue: &Queue,
        delivery: &Delivery,
        (attempt, retries): (u32, u32),
        deadline: Option<Instant>,
        role: Role,
    ) -> Self {
        Self(Arc::new(Inner {
            queue: queue.clone(),
            message: delivery.message().clone(),
            partition: delivery.partition().clone(),
            attempt,
            retries,
            delivery_count: delivery.delivery_count(),
            deadline,
            stop: Stop::default(),
            role,
            successors: Mutex::default(),
            result: Mutex::default(),
            started_at: queue.clock().now(),
            progress: Mutex::default(),
            log: Mutex::default(),
            cursor: Mutex::default(),
            twin: deadline.map(|_| delivery.twin()),
            is_ended: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
        }))
    }

    /// The id of the message, the same for each attempt. Use it as a key to make a handler idempotent.
    pub fn id(&self) -> MessageId {
        self.0.message.id()
    }

    /// The message as it was pulled.
    pub fn message(&self) -> &MessageData {
        &self.0.message
    }

    /// The kind; empty if the message names none.
    pub fn kind(&self) -> &str {
        kind(&self.0.message)
    }

    /// The partition that the message was pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.0.partition
    }

    /// The number of this attempt, from 1. Runs that a shutdown or a crash interrupted do not count.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// How often the task is retried if this attempt and all later ones fail; 0 if this is the last attempt.
    /// A task that fails [permanently](crate::TaskError::permanent), or times out where timeouts are not
    /// retried, is not retried whatever this says.
    pub fn retries_left(&self) -> u32 {
        self.0.retries.saturating_sub(self.0.attempt.saturating_sub(1))
    }

    /// How often the message has been delivered, if the backend counts it.
    pub fn delivery_count(&self) -> Option<u32> {
        self.0.delivery_count
    }

    /// The failed attempts before this one.
    pub fn history(&self) -> Vec<Failure> {
        history(self.0.message.headers())
    }

    /// The queue, for instance to push further tasks.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// The clock of the worker, which a test may control.
    pub fn clock(&self) -> &Clock {
        self.0.queue.clock()
    }

    /// How much longer the attempt may take; `None` without a limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(self.clock().now()))
    }

    /// Makes a task with the trace context and the session of this one. Push it with [`queue`](Self::queue).
    ///
    /// # Errors
    /// As [`task`].
    pub fn child<T: Serialize>(&self, kind: &str, payload: &T) -> Result<MessageData> {
        let mut child = task(kind, payload)?;
        if let Some(trace) = self.0.message.headers().get(anyqueue::header::TRACEPARENT) {
            child = child.with_header(anyqueue::header::TRACEPARENT, trace.clone());
        }
        Ok(match self.0.message.session_id() {
            Some(session) => child.with_session_id(session),
            None => child,
        })
    }

    /// Makes a task with the payload, kind and options of this one and a new id, for work that repeats itself
    /// by [`then`](Self::then). Its attempts start from zero. It has the same deduplication key, and takes
    /// the key over from this task.
    pub fn repeat(&self) -> MessageData {
        let headers = successors::fresh(self.0.message.headers());
        successors::copy(&self.0.message).with_headers(headers)
    }

    /// Adds a task that is stored with the end of this one, in one step where the backend
    /// [can](anyqueue::adapter::Capabilities::successors) do that. It is stored only if the handler succeeds
    /// and the lease still holds; what a failed attempt added is discarded.
    ///
    /// ```
    /// use anyqueue_worker::{TaskContext, TaskResult};
    ///
    /// async fn order(id: u64, task: TaskContext) -> TaskResult {
    ///     task.then("invoices", task.child("invoice", &id)?)?;
    ///     task.then("mail", task.child("thanks", &id)?)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// At once, for whatever a push would refuse: see [`Queue::check_push`](anyqueue::Queue::check_push).
    /// [`Unsupported`](anyqueue::ErrorKind::Unsupported) where the backend has no successors, and
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for more than [`MAX_SUCCESSORS`].
    pub fn then(&self, partition: impl IntoPartitionId, message: MessageData) -> Result<()> {
        let partition = partition.into_partition_id()?;
        if self.0.queue.capabilities().successors.is_none() {
            return Err(Error::unsupported(
                "this backend stores no successors with the end of a task: push the message with queue() instead",
            ));
        }
        self.0.queue.check_push(&partition, &message)?;
        let mut successors = self.0.successors.lock().unwrap_or_else(PoisonError::into_inner);
        if successors.len() == MAX_SUCCESSORS {
            return Err(Error::invalid(format!(
                "a task has at most {MAX_SUCCESSORS} successors: let one of them push the others"
            )));
        }
        *successors = std::mem::take(&mut *successors).then(&partition, message)?;
        Ok(())
    }

    /// Sets the result of the task, as JSON. If the queue has a [ledger](anyqueue::QueueBuilder::ledger), the
    /// result is kept with the end of the task; [`Queue::task`](anyqueue::Queue::task) and
    /// [`Queue::wait_for`](anyqueue::Queue::wait_for) return it. The last result set counts, and only if the
    /// task succeeds in this attempt. Without a ledger, the result is checked and discarded.
    ///
    /// ```
    /// use anyqueue_worker::{TaskContext, TaskResult};
    ///
    /// async fn add(numbers: Vec<i64>, task: TaskContext) -> TaskResult {
    ///     task.set_result(numbers.iter().sum::<i64>())?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) if the value cannot be written as JSON; otherwise
    /// as [`set_result_bytes`](Self::set_result_bytes).
    pub fn set_result(&self, result: impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(&result)
            .map_err(|error| Error::invalid("the result cannot be written as JSON").with_source(error))?;
        self.set_result_bytes(bytes)
    }

    /// Sets the result of the task as raw bytes; otherwise like [`set_result`](Self::set_result).
    ///
    /// # Errors
    /// [`TooLarge`](anyqueue::ErrorKind::TooLarge) beyond [`MAX_RESULT_BYTES`]. An earlier result is kept,
    /// and the task continues.
    pub fn set_result_bytes(&self, result: impl Into<Bytes>) -> Result<()> {
        let result = result.into();
        if result.len() > MAX_RESULT_BYTES {
            let text = format!(
                "a result of {} bytes: at most {MAX_RESULT_BYTES} are kept; store it elsewhere and keep where",
                result.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        *self.0.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        Ok(())
    }

    /// When this attempt began, on the clock of the [queue](Self::queue).
    pub fn started_at(&self) -> Instant {
        self.0.started_at
    }

    /// Reports how far the task has come, in words or numbers, to whoever looks at the worker: see the crate
    /// `anyqueue-control`. If the queue has a [ledger](anyqueue::QueueBuilder::ledger), the last text is also
    /// kept with the end of the task, and [`Queue::task`](anyqueue::Queue::task) returns it; not that of an
    /// attempt that is retried, or whose task becomes a dead letter. Cheap: nothing is sent. A text of more
    /// than [`MAX_PROGRESS_BYTES`] is cut.
    pub fn set_progress(&self, progress: impl AsRef<str>) {
        let progress = progress.as_ref();
        let mut end = progress.len().min(MAX_PROGRESS_BYTES);
        while !progress.is_char_boundary(end) {
            end -= 1;
        }
        let kept = progress.get(..end).map(Arc::from);
        *self.0.progress.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    /// The last text passed to [`set_progress`](Self::set_progress) in this attempt.
    pub fn progress(&self) -> Option<Arc<str>> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a note for whoever looks at the task later. If the queue has a
    /// [ledger](anyqueue::QueueBuilder::ledger), the notes are kept with the end of the task, and
    /// [`Queue::task`](anyqueue::Queue::task) returns them with the time since the attempt began. Cheap:
    /// nothing is sent. Each line of the text is a note; the last notes are kept, at most
    /// [`MAX_LOG_BYTES`](anyqueue::MAX_LOG_BYTES) in total. Notes of an attempt that is retried, or whose
    /// task becomes a dead letter, are not kept.
    ///
    /// ```
    /// use anyqueue_worker::{TaskContext, TaskResult};
    ///
    /// async fn import(path: String, task: TaskContext) -> TaskResult {
    ///     task.log(format!("reading {path}"));
    ///     Ok(())
    /// }
    /// ```
    pub fn log(&self, text: impl AsRef<str>) {
        let at = self.clock().now().saturating_duration_since(self.0.started_at);
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner).add(at, text.as_ref());
    }

    pub(crate) fn log_text(&self) -> Option<String> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    /// Notes that the message is not done: its next run starts after this cursor.
    pub(crate) fn go_on_after(&self, cursor: String) {
        *self.0.cursor.lock().unwrap_or_else(PoisonError::into_inner) = Some(cursor);
    }

    pub(crate) fn cursor(&self) -> Option<String> {
        self.0.cursor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn take_successors(&self) -> Successors {
        std::mem::take(&mut *self.0.successors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_result(&self) -> Option<Bytes> {
        self.0.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why the handler should stop, if it should. The first reason is kept.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.0.stop.reason()
    }

    /// Waits until the handler should stop, and returns why.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) -> CancelReason {
        self.0.stop.asked().await
    }

    /// A token that is cancelled when the handler should stop, for code that takes one. Cancelling it
    /// yourself has no effect on the task.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.stop.token().child_token()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Asks the handler to stop. The first reason is kept.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        self.0.stop.ask(reason, self.clock());
    }

    /// Asks a handler that has run for too long to stop, together with its batch if it is part of one.
    pub(crate) fn time_out(&self) {
        if let Role::First(batch) = &self.0.role {
            batch.cancel(CancelReason::Timeout);
        }
        self.cancel(CancelReason::Timeout);
    }

    /// When the handler was asked to stop.
    pub(crate) fn asked_to_stop(&self) -> Option<Instant> {
        self.0.stop.asked_at()
    }

    /// Claims the end of the task. Returns whether the caller, and nobody else, may end it.
    pub(crate) fn claim_end(&self) -> bool {
        !self.0.is_ended.swap(true, Ordering::SeqCst)
    }

    /// Notes that the handler should have been dropped by now. Returns whether that was noted before: a
    /// handler that only woke late, as after a pause of the machine, is dropped in between.
    pub(crate) fn is_overdue_still(&self) -> bool {
        self.0.is_overdue.swap(true, Ordering::SeqCst)
    }

    /// A second handle to the delivery, if the task has a deadline and nobody has claimed its end.
    pub(crate) fn twin(&self) -> Option<&DeliveryTwin> {
        self.0.twin.as_ref().filter(|_| !self.0.is_ended.load(Ordering::SeqCst))
    }

    /// Since when the handler should have stopped. The first task of a batch returns this for all of them.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        let asked = match &self.0.role {
            Role::Alone => self.0.stop.asked_at(),
            Role::First(batch) => batch.asked_at(),
            Role::Behind => return None,
        };
        let overdue = self.0.deadline.filter(|deadline| *deadline <= self.clock().now());
        asked.or(overdue)
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("partition", &self.0.partition)
            .field("message", &self.0.message)
            .field("attempt", &self.0.attempt)
            .field("cancel_reason", &self.cancel_reason())
            .finish_non_exhaustive()
    }
}

/// The kind of a message; empty if it names none.
pub(crate) fn kind(message: &MessageData) -> &str {
    message.headers().get(crate::message::header::KIND).map_or("", String::as_str)
}
