//! One open channel of a partition's consumer: what the server has handed over on it, and what it may hand over yet.
//!
//! The server sends a consumer messages until as many as its *prefetch* are not settled. What is left of that is its *open*
//! credit. A consumer's prefetch cannot be changed, so where a level is to get more than its consumers can be sent, it gets another
//! one beside them.

mod credit;
mod ends;

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

use crate::error::{classify, own};
use crate::names::{Line, Names};
use crate::stored::{Stored, read};
use crate::tools::Tools;
use crate::unseen::Unseen;

/// A message that has come and that no pull has been given yet, or that somebody holds.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) number: u64,
    pub(crate) level: u8,
    pub(crate) stored: Stored,
}

/// A consumer that the server knows.
struct Standing {
    level: u8,
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

/// A removal that the server was not told of yet.
#[derive(Clone, Copy)]
struct Removed {
    /// The consumer that it makes room in.
    key: u64,
    at: Instant,
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
    /// By their keys. A level can have several, which together may be sent what is wanted.
    standing: BTreeMap<u64, Standing>,
    sources: Vec<Source>,
    /// What the server waits to hear the end of, and the consumer that it was sent to.
    unsettled: BTreeMap<u64, u64>,
    /// Levels of which something has come again, or was returned: some policies make the server let such messages die.
    pub(crate) at_risk: BTreeSet<u8>,
    /// Released, and seen by nobody.
    unseen: Arc<Unseen>,
    /// Come, and not yet given to anybody.
    pub(crate) spare: Vec<Arrived>,
    /// Given to somebody.
    pub(crate) held: HashMap<u64, Arrived>,
    /// Removed, and the server is to be told when that brings no message that nobody wants.
    removed: BTreeMap<u64, Removed>,
    /// Levels to which something was returned that the server may not have counted yet.
    returned: BTreeSet<u8>,
    /// At least so many were ready when last asked, if nobody else took them.
    backlog: usize,
    prefetch_told: Option<u16>,
    next_key: u64,
    /// Acknowledgements sent, and when the last was.
    told: usize,
    told_at: Option<Instant>,
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
            at_risk: BTreeSet::new(),
            unseen: Arc::clone(&tools.unseen),
            spare: Vec::new(),
            held: HashMap::new(),
            removed: BTreeMap::new(),
            returned: BTreeSet::new(),
            backlog: 0,
            prefetch_told: None,
            next_key: 0,
            told: 0,
            told_at: None,
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
        self.standing.values().filter(|standing| standing.level == level).map(Standing::open).sum()
    }

    /// When the removal was made that is the next to be told.
    pub(crate) fn removed_since(&self) -> Option<Instant> {
        self.removed.values().next().map(|removed| removed.at)
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
                    if self.standing.remove(&ended.key).is_some() {
                        // The server ended it: its queue was removed, or its leader moved.
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
        if let Some(standing) = self.standing.get_mut(&key) {
            standing.out += 1;
        }
        let mut stored = read(delivery, level);
        if stored.earlier > 0 {
            self.at_risk.insert(level);
            let unseen = self.unseen.of(stored.message.id(), stored.earlier);
            stored.deliveries = stored.deliveries.map(|count| count.saturating_sub(unseen).max(1));
        }
        self.spare.push(Arrived { number, level, stored });
    }
}
