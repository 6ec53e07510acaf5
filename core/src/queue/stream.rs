//! The push-style face over pull: a stream bounded by what its consumer holds.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handler::QueueMessageHandler;
use super::{Queue, guard};
use crate::error::{Error, ErrorKind, Result, RetryClass};
use crate::partition::{IntoPartitionId, PartitionId};

/// How long each pull of a stream waits. It is woken by pushes; this bounds one call.
const POLL_WAIT: Duration = Duration::from_secs(20);

/// The longest pause of a stream after errors, in a row of which it doubles.
const MAX_ERROR_PAUSE: Duration = Duration::from_secs(5);

/// A stream being set up by [`Queue::stream`].
#[derive(Debug)]
#[must_use = "a stream does nothing until it is built and polled"]
pub struct StreamBuilder {
    queue: Queue,
    partition: Result<PartitionId>,
    window: usize,
    lease: Option<Duration>,
    keep_alive: bool,
}

impl Queue {
    /// Deliveries of a partition as a stream that never holds more than its window.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed};
    /// # let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// # queue.push("mail", MessageData::new(b"hello")).await?;
    /// use futures_util::StreamExt;
    /// let mut mails = queue.stream("mail").window(8).build()?;
    /// while let Some(delivery) = mails.next().await {
    ///     let mut delivery = delivery?;
    ///     delivery.settle(Processed).await?;
    /// #   break;
    /// }
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    pub fn stream(&self, partition: impl IntoPartitionId) -> StreamBuilder {
        StreamBuilder {
            queue: self.clone(),
            partition: partition.into_partition_id(),
            window: 64,
            lease: None,
            keep_alive: true,
        }
    }
}

impl StreamBuilder {
    /// The most deliveries to hold at once: those waiting in the stream and those whose handlers live. Default 64.
    pub fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// Another lease than the partition's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Whether the heartbeat renews the leases. Default: yes.
    pub fn keep_alive(mut self, keep_alive: bool) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// Starts pulling, in a task of its own.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a bad name, a window of 0 or a lease out of range.
    pub fn build(self) -> Result<HandlerStream> {
        let partition = self.partition?;
        if self.window == 0 {
            return Err(Error::invalid("the window is 0: a stream that may hold nothing delivers nothing"));
        }
        let shared = self.queue.0.clone();
        let lease = self.lease.unwrap_or(shared.options.of(partition.name()).lease);
        guard::lease(lease, &shared.capabilities)?;
        let window = self.window.min(shared.options.max_held);
        let (batches, incoming) = mpsc::channel(1);
        let window = Arc::new(Window::new(window));
        let stop = CancellationToken::new();
        let pump = Pump {
            queue: self.queue,
            partition,
            lease,
            keep_alive: self.keep_alive,
            window: window.clone(),
            batches,
        };
        let stopped = stop.clone();
        shared.exec.spawn(async move {
            tokio::select! { () = pump.run() => {}, () = stopped.cancelled() => {} }
        });
        Ok(HandlerStream { incoming, buffer: VecDeque::new(), window, _stop: stop.drop_guard() })
    }
}

/// Deliveries of a partition. Errors of the server are items too; the stream goes on after them, with growing pauses, and
/// ends only when the queue is closed. Dropping it gives back what nobody took.
#[derive(Debug)]
pub struct HandlerStream {
    incoming: mpsc::Receiver<Result<Vec<QueueMessageHandler>>>,
    buffer: VecDeque<QueueMessageHandler>,
    window: Arc<Window>,
    _stop: DropGuard,
}

impl Stream for HandlerStream {
    type Item = Result<QueueMessageHandler>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(handler) = self.buffer.pop_front() {
                return Poll::Ready(Some(Ok(handler)));
            }
            match self.incoming.poll_recv(cx) {
                Poll::Ready(Some(Ok(batch))) => self.buffer = batch.into(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.window.hungry();
                    return Poll::Pending;
                }
            }
        }
    }
}

/// The task that pulls for a stream.
struct Pump {
    queue: Queue,
    partition: PartitionId,
    lease: Duration,
    keep_alive: bool,
    window: Arc<Window>,
    batches: mpsc::Sender<Result<Vec<QueueMessageHandler>>>,
}

impl Pump {
    async fn run(self) {
        let mut pause = Duration::from_millis(50);
        loop {
            let room = self.window.room().await;
            let pull = self
                .queue
                .pull(&self.partition)
                .max(room.len())
                .wait(POLL_WAIT)
                .lease(self.lease)
                .keep_alive(self.keep_alive);
            match pull.await {
                Ok(handlers) => {
                    pause = Duration::from_millis(50);
                    if handlers.is_empty() {
                        continue;
                    }
                    self.window.fed();
                    let batch =
                        handlers.into_iter().zip(room).map(|(handler, slot)| handler.with_window(slot));
                    if self.batches.send(Ok(batch.collect())).await.is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) => {
                    drop(room);
                    let last = error.retry() == RetryClass::Never && error.kind() == ErrorKind::InvalidInput;
                    if self.batches.send(Err(error)).await.is_err() || last {
                        return;
                    }
                    self.queue.0.caller.clock.sleep(pause).await;
                    pause = (pause * 2).min(MAX_ERROR_PAUSE);
                }
            }
        }
    }
}

/// How much of a stream's window is free. Only its pump takes of it.
///
/// Not a semaphore: the pump waits for a quarter *or*, when the consumer has nothing left, for any room at all, and a fair
/// semaphore would let the first wish block the second.
#[derive(Debug)]
struct Window {
    size: usize,
    used: AtomicUsize,
    /// The consumer waits, and has nothing left.
    hungry: AtomicBool,
    changed: Notify,
}

/// Room for one delivery.
#[derive(Debug)]
pub(crate) struct WindowSlot(Arc<Window>);

impl Window {
    fn new(size: usize) -> Self {
        Self { size, used: AtomicUsize::new(0), hungry: AtomicBool::new(false), changed: Notify::new() }
    }

    fn hungry(&self) {
        self.hungry.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    fn fed(&self) {
        self.hungry.store(false, Ordering::SeqCst);
    }

    /// All the room there is, once a quarter of the window is free, or any at all for a consumer that has nothing left.
    async fn room(self: &Arc<Self>) -> Vec<WindowSlot> {
        loop {
            let free = self.size - self.used.load(Ordering::SeqCst);
            if free > 0 && (free >= self.size.div_ceil(4) || self.hungry.load(Ordering::SeqCst)) {
                self.used.fetch_add(free, Ordering::SeqCst);
                return (0..free).map(|_| WindowSlot(self.clone())).collect();
            }
            // A change since the look above is remembered, so that it is not slept through.
            self.changed.notified().await;
        }
    }
}

impl Drop for WindowSlot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}
