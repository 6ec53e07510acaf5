//! Credit: consumers, how many messages the server may send them, and how many are known to be ready.

use std::time::Duration;

use anyqueue::Result;
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;

use super::{ConsumerChannel, DeliveryStream, Subscription};
use crate::adaptive_prefetch::AdaptivePrefetch;
use crate::error::{Right, classify};
use crate::link::within;
use crate::topology::count;

/// While messages are on their way, the pause between two is never this long, unless the machine is busy.
const QUIET: Duration = Duration::from_millis(3);
/// How long messages that the server counts as ready may take to arrive.
const OVERDUE: Duration = Duration::from_secs(2);
/// The most consumers of one level at a time. If more credit is needed, a further consumer provides it.
const CONSUMERS: usize = 8;

impl ConsumerChannel {
    /// Returns the number of ready messages in each of these levels, as counted by the server.
    pub(crate) async fn counts(&mut self, levels: &[u8]) -> Result<Vec<usize>> {
        let queues: Vec<_> = levels.iter().map(|level| self.queue(*level)).collect();
        let counts = join_all(queues.into_iter().map(|queue| count(&self.channel, queue)));
        let counts =
            within(self.limit, async { counts.await.into_iter().collect::<Result<Vec<_>>>() }).await?;
        if let [only] = counts.as_slice() {
            self.backlog = *only;
        }
        Ok(counts)
    }

    /// Takes this many messages off the known backlog. Returns `false` if it is not known to have so many.
    pub(crate) fn take_from_backlog(&mut self, many: usize) -> bool {
        let enough = self.backlog >= many && self.requeued.is_empty();
        if enough {
            self.backlog -= many;
        }
        enough
    }

    /// Whether the server's count of this level may still miss a requeued message.
    pub(crate) fn count_may_lag(&self, level: u8) -> bool {
        self.requeued.contains(&level)
    }

