//! Deliveries that settlements bring, for callers that decide themselves when to pull.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::delivery::{Delivery, HandlerFeed};
use super::feed::{Batch, Feed, Terms};
use super::handle::Queue;
use crate::error::Result;
use crate::partition::IntoPartitionId;

/// How many batches may wait to be taken. While there are this many, settlements bring no more.
const MAX_BATCHES: usize = 16;

impl Queue {
    /// Sets up deliveries that arrive with settlements, for programs with their own pull loop. The deliveries
    /// have the given lease, or else the partition's. Nothing arrives until this is
    /// [opened](SettlePulls::set_open).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed};
    /// # let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// # for mail in ["first", "second"] { queue.push("mail", MessageData::new(mail)).await?; }
    /// let mut settle_pulls = queue.settle_pulls("mail", None)?;
    /// settle_pulls.set_open(true);
    /// for delivery in queue.pull("mail").await? {
    ///     settle_pulls.bind(delivery).settle(Processed).await?;
    /// }
    /// // The memory queue settles and pulls in one call, so the settlement has brought the next one.
    /// assert_eq!(settle_pulls.next().await[0].payload(), b"second");
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name or a lease out of range.
    pub fn settle_pulls(
        &self,
        partition: impl IntoPartitionId,
        lease: Option<Duration>,
    ) -> Result<SettlePulls> {
        let partition = partition.into_partition_id()?;
        let lease = lease.unwrap_or(self.0.options.of(partition.name()).lease);
        self.0.capabilities.lease.check(lease)?;
        let (batches, incoming) = mpsc::channel(MAX_BATCHES);
        let terms = Terms { partition, lease, keep_alive: true };
        let feed = Arc::new(Feed::new(self.clone(), terms, usize::MAX, &batches));
        feed.set_open(false);
        Ok(SettlePulls { incoming, feed, _batches: batches })
    }
}

/// Deliveries of a partition that arrive with settlements, made by [`Queue::settle_pulls`].
///
/// Where the backend [settles and pulls in one call](crate::adapter::Capabilities::exchange), settling a
/// delivery that is [bound](Self::bind) brings another delivery in its place as long as this is open: half
/// the calls, and half the waiting. It does not replace pulls: a settlement may bring nothing, and on a
/// backend without such calls none ever does.
///
/// Dropping this releases the deliveries that nobody has taken.
#[derive(Debug)]
pub struct SettlePulls {
    incoming: mpsc::Receiver<Batch<Delivery>>,
    feed: Arc<HandlerFeed>,
    /// Keeps the channel open, to which the feed has only a weak handle.
    _batches: mpsc::Sender<Batch<Delivery>>,
}

impl SettlePulls {
    /// Sets whether settlements bring deliveries. Those that are under way when this is closed still arrive.
    pub fn set_open(&self, open: bool) {
        self.feed.set_open(open);
    }

    /// Makes the settlement of this delivery bring the next one. Deliveries that come from this handle are
    /// bound already.
    pub fn bind(&self, delivery: Delivery) -> Delivery {
        delivery.with_window(self.feed.clone().slot())
    }

    /// Returns the next deliveries, at least one; waits until some arrive.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Vec<Delivery> {
        match self.incoming.recv().await {
            Some(Ok(deliveries)) => deliveries,
            // Only a stream's own pulls send errors, and the channel is kept open.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Takes the deliveries that have arrived, without waiting.
    pub fn take(&mut self) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while let Ok(Ok(deliveries)) = self.incoming.try_recv() {
            taken.extend(deliveries);
        }
        taken
    }
}
