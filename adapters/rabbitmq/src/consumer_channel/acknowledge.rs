//! Acknowledging and requeueing: what is sent to the server, and when.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyqueue::{MessageId, Result};
use futures_util::FutureExt;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicQosOptions};

use super::{ConsumerChannel, PendingAck, Received};
use crate::error::classify;

/// How many acknowledgements a server's channel passes on to a quorum queue without waiting for it.
const PASSED_ON: usize = 16;
/// How often the channel is given time to pass on more, at most.
const ROUNDS: usize = 10;
/// How much time it is given each time.
const WHILE: Duration = Duration::from_millis(3);

/// An acknowledgement that is older than this was written, or never will be.
const WRITTEN: Duration = Duration::from_millis(50);

impl ConsumerChannel {
    /// Acknowledges a delivery later: soon, or when the freed credit brings a message that a pull has asked
    /// for.
    pub(crate) fn ack_later(&mut self, delivery_tag: u64) {
        if let Some(key) = self.unacked.get(&delivery_tag) {
            self.pending_acks.insert(delivery_tag, PendingAck { key: *key, at: Instant::now() });
        }
    }

    /// Sends the acknowledgements that free no credit. With prefetched messages it sends all of them, once
    /// there are many.
    pub(crate) fn flush_free_acks(&mut self) -> Result<()> {
        if self.ready > 0 {
            return if self.pending_acks.len() > self.ready / 4 { self.flush_acks() } else { Ok(()) };
        }
        let makes_room = |pending: &PendingAck| self.subscriptions.contains_key(&pending.key);
        let free = self.pending_acks.iter().filter(|(_, pending)| !makes_room(pending));
        let free: Vec<u64> = free.map(|(delivery_tag, _)| *delivery_tag).collect();
        self.acknowledge(&free)
    }

    /// Returns the acknowledgements that would free credit of this level.
    pub(super) fn acks_for_level(&self, level: u8) -> Vec<u64> {
        let is_of_level = |pending: &PendingAck| {
            self.subscriptions.get(&pending.key).is_some_and(|subscription| subscription.level == level)
        };
        self.pending_acks
            .iter()
            .filter(|(_, pending)| is_of_level(pending))
            .map(|(delivery_tag, _)| *delivery_tag)
            .collect()
    }

    /// Sends all acknowledgements, after cancelling the consumers whose credit they would free.
    pub(crate) fn flush_acks(&mut self) -> Result<()> {
        if self.ready == 0 {
            let keys: BTreeSet<u64> = self.pending_acks.values().map(|pending| pending.key).collect();
            keys.into_iter().try_for_each(|key| self.cancel_one(key))?;
        }
        let rest: Vec<u64> = self.pending_acks.keys().copied().collect();
        self.acknowledge(&rest)
    }

    /// Acknowledges deliveries, whose tags must be in ascending order. Those before the first open delivery
    /// go in one frame.
    pub(super) fn acknowledge(&mut self, delivery_tags: &[u64]) -> Result<()> {
        for delivery_tag in delivery_tags {
            self.pending_acks.remove(delivery_tag);
            self.forget(*delivery_tag);
        }
        let first_open = self.unacked.keys().next().copied().unwrap_or(u64::MAX);
        let at_once = delivery_tags.partition_point(|delivery_tag| *delivery_tag < first_open);
        let (at_once, single) = delivery_tags.split_at(at_once);
        if let Some(last) = at_once.last() {
            self.ack(*last, at_once.len() > 1)?;
        }
        single.iter().try_for_each(|delivery_tag| self.ack(*delivery_tag, false))
    }

    /// Gives the server time to pass on acknowledgements. A server's channel passes on only some at a time to
    /// a quorum queue, and loses those that it still has when it is closed. So after many acknowledgements it
    /// is given time.
    async fn let_acks_through(&self) {
        let rounds = self.acks_sent.div_ceil(PASSED_ON).saturating_sub(1).min(ROUNDS);
        for _ in 0..rounds {
            tokio::time::sleep(WHILE).await;
            let prefetch = self.qos_prefetch.unwrap_or(1);
            if self.channel.basic_qos(prefetch, BasicQosOptions::default()).await.is_err() {
                break;
            }
        }
    }

