//! A push-style interface over pull: a stream bounded by what its consumer holds.
//!
//! Its pump pulls when there is room. While the queue has messages, though, most room is freed by
//! settlements, and where the backend settles and pulls in one call, those bring the next deliveries: see
//! [`Feed`].

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::delivery::{Delivery, HandlerFeed};
use super::feed::{self, Batch, Feed, Terms};
use super::handle::Queue;
use crate::error::{Error, Result};
use crate::partition::{IntoPartitionId, PartitionId};

/// How many batches may wait for a consumer that does not poll; the pump then waits too.
const MAX_BATCHES: usize = 1024;

/// Builds a stream of deliveries; made by [`Queue::stream`].
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
    /// Sets up a stream of a partition's deliveries that never holds more than its window.
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
    /// Sets how many deliveries to hold at once: those waiting in the stream, and those handed out and
    /// neither settled nor dropped. Default: 64.
    pub fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// Sets a lease other than the partition's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets whether the heartbeat renews the leases. Default: yes.
    pub fn keep_alive(mut self, keep_alive: bool) -> Self {
        self.keep_alive = keep_alive;
        self
    }

    /// Builds the stream and starts pulling, in a task of its own.
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
        shared.capabilities.lease.check(lease)?;
        let window = self.window.min(shared.options.max_held);
        // Each batch holds room in the window, so that one more place is enough for an error among them.
        let (batches, incoming) = mpsc::channel(window.saturating_add(1).min(MAX_BATCHES));
        let terms = Terms { partition, lease, keep_alive: self.keep_alive };
        let feed = Arc::new(Feed::new(self.queue, terms, window, &batches));
        let stop = CancellationToken::new();
        let (pump, stopped) = (feed::run(feed.clone(), batches), stop.clone());
        shared.exec.spawn(async move {
            // A stream that is dropped before this task's first turn pulls nothing.
            tokio::select! { biased; () = stopped.cancelled() => {}, () = pump => {} }
        });
        Ok(HandlerStream { incoming, buffer: VecDeque::new(), feed, _stop: stop.drop_guard() })
    }
}

/// A stream of a partition's deliveries. Server errors are items too; the stream goes on after them, with
/// growing pauses. It ends when the queue is closed, and after an
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) error that no repetition can help. Dropping it releases
/// the deliveries that nobody has taken.
#[derive(Debug)]
pub struct HandlerStream {
    incoming: mpsc::Receiver<Batch<Delivery>>,
    buffer: VecDeque<Delivery>,
    feed: Arc<HandlerFeed>,
    _stop: DropGuard,
}

impl Stream for HandlerStream {
    type Item = Result<Delivery>;

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
                    self.feed.starved();
                    return Poll::Pending;
                }
            }
        }
    }
}
