//! The ends of deliveries: what the server is told, and when.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyqueue::{MessageId, Result};
use futures_util::FutureExt;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicQosOptions};

use super::{Arrived, Desk, Removed};
use crate::error::classify;

/// Acknowledgements that a channel of the server passes on without waiting for the queue.
const PASSED_ON: usize = 16;
/// How often at most it is given time for more.
const ROUNDS: usize = 10;
/// How long it is given each time.
const WHILE: Duration = Duration::from_millis(3);

/// An acknowledgement that is older has been written, or never will be.
const WRITTEN: Duration = Duration::from_millis(50);

impl Desk {
    /// Notes the end of a delivery. The server is told soon, or when that brings a message that somebody has asked for.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(key) = self.unsettled.get(&number) {
            self.removed.insert(number, Removed { key: *key, at: Instant::now() });
        }
    }

    /// Tells the server of the removals that make room for nothing, or, where messages are held ready, of many at once.
    pub(crate) fn tell_free(&mut self) -> Result<()> {
        if self.ready > 0 {
            return if self.removed.len() > self.ready / 4 { self.tell_all_removed() } else { Ok(()) };
        }
        let makes_room = |removed: &Removed| self.standing.contains_key(&removed.key);
        let free = self.removed.iter().filter(|(_, removed)| !makes_room(removed));
        let free: Vec<u64> = free.map(|(number, _)| *number).collect();
        self.acknowledge(&free)
    }

    /// Removals whose telling lets the server send as many messages of this level.
    pub(super) fn removable(&self, level: u8) -> Vec<u64> {
        let is_of_level = |removed: &Removed| {
            self.standing.get(&removed.key).is_some_and(|standing| standing.level == level)
        };
        self.removed.iter().filter(|(_, removed)| is_of_level(removed)).map(|(number, _)| *number).collect()
    }

    /// Tells the server of all removals, after ending the consumers that this would make room in.
    pub(crate) fn tell_all_removed(&mut self) -> Result<()> {
        if self.ready == 0 {
            let keys: BTreeSet<u64> = self.removed.values().map(|removed| removed.key).collect();
            keys.into_iter().try_for_each(|key| self.end(key))?;
        }
        let rest: Vec<u64> = self.removed.keys().copied().collect();
        self.acknowledge(&rest)
    }

    /// Acknowledges; numbers ascend. Those before all that is open otherwise go in one message.
    pub(super) fn acknowledge(&mut self, numbers: &[u64]) -> Result<()> {
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
            tokio::time::sleep(WHILE).await;
            let told = self.prefetch_told.unwrap_or(1);
            if self.channel.basic_qos(told, BasicQosOptions::default()).await.is_err() {
                break;
            }
        }
    }

    fn ack(&mut self, number: u64, multiple: bool) -> Result<()> {
        self.told_at = Some(Instant::now());
        self.told = self.told.saturating_add(1);
        match self.channel.basic_ack(number, BasicAckOptions { multiple }).now_or_never() {
            Some(Err(error)) => Err(classify(error)),
            _ => Ok(()),
        }
    }

    /// Gives messages back that nobody has seen.
    pub(crate) fn give_back_unseen(&mut self, messages: Vec<Arrived>) -> Result<()> {
        for message in &messages {
            self.unseen.note(message.stored.message.id(), message.stored.earlier);
        }
        self.give_back(messages)
    }

    /// A message is gone from here: what is remembered of it is of no use.
    pub(crate) fn is_settled(&self, id: MessageId) {
        self.unseen.forget(id);
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
            self.at_risk.insert(level);
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
        if let Some(standing) = self.standing.get_mut(&key) {
            standing.out = standing.out.saturating_sub(1);
        }
    }

    /// Tells the server all there is to tell, and closes the channel.
    pub(crate) async fn close(mut self) {
        let spare = std::mem::take(&mut self.spare);
        let keys: Vec<u64> = self.standing.keys().copied().collect();
        let ended = keys.into_iter().try_for_each(|key| self.end(key));
        let told = ended.and_then(|()| self.tell_all_removed()).and_then(|()| self.give_back_unseen(spare));
        if told.is_ok() && self.is_alive() {
            let closing = async {
                self.let_through().await;
                let _ = self.channel.close(200, "done".into()).await;
            };
            let _ = tokio::time::timeout(self.limit, closing).await;
        }
        self.told_at = None;
    }
}

impl Desk {
    /// Tells what there is to tell and waits for nothing: others go on, also in this thread.
    pub(crate) fn give_up(mut self) {
        if self.is_alive() {
            let _ = self.tell_all_removed();
        }
        self.told_at = None;
    }
}

/// The program may end without a word, and with it the runtime: what was answered as settled is told nevertheless, and the client's
/// thread gets the time to write it.
impl Drop for Desk {
    fn drop(&mut self) {
        if !self.conn.status().connected() {
            return;
        }
        if self.channel.status().connected() && !self.removed.is_empty() {
            let _ = self.tell_all_removed();
        }
        if self.told_at.is_none_or(|at| at.elapsed() > WRITTEN) {
            return;
        }
        // The broker's answer comes after all that was told. Where nobody hears it any more the time must do.
        let until = Instant::now() + WRITTEN;
        let mut closing = pin!(self.channel.close(200, "done".into()));
        let mut answer = None;
        while answer.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            answer = closing.as_mut().now_or_never();
        }
        if answer.is_some_and(|answer| answer.is_err()) && self.channel.status().closing() {
            std::thread::sleep(until.saturating_duration_since(Instant::now())); // it was on its way already
        }
    }
}
