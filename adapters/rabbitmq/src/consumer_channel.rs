//! One open channel of a partition's consumer: what the server has handed over on it, and what it may hand over yet.
//!
//! The server sends a consumer messages until as many as its *prefetch* are not settled. What is left of that is its *open*
//! credit. A consumer's prefetch cannot be changed, so where a level is to get more than its consumers can be sent, it gets another
//! one beside them.

mod acknowledge;
mod credit;

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

use crate::error::{classify, error};
use crate::names::{LevelQueue, Names};
use crate::record::{Record, read};
use crate::shared::Shared;
use crate::unseen::Unseen;

/// A message that has come and that no pull has been given yet, or that somebody holds.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) delivery_tag: u64,
    pub(crate) level: u8,
    pub(crate) record: Record,
}

/// A consumer that the server knows.
struct Subscription {
    level: u8,
    consumer_tag: String,
    prefetch: usize,
    /// What it has been sent and the server has not been told the end of.
    unacked: usize,
}

impl Subscription {
    fn credit(&self) -> usize {
        self.prefetch.saturating_sub(self.unacked)
    }
}

/// Where a consumer's messages come from, until the server has confirmed its end.
struct DeliveryStream {
    key: u64,
    level: u8,
    messages: Consumer,
}

/// A removal that the server was not told of yet.
#[derive(Clone, Copy)]
struct PendingAck {
    /// The consumer that it makes room in.
    key: u64,
    at: Instant,
}

/// See the module.
pub(crate) struct ConsumerChannel {
    pub(crate) conn: Arc<Connection>,
    channel: Channel,
    /// The channel's name for its life.
    pub(crate) id: Uuid,
    partition: PartitionId,
    names: Names,
    limit: Duration,
    /// How many messages of each level are held ready for pulls to come.
    ready: usize,
    /// By their keys. A level can have several, which together may be sent what is wanted.
    subscriptions: BTreeMap<u64, Subscription>,
    streams: Vec<DeliveryStream>,
    /// What the server waits to hear the end of, and the consumer that it was sent to.
    unacked: BTreeMap<u64, u64>,
    /// Levels of which something has come again, or was returned: some policies make the server let such messages die.
    pub(crate) may_dead_letter: BTreeSet<u8>,
    /// Released, and seen by nobody.
    unseen: Arc<Unseen>,
    /// Come, and not yet given to anybody.
    pub(crate) buffered: Vec<Received>,
    /// Given to somebody.
    pub(crate) held: HashMap<u64, Received>,
    /// Removed, and the server is to be told when that brings no message that nobody wants.
    pending_acks: BTreeMap<u64, PendingAck>,
    /// Levels to which something was returned that the server may not have counted yet.
    requeued: BTreeSet<u8>,
    /// At least so many were ready when last asked, if nobody else took them.
    backlog: usize,
    qos_prefetch: Option<u16>,
    next_key: u64,
    /// Acknowledgements sent, and when the last was.
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

    /// Whether the server waits for nothing from us.
    pub(crate) fn is_idle(&self) -> bool {
        self.unacked.is_empty() && self.subscriptions.is_empty()
    }

    fn queue(&self, level: u8) -> String {
        self.names.queue(&LevelQueue::new(&self.partition, level))
    }

    /// How many more messages the server may send of this level.
    pub(crate) fn credit(&self, level: u8) -> usize {
        self.subscriptions
            .values()
            .filter(|subscription| subscription.level == level)
            .map(Subscription::credit)
            .sum()
    }

    /// When the removal was made that is the next to be told.
    pub(crate) fn oldest_pending_ack(&self) -> Option<Instant> {
        self.pending_acks.values().next().map(|pending| pending.at)
    }

    /// The next message that comes, put with the spare ones.
    pub(crate) async fn next(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next message, or the end of a consumer that was retired.
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
                        // The server ended it: its queue was removed, or its leader moved.
                        let gone = error(anyqueue::ErrorKind::Unavailable, "the server ended the consumer");
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