    fn ack(&mut self, delivery_tag: u64, multiple: bool) -> Result<()> {
        self.last_ack_at = Some(Instant::now());
        self.acks_sent = self.acks_sent.saturating_add(1);
        match self.channel.basic_ack(delivery_tag, BasicAckOptions { multiple }).now_or_never() {
            Some(Err(error)) => Err(classify(error)),
            _ => Ok(()),
        }
    }

    /// Requeues messages that no handler has seen.
    pub(crate) fn requeue_unseen(&mut self, messages: Vec<Received>) -> Result<()> {
        for message in &messages {
            self.unseen.note(message.record.message.id(), message.record.earlier);
        }
        self.requeue(messages)
    }

    /// Forgets the unseen deliveries of a message that is settled.
    pub(crate) fn forget_unseen(&self, id: MessageId) {
        self.unseen.forget(id);
    }

    /// Requeues messages at the front of their queues. Consumers of those levels are cancelled first, so that the messages do not
    /// come back here.
    pub(crate) fn requeue(&mut self, mut messages: Vec<Received>) -> Result<()> {
        messages.sort_unstable_by_key(|message| message.delivery_tag);
        let levels: BTreeSet<u8> = messages.iter().map(|message| message.level).collect();
        for level in levels {
            if self.ready == 0 {
                self.cancel(level)?;
            }
            self.requeued.insert(level);
            self.may_dead_letter.insert(level);
        }
        for message in messages {
            self.forget(message.delivery_tag);
            let options = BasicNackOptions { multiple: false, requeue: true };
            if let Some(Err(error)) = self.channel.basic_nack(message.delivery_tag, options).now_or_never() {
                return Err(classify(error));
            }
        }
        Ok(())
    }

    /// Forgets a delivery that the server has been told about.
    fn forget(&mut self, delivery_tag: u64) {
        let Some(key) = self.unacked.remove(&delivery_tag) else { return };
        if let Some(subscription) = self.subscriptions.get_mut(&key) {
            subscription.unacked = subscription.unacked.saturating_sub(1);
        }
    }

    /// Sends everything that is pending, and closes the channel.
    pub(crate) async fn close(mut self) {
        let buffered = std::mem::take(&mut self.buffered);
        let keys: Vec<u64> = self.subscriptions.keys().copied().collect();
        let ended = keys.into_iter().try_for_each(|key| self.cancel_one(key));
        let flushed = ended.and_then(|()| self.flush_acks()).and_then(|()| self.requeue_unseen(buffered));
        if flushed.is_ok() && self.is_alive() {
            let closing = async {
                self.let_acks_through().await;
                let _ = self.channel.close(200, "done".into()).await;
            };
            let _ = tokio::time::timeout(self.limit, closing).await;
        }
        self.last_ack_at = None;
    }
}

impl ConsumerChannel {
    /// Sends everything that is pending, and closes the channel without waiting, since the task goes on in
    /// this thread.
    ///
    /// The close is explicit, because of requests for a consumer that the server did not answer in time: the
    /// client keeps the channel for the answer, and the server would send messages on it that nobody
    /// receives.
    pub(crate) fn abandon(mut self) {
        if self.is_alive() {
            let _ = self.flush_acks();
            let _ = self.channel.close(200, "abandoned".into()).now_or_never();
        }
        self.last_ack_at = None;
    }
}

/// The runtime may end without a call of `close`. Settlements that were answered are acknowledged
/// nevertheless, and the client's thread gets time to write the acknowledgements.
impl Drop for ConsumerChannel {
    fn drop(&mut self) {
        if !self.conn.status().connected() {
            return;
        }
        if self.channel.status().connected() && !self.pending_acks.is_empty() {
            let _ = self.flush_acks();
        }
        if self.last_ack_at.is_none_or(|at| at.elapsed() > WRITTEN) {
            return;
        }
        // The broker confirms the close after it has read the acknowledgements. If nothing can read the
        // confirmation any more, the wait has to suffice.
        let until = Instant::now() + WRITTEN;
        let mut closing = pin!(self.channel.close(200, "done".into()));
        let mut answer = None;
        while answer.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            answer = closing.as_mut().now_or_never();
        }
        if answer.is_some_and(|answer| answer.is_err()) && self.channel.status().closing() {
            std::thread::sleep(until.saturating_duration_since(Instant::now())); // the channel was being closed already
        }
    }
}