    /// Grants credit for this many messages of a level. Waits until they have arrived, or others have got
    /// them.
    pub(crate) async fn fetch(&mut self, level: u8, many: usize) -> Result<()> {
        let before = self.buffered.len();
        let lagged = self.count_may_lag(level);
        self.grant(level, many).await?;
        if lagged {
            self.catch_up(level).await?;
            return Ok(());
        }
        let overdue = tokio::time::Instant::now() + OVERDUE;
        while self.buffered.len() < before + many {
            if let Ok(come) = tokio::time::timeout(QUIET, self.next()).await {
                come?;
            } else {
                let left = self.catch_up(level).await?;
                if left == 0 || tokio::time::Instant::now() > overdue {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Raises the credit of a level to this many messages in total.
    pub(crate) async fn grant(&mut self, level: u8, many: usize) -> Result<()> {
        let missing = many.saturating_sub(self.credit(level));
        let room = self.acks_for_level(level);
        if missing <= room.len() {
            return self.acknowledge(room.get(..missing).unwrap_or(&room));
        }
        if self.consumers(level) < CONSUMERS {
            self.acknowledge(&room)?;
            return self.consume(level, missing - room.len()).await;
        }
        // One consumer with all the credit replaces many small ones.
        self.cancel(level)?;
        self.consume(level, many).await
    }

    /// Whether the credit can be raised to this many messages while some are on their way. If not, consumers
    /// would have to be cancelled, and the messages that they were sent would come in addition.
    pub(crate) fn can_add(&self, level: u8, many: usize) -> bool {
        let missing = many.saturating_sub(self.credit(level));
        missing <= self.acks_for_level(level).len() || self.consumers(level) < CONSUMERS
    }

    fn consumers(&self, level: u8) -> usize {
        self.subscriptions.values().filter(|subscription| subscription.level == level).count()
    }

    /// Queries the queue, then the channel. Once the channel answers, every message that the queue had sent
    /// before its own answer has arrived. Returns how many messages are still ready.
    pub(crate) fn barrier(&mut self, level: u8) -> impl Future<Output = Result<usize>> + Send + use<> {
        let (queue, prefetch) = (self.queue(level), self.qos_prefetch.unwrap_or(1));
        self.qos_prefetch = Some(prefetch);
        let (channel, limit) = (self.channel.clone(), self.limit);
        let both = async move {
            // One after the other, since a channel answers a request at once, even before messages that the
            // queue has already sent it.
            let left = count(&channel, queue).await?;
            let answered = channel.basic_qos(prefetch, BasicQosOptions::default()).await;
            answered.map(|()| left).map_err(classify)
        };
        async move { within(limit, both).await }
    }

    /// Receives everything that the queue has sent so far. Returns how many messages are still ready.
    pub(crate) async fn catch_up(&mut self, level: u8) -> Result<usize> {
        let left = self.barrier(level).await?;
        self.take_in()?;
        Ok(left)
    }

    /// Makes sure that a level has a consumer with credit. A new one gets as much as `adaptive_prefetch`
    /// allows.
    pub(crate) async fn ensure_consumer(
        &mut self,
        level: u8,
        adaptive_prefetch: &mut AdaptivePrefetch,
    ) -> Result<()> {
        if self.credit(level) == 0 && self.buffered.is_empty() {
            self.flush_acks()?;
        }
        // All messages of the consumer may be with slow handlers, in which case waiting pulls need another
        // consumer.
        if self.credit(level) == 0 && self.buffered.is_empty() {
            self.cancel(level)?;
            self.consume(level, adaptive_prefetch.next_credit()).await
        } else {
            Ok(())
        }
    }

    /// Starts a further consumer with this prefetch.
    async fn consume(&mut self, level: u8, prefetch: usize) -> Result<()> {
        let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
        self.next_key += 1;
        let (key, consumer_tag, queue) =
            (self.next_key, format!("{level}-{}", self.next_key), self.queue(level));
        let channel = self.channel.clone();
        let is_set = self.qos_prefetch == Some(prefetch);
        let consume = async {
            let qos = async {
                if is_set { Ok(()) } else { channel.basic_qos(prefetch, BasicQosOptions::default()).await }
            };
            let options = BasicConsumeOptions::default();
            let consume = channel.basic_consume(
                queue.into(),
                consumer_tag.as_str().into(),
                options,
                FieldTable::default(),
            );
            let (qos, consumer) = join(qos, consume).await;
            qos.and(consumer).map_err(|error| Right::Read.classify(error))
        };
        let messages = within(self.limit, consume).await?;
        self.qos_prefetch = Some(prefetch);
        self.requeued.remove(&level);
        self.streams.push(DeliveryStream { key, level, messages });
        self.subscriptions
            .insert(key, Subscription { level, consumer_tag, prefetch: usize::from(prefetch), unacked: 0 });
        Ok(())
    }

    /// Cancels a level's consumers without waiting for the server's confirmation. Held messages stay held,
    /// and those on their way still arrive.
    pub(crate) fn cancel(&mut self, level: u8) -> Result<()> {
        let of_level = self.subscriptions.iter().filter(|(_, subscription)| subscription.level == level);
        let keys: Vec<u64> = of_level.map(|(key, _)| *key).collect();
        keys.iter().try_for_each(|key| self.cancel_one(*key))?;
        // Acknowledging these deliveries frees no credit any more, so it need not wait.
        if keys.is_empty() { Ok(()) } else { self.flush_free_acks() }
    }

    /// Cancels one consumer.
    pub(super) fn cancel_one(&mut self, key: u64) -> Result<()> {
        let Some(subscription) = self.subscriptions.remove(&key) else { return Ok(()) };
        let cancel =
            self.channel.basic_cancel(subscription.consumer_tag.into(), BasicCancelOptions::default());
        cancel.now_or_never().transpose().map(drop).map_err(classify)
    }

    /// Cancels consumers, and waits until everything they were sent has arrived.
    pub(crate) async fn cancel_and_drain(&mut self, levels: &[u8]) -> Result<()> {
        levels.iter().try_for_each(|level| self.cancel(*level))?;
        let limit = self.limit;
        let ended = async {
            while self.streams.iter().any(|stream| levels.contains(&stream.level)) {
                self.next_or_end().await?;
            }
            Ok(())
        };
        within(limit, ended).await
    }
}
