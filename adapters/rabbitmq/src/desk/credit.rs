//! How many messages the server may hand over: consumers, what they may be sent, and what is known to be ready.

use std::time::Duration;

use anyqueue::Result;
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;

use super::{Desk, Source, Standing};
use crate::error::{Right, classify};
use crate::link::within;
use crate::stock::Stock;
use crate::topology::count;

/// Between two messages that are on their way it is never quiet for so long, unless the machine is busy.
const QUIET: Duration = Duration::from_millis(3);
/// How long what the server says is ready may take to come.
const OVERDUE: Duration = Duration::from_secs(2);
/// Consumers of one level at once: when what is wanted grows, each is beside those before.
const CONSUMERS: usize = 8;

impl Desk {
    /// Ready messages of each of these levels, as the server counts them.
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

    /// Takes so many off the backlog, if it is known to be as large.
    pub(crate) fn draw(&mut self, many: usize) -> bool {
        let enough = self.backlog >= many && self.returned.is_empty();
        if enough {
            self.backlog -= many;
        }
        enough
    }

    /// Whether counts of this level may lag behind what was returned.
    pub(crate) fn lags(&self, level: u8) -> bool {
        self.returned.contains(&level)
    }

    /// Lets the server send so many messages of a level, and waits until they have come, or others have got them.
    pub(crate) async fn bring(&mut self, level: u8, many: usize) -> Result<()> {
        let before = self.spare.len();
        let lagged = self.lags(level);
        self.offer(level, many).await?;
        if lagged {
            self.catch_up(level).await?;
            return Ok(());
        }
        let overdue = tokio::time::Instant::now() + OVERDUE;
        while self.spare.len() < before + many {
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

    /// Lets the server send so many messages of a level in all.
    pub(crate) async fn offer(&mut self, level: u8, many: usize) -> Result<()> {
        let missing = many.saturating_sub(self.open(level));
        let room = self.removable(level);
        if missing <= room.len() {
            return self.acknowledge(room.get(..missing).unwrap_or(&room));
        }
        if self.consumers(level) < CONSUMERS {
            self.acknowledge(&room)?;
            return self.consume(level, missing - room.len()).await;
        }
        // One for all of it: those before would be many small ones.
        self.retire(level)?;
        self.consume(level, many).await
    }

    /// Whether so many messages in all can be offered while some are on their way. Otherwise consumers would have to end, and what
    /// they were sent would come beyond what was asked for.
    pub(crate) fn can_add(&self, level: u8, many: usize) -> bool {
        let missing = many.saturating_sub(self.open(level));
        missing <= self.removable(level).len() || self.consumers(level) < CONSUMERS
    }

    fn consumers(&self, level: u8) -> usize {
        self.standing.values().filter(|standing| standing.level == level).count()
    }

    /// A question to the queue, and then one to the channel: what the queue had handed over by the first has come when the second is
    /// answered. Returns how many are ready still.
    pub(crate) fn question(&mut self, level: u8) -> impl Future<Output = Result<usize>> + Send + use<> {
        let (queue, told) = (self.queue(level), self.prefetch_told.unwrap_or(1));
        self.prefetch_told = Some(told);
        let (channel, limit) = (self.channel.clone(), self.limit);
        let both = async move {
            // One after the other: the channel takes questions that come early before what the queue has sent it.
            let left = count(&channel, queue).await?;
            let answered = channel.basic_qos(told, BasicQosOptions::default()).await;
            answered.map(|()| left).map_err(classify)
        };
        async move { within(limit, both).await }
    }

    /// Takes in what the queue had handed over when it was asked. Returns how many are ready still.
    pub(crate) async fn catch_up(&mut self, level: u8) -> Result<usize> {
        let left = self.question(level).await?;
        self.take_in()?;
        Ok(left)
    }

    /// Makes sure that a level has a consumer that may be sent something, with as much credit if it is new as the stock says.
    pub(crate) async fn stand(&mut self, level: u8, stock: &mut Stock) -> Result<()> {
        if self.open(level) == 0 && self.spare.is_empty() {
            self.tell_all_removed()?;
        }
        // All that the consumer may be sent can be with those who hold it for long: whoever waits gets another.
        if self.open(level) == 0 && self.spare.is_empty() {
            self.retire(level)?;
            self.consume(level, stock.next()).await
        } else {
            Ok(())
        }
    }

    /// One more consumer, with so much credit.
    async fn consume(&mut self, level: u8, prefetch: usize) -> Result<()> {
        let told = u16::try_from(prefetch).unwrap_or(u16::MAX);
        self.next_key += 1;
        let (key, name, queue) = (self.next_key, format!("{level}-{}", self.next_key), self.queue(level));
        let channel = self.channel.clone();
        let known = self.prefetch_told == Some(told);
        let consume = async {
            let qos = async {
                if known { Ok(()) } else { channel.basic_qos(told, BasicQosOptions::default()).await }
            };
            let options = BasicConsumeOptions::default();
            let consume =
                channel.basic_consume(queue.into(), name.as_str().into(), options, FieldTable::default());
            let (qos, consumer) = join(qos, consume).await;
            qos.and(consumer).map_err(|error| Right::Read.classify(error))
        };
        let messages = within(self.limit, consume).await?;
        self.prefetch_told = Some(told);
        self.returned.remove(&level);
        self.sources.push(Source { key, level, messages });
        self.standing.insert(key, Standing { level, name, prefetch: usize::from(told), out: 0 });
        Ok(())
    }

    /// Ends a level's consumers without waiting for the server's word. What is held stays held, what is on its way will come.
    pub(crate) fn retire(&mut self, level: u8) -> Result<()> {
        let of_level = self.standing.iter().filter(|(_, standing)| standing.level == level);
        let keys: Vec<u64> = of_level.map(|(key, _)| *key).collect();
        keys.iter().try_for_each(|key| self.end(*key))?;
        // Nothing comes for what they held any more, so there is no reason to wait with telling.
        if keys.is_empty() { Ok(()) } else { self.tell_free() }
    }

    /// Ends one consumer.
    pub(super) fn end(&mut self, key: u64) -> Result<()> {
        let Some(standing) = self.standing.remove(&key) else { return Ok(()) };
        let cancel = self.channel.basic_cancel(standing.name.into(), BasicCancelOptions::default());
        cancel.now_or_never().transpose().map(drop).map_err(classify)
    }

    /// Ends consumers, and waits until all that the server has sent them has come.
    pub(crate) async fn withdraw(&mut self, levels: &[u8]) -> Result<()> {
        levels.iter().try_for_each(|level| self.retire(*level))?;
        let limit = self.limit;
        let ended = async {
            while self.sources.iter().any(|source| levels.contains(&source.level)) {
                self.next_or_end().await?;
            }
            Ok(())
        };
        within(limit, ended).await
    }
}
