//! What a handler knows of its task, and how it learns that it should stop.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Clock, MessageData, MessageId, PartitionId, Queue, QueueMessageHandler, Result};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::message::{Failure, history, task};

/// Why a handler is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// It has taken longer than it may.
    Timeout,
    /// The message is no longer this process's: somebody else may be working on it. Nothing that the handler does now is settled.
    LeaseLost,
    /// Somebody [requested it](anyqueue::Queue::request_cancel).
    CancelRequested,
    /// The worker is shutting down. The task goes back, and no attempt is counted.
    Shutdown,
}

impl CancelReason {
    const ALL: [Self; 4] = [Self::Timeout, Self::LeaseLost, Self::CancelRequested, Self::Shutdown];

    /// The name used in logs and metrics, in `snake_case`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::LeaseLost => "lease_lost",
            Self::CancelRequested => "cancel_requested",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A task in its handler's hands: what was pushed, which attempt this is, and whether to stop. Cheap to clone.
///
/// A handler that awaits needs nothing of this to be stopped: its future is dropped some seconds after it was asked. One that
/// wants to end in order awaits [`cancelled`](Self::cancelled) beside its work; one that computes asks
/// [`cancel_reason`](Self::cancel_reason) now and then.
#[derive(Clone)]
pub struct TaskContext(Arc<Inner>);

struct Inner {
    queue: Queue,
    message: MessageData,
    partition: PartitionId,
    attempt: u32,
    delivery_count: Option<u32>,
    /// When the attempt is timed out.
    deadline: Option<Instant>,
    /// The reason as its position in [`CancelReason::ALL`] + 1; 0 is none.
    reason: AtomicU8,
    /// Made when somebody first asks: most handlers never do.
    token: OnceLock<CancellationToken>,
    asked_at: Mutex<Option<Instant>>,
}

impl TaskContext {
    pub(crate) fn new(
        queue: &Queue,
        delivery: &QueueMessageHandler,
        attempt: u32,
        deadline: Option<Instant>,
    ) -> Self {
        Self(Arc::new(Inner {
            queue: queue.clone(),
            message: delivery.message().clone(),
            partition: delivery.partition().clone(),
            attempt,
            delivery_count: delivery.delivery_count(),
            deadline,
            reason: AtomicU8::new(0),
            token: OnceLock::new(),
            asked_at: Mutex::new(None),
        }))
    }

    /// The message's identity: the same for each attempt. Key effects by it to make a handler idempotent.
    pub fn id(&self) -> MessageId {
        self.0.message.id()
    }

    /// The message as it was pulled.
    pub fn message(&self) -> &MessageData {
        &self.0.message
    }

    /// What routed the task to its handler; empty if the message names no kind.
    pub fn kind(&self) -> &str {
        kind(&self.0.message)
    }

    /// Where it was pulled from.
    pub fn partition(&self) -> &PartitionId {
        &self.0.partition
    }

    /// Which attempt this is, from 1. Runs that a shutdown or a crash interrupted are not counted.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// How often it was delivered, where the backend counts.
    pub fn delivery_count(&self) -> Option<u32> {
        self.0.delivery_count
    }

    /// The failed attempts before this one.
    pub fn history(&self) -> Vec<Failure> {
        history(self.0.message.headers())
    }

    /// The queue: to push further tasks, for instance.
    pub fn queue(&self) -> &Queue {
        &self.0.queue
    }

    /// The clock of the worker, which a test may turn.
    pub fn clock(&self) -> &Clock {
        self.0.queue.clock()
    }

    /// How long the attempt may still take; `None` if nothing limits it.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(self.clock().now()))
    }

    /// A task that belongs to this one's trace and session. Push it with [`queue`](Self::queue).
    ///
    /// # Errors
    /// As of [`task`].
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

    /// Whether the handler is asked to stop, and why. The first reason stays.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        let position = self.0.reason.load(Ordering::SeqCst).checked_sub(1)?;
        CancelReason::ALL.get(usize::from(position)).copied()
    }

    /// Waits until the handler is asked to stop, and returns why. Dropping the future is harmless.
    pub async fn cancelled(&self) -> CancelReason {
        loop {
            if let Some(reason) = self.cancel_reason() {
                return reason;
            }
            self.token().cancelled().await;
        }
    }

    /// Fires when the handler is asked to stop: for what takes a token.
    pub fn token(&self) -> &CancellationToken {
        let token = self.0.token.get_or_init(CancellationToken::new);
        // The reason may have come before the token was there; `cancel` sets it before it looks for the token.
        if self.0.reason.load(Ordering::SeqCst) != 0 {
            token.cancel();
        }
        token
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Asks the handler to stop.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        let position = CancelReason::ALL.iter().position(|known| *known == reason).unwrap_or(0);
        let code = u8::try_from(position + 1).unwrap_or(u8::MAX);
        if self.0.reason.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            *self.0.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock().now());
        }
        if let Some(token) = self.0.token.get() {
            token.cancel();
        }
    }

    /// Since when the handler should have stopped.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        let asked = *self.0.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
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

/// What routes a message; empty if it does not say.
pub(crate) fn kind(message: &MessageData) -> &str {
    message.headers().get(crate::message::header::KIND).map_or("", String::as_str)
}
