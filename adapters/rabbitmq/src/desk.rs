//! One open channel of a partition's consumer: what the server has handed over on it, and what it may hand over yet.
//!
//! The server sends a consumer messages until as many as its *prefetch* are not settled. What is left of that is its *open*
//! credit. A consumer's prefetch cannot be changed, so one that is to get more is retired and another takes its place.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyqueue::{PartitionId, Result};
use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use uuid::Uuid;

use crate::actor::Tools;
use crate::error::{classify, own};
use crate::link::within;
use crate::names::{Line, Names};
use crate::stored::{Stored, read};

/// Between two messages that are on their way it is never quiet for so long, unless the machine is busy.
const QUIET: Duration = Duration::from_millis(3);
/// How long what the server says is ready may take to come.
const OVERDUE: Duration = Duration::from_secs(2);

/// Acknowledgements that a channel of the server passes on without waiting for the queue.
const PASSED_ON: usize = 16;
/// How often at most it is given time for more.
const ROUNDS: usize = 10;

/// A message that has come and that no pull has been given yet, or that somebody holds.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) number: u64,
    pub(crate) level: u8,
    pub(crate) stored: Stored,
}

/// A consumer that the server knows.
struct Standing {
    key: u64,
    name: String,
    prefetch: usize,
    /// What it has been sent and the server has not been told the end of.
    out: usize,
}

impl Standing {
    fn open(&self) -> usize {
        self.prefetch.saturating_sub(self.out)
    }
}

/// Where a consumer's messages come from, until the server has confirmed its end.
struct Source {
    key: u64,
    level: u8,
    messages: Consumer,
}

/// See the module.
pub(crate) struct Desk {
    pub(crate) conn: Arc<Connection>,
    channel: Channel,
    /// The channel's name for its life.
    pub(crate) life: Uuid,
    partition: PartitionId,
    names: Names,
    limit: Duration,
    /// How many messages of each level are held ready for pulls to come.
    ready: usize,
    standing: BTreeMap<u8, Standing>,
    sources: Vec<Source>,
    /// What the server waits to hear the end of, and the consumer that it was sent to.
    unsettled: BTreeMap<u64, u64>,
    /// Come, and not yet given to anybody.
    pub(crate) spare: Vec<Arrived>,
    /// Given to somebody.
    pub(crate) held: HashMap<u64, Arrived>,
    /// Removed, and the server is to be told when that brings no message that nobody wants.
    removed: BTreeMap<u64, u64>,
    /// Levels to which something was returned that the server may not have counted yet.
    returned: BTreeSet<u8>,
    /// At least so many were ready when last asked, if nobody else took them.
    backlog: usize,
    prefetch_told: Option<u16>,
    next_key: u64,
    /// Acknowledgements sent.
    told: usize,
}

impl Desk {
    pub(crate) fn new(
        conn: Arc<Connection>,
        channel: Channel,
        partition: &PartitionId,
        tools: &Tools,
    ) -> Self {
        Self {
            conn,
            channel,
            life: Uuid::new_v4(),
            partition: partition.clone(),
            names: tools.names.clone(),
            limit: tools.config.call_timeout,
            ready: tools.config.ready(),
            standing: BTreeMap::new(),
            sources: Vec::new(),
            unsettled: BTreeMap::new(),
            spare: Vec::new(),
            held: HashMap::new(),
            removed: BTreeMap::new(),
            returned: BTreeSet::new(),
            backlog: 0,
            prefetch_told: None,
            next_key: 0,
            told: 0,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.channel.status().connected() && self.conn.status().connected()
    }

    /// Whether the server waits for nothing from us.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsettled.is_empty() && self.standing.is_empty()
    }

    fn queue(&self, level: u8) -> String {
        self.names.queue(&Line::new(&self.partition, level))
    }

    /// How many more messages the server may send of this level.
    pub(crate) fn open(&self, level: u8) -> usize {
        self.standing.get(&level).map_or(0, Standing::open)
    }

