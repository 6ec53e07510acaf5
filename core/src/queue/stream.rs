//! The push-style face over pull: a stream bounded by what its consumer holds.
//!
//! Its pump pulls when there is room. While the queue has messages, though, most room is made by settlements, and where
//! the backend settles and pulls in one call those bring the next deliveries with them: see [`Feed`].

mod pump;
mod refill;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::refill::Turns;
use super::handler::QueueMessageHandler;
use super::pull::Terms;
use super::{Queue, guard};
use crate::error::{Error, Result};
use crate::partition::{IntoPartitionId, PartitionId};

/// The most batches that wait for a consumer that does not look; the pump then waits too.
const MAX_BATCHES: usize = 1024;

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
    /// The most deliveries to hold at once: those waiting in the stream, and those handed out and neither settled nor
    /// dropped. Default 64.
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
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name, a window of 0 or a lease out of range.
    pub fn build(self) -> Result<HandlerStream> {
        let partition = self.partition?;
        if self.window == 0 {
            return Err(Error::invalid("the window is 0: a stream that may hold nothing delivers nothing"));
        }
        let shared = self.queue.0.clone();
        let lease = self.lease.unwrap_or(shared.options.of(partition.name()).lease);
        guard::lease(lease, &shared.capabilities)?;
        let window = self.window.min(shared.options.max_held);
        // Each batch holds room in the window, so that one more place is enough for an error among them.
        let (batches, incoming) = mpsc::channel(window.saturating_add(1).min(MAX_BATCHES));
        let terms = Terms { partition, lease, keep_alive: self.keep_alive };
        let feed = Arc::new(Feed::new(self.queue, terms, window, &batches));
        let stop = CancellationToken::new();
        let (pump, stopped) = (pump::run(feed.clone(), batches), stop.clone());
        shared.exec.spawn(async move {
            // A stream that is dropped before this task's first turn pulls nothing.
            tokio::select! { biased; () = stopped.cancelled() => {}, () = pump => {} }
        });
        Ok(HandlerStream { incoming, buffer: VecDeque::new(), feed, _stop: stop.drop_guard() })
    }
}

/// Deliveries of a partition. Errors of the server are items too; the stream goes on after them, with growing pauses, and
/// ends only when the queue is closed. Dropping it gives back what nobody took.
#[derive(Debug)]
pub struct HandlerStream {
    incoming: mpsc::Receiver<Batch>,
    buffer: VecDeque<QueueMessageHandler>,
    feed: Arc<Feed>,
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
                    self.feed.window.hungry();
                    return Poll::Pending;
                }
            }
        }
    }
}

pub(crate) type Batch = Result<Vec<QueueMessageHandler>>;

/// Where the deliveries of a stream, or of [`Refills`](super::Refills), come from and go to.
#[derive(Debug)]
pub(crate) struct Feed {
    queue: Queue,
    terms: Terms,
    /// Whether settlements may bring deliveries.
    open: AtomicBool,
    window: Window,
    turns: Turns,
    /// Ends with the pump, whatever handlers live on.
    batches: mpsc::WeakSender<Batch>,
}

impl Feed {
    pub(crate) fn new(queue: Queue, terms: Terms, window: usize, batches: &mpsc::Sender<Batch>) -> Self {
        Self {
            queue,
            terms,
            open: AtomicBool::new(true),
            window: Window::new(window),
            turns: Turns::default(),
            batches: batches.downgrade(),
        }
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Room for a delivery that came by another way.
    pub(crate) fn slot(self: Arc<Self>) -> WindowSlot {
        self.window.used.fetch_add(1, Ordering::SeqCst);
        WindowSlot::new(self)
    }

    fn batch(&self, handlers: Vec<QueueMessageHandler>, room: Vec<WindowSlot>) -> Vec<QueueMessageHandler> {
        // A handler without a slot, should the server have answered too many, is dropped: given back.
        let batch: Vec<_> =
            handlers.into_iter().zip(room).map(|(handler, slot)| handler.with_window(slot)).collect();
        // A consumer that gets nothing (all had expired, say) is as hungry as before.
        if !batch.is_empty() {
            self.window.fed();
        }
        batch
    }

    /// All the room there is, once a quarter of the window is free, or any at all for a consumer that has nothing left and
    /// that no other pull is under way for.
    async fn room(self: &Arc<Self>, alone: bool) -> Vec<WindowSlot> {
        let free = self.window.take_free(alone).await;
        (0..free).map(|_| WindowSlot::new(self.clone())).collect()
    }
}

/// How much of a stream's window is free.
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

    /// Only the pump takes of it; others hand on what they have.
    async fn take_free(&self, alone: bool) -> usize {
        loop {
            let free = self.size - self.used.load(Ordering::SeqCst);
            if free > 0 && (free >= self.size.div_ceil(4) || alone && self.hungry.load(Ordering::SeqCst)) {
                self.used.fetch_add(free, Ordering::SeqCst);
                return free;
            }
            // A change since the look above is remembered, so that it is not slept through.
            self.changed.notified().await;
        }
    }
}

/// Room for one delivery in a stream's window, shared by its handler and its settlement under way.
#[derive(Debug)]
pub(crate) struct WindowSlot {
    feed: Arc<Feed>,
    passed_on: AtomicBool,
}

impl WindowSlot {
    fn new(feed: Arc<Feed>) -> Self {
        Self { feed, passed_on: AtomicBool::new(false) }
    }

    pub(crate) fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// The same room for another delivery; once.
    pub(crate) fn pass_on(&self) -> Option<Self> {
        (!self.passed_on.swap(true, Ordering::SeqCst)).then(|| Self::new(self.feed.clone()))
    }
}

impl Drop for WindowSlot {
    fn drop(&mut self) {
        if !*self.passed_on.get_mut() {
            self.feed.window.used.fetch_sub(1, Ordering::SeqCst);
            self.feed.window.changed.notify_one();
        }
    }
}
