//! An open channel with the consumers of a partition: the messages that the server has sent on it, and the credit for more.
//!
//! The server sends a consumer messages until as many as its *prefetch* are not acknowledged. The rest of the prefetch is the
//! consumer's *credit*. A prefetch cannot be changed, so a level that needs more credit gets a further consumer.

mod acknowledge;
mod credit;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyqueue::{PartitionId, Result};
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::{Channel, Connection, Consumer};
use uuid::Uuid;

use crate::error::{ERRORS, classify};
use crate::names::{LevelQueue, Names};
use crate::record::{Record, read};
use crate::shared::Shared;
use crate::unseen::Unseen;

/// A message that was received. It is buffered until a pull takes it, and then held.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) delivery_tag: u64,
    pub(crate) level: u8,
    pub(crate) record: Record,
}

/// A consumer on the server.
struct Subscription {
    level: u8,
    consumer_tag: String,
    prefetch: usize,
    /// How many messages it was sent that were not acknowledged.
    unacked: usize,
}

impl Subscription {
    fn credit(&self) -> usize {
        self.prefetch.saturating_sub(self.unacked)
    }
}

/// The stream of a consumer's messages, until the server has confirmed that it is cancelled.
struct DeliveryStream {
    key: u64,
    level: u8,
    messages: Consumer,
}

/// An acknowledgement that was not sent yet.
#[derive(Clone, Copy)]
struct PendingAck {
    /// The consumer that gets credit from it.
    key: u64,
    at: Instant,
}

/// See the module.
pub(crate) struct ConsumerChannel {
    pub(crate) conn: Arc<Connection>,
    channel: Channel,
    /// Identifies the channel among all channels.
    pub(crate) id: Uuid,
    partition: PartitionId,
    names: Names,
    limit: Duration,
    /// How many messages of each level may be prefetched for later pulls.
    ready: usize,
    /// By key. A level can have several subscriptions, whose credit adds up.
    subscriptions: BTreeMap<u64, Subscription>,
    streams: Vec<DeliveryStream>,
    /// Delivery tags that were not acknowledged, each with the key of its consumer.
    unacked: BTreeMap<u64, u64>,
    /// Levels with a message that was redelivered or requeued: under some policies the server dead-letters such messages.
    pub(crate) may_dead_letter: BTreeSet<u8>,
    /// The memory of deliveries that were requeued unseen.
    unseen: Arc<Unseen>,
    /// Messages that were received, and not given to a pull yet.
    pub(crate) buffered: Vec<Received>,
    /// Messages that were given to a pull, and are not settled.
    pub(crate) held: HashMap<u64, Received>,
    /// Acknowledgements to be sent once they bring no unwanted message.
    pending_acks: BTreeMap<u64, PendingAck>,
    /// Levels where a requeued message may be missing from the server's count.
    requeued: BTreeSet<u8>,
    /// How many messages were ready when the server was last asked, minus those taken since. Others may have
    /// taken some.
    backlog: usize,
    qos_prefetch: Option<u16>,
    next_key: u64,
    /// How many acknowledgements were sent; the next field is when the last one was.
    acks_sent: usize,
    last_ack_at: Option<Instant>,
}

impl ConsumerChannel {
    pub(crate) fn new(
        conn: Arc<Connection>,
        channel: Channel,
        partition: &PartitionId,
        shared: &Shared,
    ) -> Self {
        Self {
            conn,
            channel,
            id: Uuid::new_v4(),
            partition: partition.clone(),
            names: shared.names.clone(),
            limit: shared.config.call_timeout,
            ready: shared.config.ready(),
            subscriptions: BTreeMap::new(),
            streams: Vec::new(),
            unacked: BTreeMap::new(),
            may_dead_letter: BTreeSet::new(),
            unseen: Arc::clone(&shared.unseen),
            buffered: Vec::new(),
            held: HashMap::new(),
            pending_acks: BTreeMap::new(),
            requeued: BTreeSet::new(),
            backlog: 0,
            qos_prefetch: None,
            next_key: 0,
            acks_sent: 0,
            last_ack_at: None,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.channel.status().connected() && self.conn.status().connected()
    }

    /// Whether there are no consumers and no unacknowledged messages.
    pub(crate) fn is_idle(&self) -> bool {
        self.unacked.is_empty() && self.subscriptions.is_empty()
    }

    fn queue(&self, level: u8) -> String {
        self.names.queue(&LevelQueue::new(&self.partition, level))
    }

    /// How many more messages of this level the server may send.
    pub(crate) fn credit(&self, level: u8) -> usize {
        self.subscriptions
            .values()
            .filter(|subscription| subscription.level == level)
            .map(Subscription::credit)
            .sum()
    }

    /// When the oldest pending acknowledgement was made.
    pub(crate) fn oldest_pending_ack(&self) -> Option<Instant> {
        self.pending_acks.values().next().map(|pending| pending.at)
    }

    /// Receives the next message and buffers it.
    pub(crate) async fn next(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits for the next message, or for the end of a cancelled consumer.
    async fn next_or_end(&mut self) -> Result<()> {
        let streams = self.streams.len();
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Pending if self.streams.len() < streams => Poll::Ready(Ok(())),
            other => other,
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut index = 0;
        while let Some(stream) = self.streams.get_mut(index) {
            match stream.messages.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(delivery))) => {
                    let (key, level) = (stream.key, stream.level);
                    self.receive(key, level, delivery);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(classify(error))),
                Poll::Ready(None) => {
                    let ended = self.streams.swap_remove(index);
                    if self.subscriptions.remove(&ended.key).is_some() {
                        // The server cancelled it, because its queue was removed or the queue's leader moved.
                        let gone = ERRORS
                            .error(anyqueue::ErrorKind::Unavailable, "the server cancelled the consumer");
                        return Poll::Ready(Err(gone));
                    }
                }
                Poll::Pending => index += 1,
            }
        }
        Poll::Pending
    }

    /// Receives everything that has arrived already.
    pub(crate) fn take_in(&mut self) -> Result<()> {
        while let Some(come) = self.next().now_or_never() {
            come?;
        }
        Ok(())
    }

    /// Receives everything that has arrived already, and sorts it: the highest level first, and within a
    /// level in the order in which the server sent it.
    ///
    /// Messages come through several consumers. One of them can show a message while an earlier message is
    /// with another consumer that was looked at a moment before. So nothing is handed over before all of them
    /// were found empty.
    pub(crate) fn take_in_order(&mut self) -> Result<()> {
        self.take_in()?;
        self.buffered.sort_unstable_by_key(|message| (Reverse(message.level), message.delivery_tag));
        Ok(())
    }

    fn receive(&mut self, key: u64, level: u8, delivery: Delivery) {
        let delivery_tag = delivery.delivery_tag;
        self.unacked.insert(delivery_tag, key);
        if let Some(subscription) = self.subscriptions.get_mut(&key) {
            subscription.unacked += 1;
        }
        let mut record = read(delivery, level);
        if record.earlier > 0 {
            self.may_dead_letter.insert(level);
            let unseen = self.unseen.count_of(record.message.id(), record.earlier);
            record.deliveries = record.deliveries.map(|count| count.saturating_sub(unseen).max(1));
        }
        self.buffered.push(Received { delivery_tag, level, record });
    }
}