    /// Whether removals wait to be told.
    pub(crate) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// The next message that comes, put with the spare ones.
    pub(crate) async fn next(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next message, or the end of a consumer that was retired.
    async fn next_or_end(&mut self) -> Result<()> {
        let sources = self.sources.len();
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Pending if self.sources.len() < sources => Poll::Ready(Ok(())),
            other => other,
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut index = 0;
        while let Some(source) = self.sources.get_mut(index) {
            match source.messages.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(delivery))) => {
                    let (key, level) = (source.key, source.level);
                    self.arrive(key, level, delivery);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(classify(error))),
                Poll::Ready(None) => {
                    let ended = self.sources.swap_remove(index);
                    if self.standing.get(&ended.level).is_some_and(|standing| standing.key == ended.key) {
                        // The server ended it: its queue was removed, or its leader moved.
                        self.standing.remove(&ended.level);
                        let gone = own(anyqueue::ErrorKind::Unavailable, "the server ended the consumer");
                        return Poll::Ready(Err(gone));
                    }
                }
                Poll::Pending => index += 1,
            }
        }
        Poll::Pending
    }

    /// Takes in what is there already.
    pub(crate) fn take_in(&mut self) -> Result<()> {
        while let Some(come) = self.next().now_or_never() {
            come?;
        }
        Ok(())
    }

    fn arrive(&mut self, key: u64, level: u8, delivery: Delivery) {
        let number = delivery.delivery_tag;
        self.unsettled.insert(number, key);
        if let Some(standing) = self.standing.get_mut(&level).filter(|standing| standing.key == key) {
            standing.out += 1;
        }
        match read(delivery) {
            Ok(stored) => self.spare.push(Arrived { number, level, stored }),
            // It stays where it is until the channel ends, so that it is not tried again at once.
            Err(error) => {
                tracing::error!(%error, partition = %self.partition, "a stored message cannot be read");
            }
        }
    }

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
        if missing == 0 {
            return Ok(());
        }
        let room = self.removable(level);
        // Told only if that is enough: else the consumer would be sent messages just before its end.
        if room.len() < missing {
            self.consume(level, many).await
        } else {
            self.acknowledge(room.get(..missing).unwrap_or(&room))
        }
    }

    /// A question to the queue, and then one to the channel: what the queue had handed over by the first has come when the second is
    /// answered. Answers how many are ready still.
    pub(crate) async fn catch_up(&mut self, level: u8) -> Result<usize> {
        let (queue, told) = (self.queue(level), self.prefetch_told.unwrap_or(1));
        let both = async {
            // One after the other: the channel takes questions that come early before what the queue has sent it.
            let left = count(&self.channel, queue).await?;
            let answered = self.channel.basic_qos(told, BasicQosOptions::default()).await;
            answered.map(|()| left).map_err(classify)
        };
        let left = within(self.limit, both).await?;
        self.prefetch_told = Some(told);
        self.take_in()?;
        Ok(left)
    }

    /// Makes sure that a level has a consumer that may be sent something, with so much credit if it is new.
    pub(crate) async fn stand(&mut self, level: u8, prefetch: usize) -> Result<()> {
        if self.open(level) == 0 && self.spare.is_empty() {
            self.tell_all_removed()?;
        }
        // All that the consumer may be sent can be with those who hold it for long: whoever waits gets another.
        if self.open(level) == 0 && self.spare.is_empty() {
            self.consume(level, prefetch).await
        } else {
            Ok(())
        }
    }

    /// A new consumer with so much credit, in place of the one that is there.
    async fn consume(&mut self, level: u8, prefetch: usize) -> Result<()> {
        self.retire(level)?;
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
            qos.and(consumer).map_err(classify)
        };
        let messages = within(self.limit, consume).await?;
        self.prefetch_told = Some(told);
        self.returned.remove(&level);
        self.sources.push(Source { key, level, messages });
        self.standing.insert(level, Standing { key, name, prefetch: usize::from(told), out: 0 });
        Ok(())
    }

    /// Ends a level's consumer without waiting for the server's word. What is held stays held, what is on its way will come.
    pub(crate) fn retire(&mut self, level: u8) -> Result<()> {
        let Some(standing) = self.standing.remove(&level) else { return Ok(()) };
        let cancel = self.channel.basic_cancel(standing.name.into(), BasicCancelOptions::default());
        if let Some(Err(error)) = cancel.now_or_never() {
            return Err(classify(error));
        }
        // Nothing comes for what it held any more, so there is no reason to wait with telling.
        self.tell_free()
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

    /// Notes the end of a delivery. The server is told soon, or when that brings a message that somebody has asked for.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(key) = self.unsettled.get(&number) {
            self.removed.insert(number, *key);
        }
    }

    /// Tells the server of the removals that make room for nothing, or, where messages are held ready, of many at once.
    pub(crate) fn tell_free(&mut self) -> Result<()> {
        if self.ready > 0 {
            return if self.removed.len() > self.ready / 4 { self.tell_all_removed() } else { Ok(()) };
        }
        let makes_room = |key: &u64| self.standing.values().any(|standing| standing.key == *key);
        let free: Vec<u64> =
            self.removed.iter().filter(|(_, key)| !makes_room(key)).map(|(number, _)| *number).collect();
        self.acknowledge(&free)
    }

    /// Removals whose telling lets the server send this level's consumer as many messages.
    fn removable(&self, level: u8) -> Vec<u64> {
        let Some(key) = self.standing.get(&level).map(|standing| standing.key) else { return Vec::new() };
        self.removed.iter().filter(|(_, of)| **of == key).map(|(number, _)| *number).collect()
    }

    /// Tells the server of all removals, after ending the consumers that this would make room for.
    pub(crate) fn tell_all_removed(&mut self) -> Result<()> {
        if self.ready == 0 {
            let keys: BTreeSet<u64> = self.removed.values().copied().collect();
            let makes_room = self.standing.iter().filter(|(_, standing)| keys.contains(&standing.key));
            let levels: Vec<u8> = makes_room.map(|(level, _)| *level).collect();
            levels.into_iter().try_for_each(|level| self.retire(level))?;
        }
        let rest: Vec<u64> = self.removed.keys().copied().collect();
        self.acknowledge(&rest)
    }

    /// Acknowledges; numbers ascend. Those before all that is open otherwise go in one message.
    fn acknowledge(&mut self, numbers: &[u64]) -> Result<()> {
        for number in numbers {
            self.removed.remove(number);
            self.forget(*number);
        }
        let first_open = self.unsettled.keys().next().copied().unwrap_or(u64::MAX);
        let at_once = numbers.partition_point(|number| *number < first_open);
        let (at_once, single) = numbers.split_at(at_once);
        if let Some(last) = at_once.last() {
            self.ack(*last, at_once.len() > 1)?;
        }
        single.iter().try_for_each(|number| self.ack(*number, false))
    }

    /// A channel passes on only some acknowledgements at a time to a quorum queue and keeps the others, and what it keeps when it is
    /// closed is lost. So it is given time after many.
    async fn let_through(&self) {
        let rounds = self.told.div_ceil(PASSED_ON).saturating_sub(1).min(ROUNDS);
        for _ in 0..rounds {
            tokio::time::sleep(QUIET).await;
            let told = self.prefetch_told.unwrap_or(1);
            if self.channel.basic_qos(told, BasicQosOptions::default()).await.is_err() {
                break;
            }
        }
    }

    fn ack(&mut self, number: u64, multiple: bool) -> Result<()> {
        self.told = self.told.saturating_add(1);
        match self.channel.basic_ack(number, BasicAckOptions { multiple }).now_or_never() {
            Some(Err(error)) => Err(classify(error)),
            _ => Ok(()),
        }
    }

    /// Gives messages back to the front of their queues. Consumers of those levels are ended before, lest it comes back here.
    pub(crate) fn give_back(&mut self, mut messages: Vec<Arrived>) -> Result<()> {
        messages.sort_unstable_by_key(|message| message.number);
        let levels: BTreeSet<u8> = messages.iter().map(|message| message.level).collect();
        for level in levels {
            if self.ready == 0 {
                self.retire(level)?;
            }
            self.returned.insert(level);
        }
        for message in messages {
            self.forget(message.number);
            let options = BasicNackOptions { multiple: false, requeue: true };
            if let Some(Err(error)) = self.channel.basic_nack(message.number, options).now_or_never() {
                return Err(classify(error));
            }
        }
        Ok(())
    }

    /// The server has been told of the end of this.
    fn forget(&mut self, number: u64) {
        let Some(key) = self.unsettled.remove(&number) else { return };
        if let Some(standing) = self.standing.values_mut().find(|standing| standing.key == key) {
            standing.out = standing.out.saturating_sub(1);
        }
    }

    /// Tells the server all there is to tell, and closes the channel.
    pub(crate) async fn close(mut self) {
        let spare = std::mem::take(&mut self.spare);
        let levels: Vec<u8> = self.standing.keys().copied().collect();
        let ended = levels.into_iter().try_for_each(|level| self.retire(level));
        let told = ended.and_then(|()| self.tell_all_removed()).and_then(|()| self.give_back(spare));
        if told.is_ok() && self.is_alive() {
            let closing = async {
                self.let_through().await;
                let _ = self.channel.close(200, "done".into()).await;
            };
            let _ = tokio::time::timeout(self.limit, closing).await;
        }
    }
}

/// Ready messages of a queue.
pub(crate) async fn count(channel: &Channel, queue: String) -> Result<usize> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
    declared.map(|queue| queue.message_count() as usize).map_err(classify)
}
