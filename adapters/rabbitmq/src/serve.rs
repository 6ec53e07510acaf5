//! Serving waiting pulls: first with what is ready, highest priority first. Then the server gets credit for
//! the messages that they still wait for.

use std::time::Duration;

use anyqueue::Result;

use crate::actor::Actor;
use crate::command::WaitingPull;
use crate::consumer_channel::{ConsumerChannel, Received};
use crate::error::timed_out;
use crate::names::level_queues;

/// The most credit that is granted at once.
pub(crate) const MAX_CREDIT: usize = 5000;
/// How long a level is skipped whose queue was removed and could not be declared again.
const MISSING: Duration = Duration::from_secs(10);
/// How often a pull looks for more messages.
const ROUNDS: usize = 8;

impl Actor {
    /// Serves all waiting pulls.
    pub(crate) async fn serve(&mut self) -> Result<()> {
        self.run_due_timers().await?;
        if let Some(channel) = &mut self.channel {
            channel.flush_free_acks()?;
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.open().await?;
        self.look_again();
        self.take_ready().await?;
        self.answer().await?;
        self.grant_awaited().await
    }

    /// Makes a pull look again if it gets something and has room for more, so that it also gets what else is
    /// ready.
    fn look_again(&mut self) {
        let buffered = self.channel.as_ref().map_or(0, |channel| channel.buffered.len());
        if let Some(first) = self.waiting.front_mut()
            && (1..first.max).contains(&buffered)
        {
            first.fresh = true;
        }
    }

    /// Opens a channel and finds the levels. Pulls that waited on an earlier channel look again.
    async fn open(&mut self) -> Result<()> {
        if self.channel.as_ref().is_some_and(ConsumerChannel::is_alive) {
            return Ok(());
        }
        self.channel = None;
        for waiting in &mut self.waiting {
            waiting.fresh = true;
        }
        let shared = &self.shared;
        let (conn, channel) = shared.consumers.channel().await?;
        let known = async {
            if shared.publisher.is_blocked().await {
                Err(timed_out())
            } else {
                shared.publisher.known(&self.partition).await
            }
        };
        let found = if let Ok(found) = known.await {
            found
        } else {
            // Publishing may have to wait, or be forbidden. This alternative needs neither, but fills the
            // server's log.
            let found = shared.consumers.try_all(level_queues(&self.partition)).await?;
            found.into_iter().map(|(level_queue, _)| level_queue).collect()
        };
        self.dead_letters_declared.clear();
        self.missing.retain(|_, since| since.elapsed() < MISSING);
        let there = found
            .iter()
            .map(|level_queue| level_queue.level)
            .filter(|level| !self.missing.contains_key(level));
        self.levels.extend(there);
        self.channel = Some(ConsumerChannel::new(conn, channel, &self.partition, shared));
        Ok(())
    }

    /// Fetches what is ready for the pulls that have not looked yet.
    async fn take_ready(&mut self) -> Result<()> {
        let looks = |pull: &&WaitingPull| pull.fresh && !pull.stop.is_cancelled();
        if !self.waiting.iter().any(|pull| looks(&pull)) {
            return Ok(());
        }
        let ready = self.prefetch();
        let levels: Vec<u8> = self.levels.iter().rev().copied().collect();
        if ready == 0
            && let [only] = levels.as_slice()
        {
            self.pipeline(*only).await?;
        }
        let wanted: usize = self.waiting.iter().map(|pull| if looks(&pull) { pull.max } else { 1 }).sum();
        let wanted = wanted.min(MAX_CREDIT);
        let is_thorough = self.waiting.iter().any(|pull| looks(&pull) && pull.is_thorough);
        for waiting in &mut self.waiting {
            waiting.fresh = false;
        }
        let Some(channel) = &mut self.channel else { return Ok(()) };
        if ready > 0 {
            for level in levels {
                channel.ensure_consumer(level, &mut self.adaptive_prefetch).await?;
                if channel.buffered.is_empty() {
                    channel.catch_up(level).await?;
                }
            }
            return Ok(());
        }
        let missing = |channel: &ConsumerChannel| wanted.saturating_sub(channel.buffered.len());
        if levels.is_empty() || missing(channel) == 0 {
            return Ok(());
        }
        // This is repeated if other consumers were faster, or something was requeued meanwhile.
        for _ in 0..ROUNDS {
            let counts = channel.counts(&levels).await?;
            let mut found = false;
            for (level, count) in levels.iter().zip(counts) {
                let most = missing(channel);
                let ready = if channel.count_may_lag(*level) { most } else { most.min(count) };
                if ready == 0 {
                    continue;
                }
                found = true;
                if levels.len() == 1 {
                    channel.take_from_backlog(ready);
                }
                channel.fetch(*level, ready).await?;
            }
            if !found || missing(channel) == 0 {
                break;
            }
        }
        if is_thorough && channel.buffered.is_empty() {
            // The server counts none where a queue's leader does not answer within a quarter of a second. What it sends is certain.
            for level in &levels {
                channel.grant(*level, 1).await?;
            }
            channel.cancel_and_drain(&levels).await?;
        }
        Ok(())
    }

    /// Answers pulls with what has arrived, in order, and those whose wait is over. Nothing may arrive for a
    /// pull that was answered, so its credit is withdrawn first.
    async fn answer(&mut self) -> Result<()> {
        let ready = self.prefetch();
        loop {
            if let Some(channel) = &mut self.channel {
                channel.take_in_order()?;
            }
            let buffered = self.channel.as_ref().map_or(0, |channel| channel.buffered.len());
            let left = self.left_after(buffered);
            let Some(channel) = &mut self.channel else { break };
            let too_much: Vec<u8> =
                self.levels.iter().filter(|level| channel.credit(**level) > left).copied().collect();
            if too_much.is_empty() || left == self.waiting.len() || ready > 0 {
                break;
            }
            channel.cancel_and_drain(&too_much).await?;
        }
        self.hand_over()
    }

    /// Returns how many messages of each level are still awaited after this many were handed over and expired
    /// waits have ended.
    fn left_after(&self, mut messages: usize) -> usize {
        let is_left = |pull: &&WaitingPull| {
            let served = messages > 0 && !pull.is_over();
            messages = messages.saturating_sub(if served { pull.max } else { 0 });
            !served && !pull.is_over()
        };
        let left = self.waiting.iter().filter(is_left).count();
        left.min(self.max_awaited())
    }

    fn hand_over(&mut self) -> Result<()> {
        // Pulls that go on waiting come first, because what the others are given may come back.
        let (over, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(WaitingPull::is_over);
        let mut answers = Vec::new();
        for pull in waiting {
            match self.take_buffered(pull.max) {
                messages if messages.is_empty() => self.waiting.push_back(pull),
                messages => answers.push((pull, messages)),
            }
        }
        for pull in over {
            let messages = self.take_buffered(pull.max);
            answers.push((pull, messages));
        }
        // Unwanted messages are requeued before a pull is told that there are no more.
        let requeued = match &mut self.channel {
            Some(channel) if self.waiting.is_empty() && self.shared.config.prefetch == 0 => {
                let buffered = std::mem::take(&mut channel.buffered);
                channel.requeue_unseen(buffered)
            }
            _ => Ok(()),
        };
        for (pull, messages) in answers {
            self.reply(pull, messages);
        }
        requeued
    }

    pub(crate) fn take_buffered(&mut self, most: usize) -> Vec<Received> {
        let taken: Vec<Received> = self.channel.as_mut().map_or_else(Vec::new, |channel| {
            channel.buffered.drain(..most.min(channel.buffered.len())).collect()
        });
        self.adaptive_prefetch.record_taken(taken.len());
        taken
    }

    /// With several levels it is one message of each, so that few messages arrive beyond those that are
    /// awaited.
    fn max_awaited(&self) -> usize {
        if self.levels.len() > 1 { 1 } else { MAX_CREDIT }
    }

    /// How many messages of each level may be prefetched for later pulls.
    pub(crate) fn prefetch(&self) -> usize {
        self.shared.config.ready()
    }

    /// How many messages of each level are awaited.
    fn awaited(&self) -> usize {
        self.waiting.len().min(self.max_awaited())
    }

    /// Grants credit for the messages that are awaited, and no more.
    async fn grant_awaited(&mut self) -> Result<()> {
        let (awaited, ready) = (self.awaited(), self.prefetch());
        let Some(channel) = self.channel.as_mut() else { return Ok(()) };
        for level in &self.levels {
            if ready > 0 {
                channel.ensure_consumer(*level, &mut self.adaptive_prefetch).await?;
                continue;
            }
            if channel.credit(*level) > awaited {
                channel.cancel(*level)?; // messages on their way are for the waiting pulls
            }
            if channel.credit(*level) < awaited {
                channel.grant(*level, awaited).await?;
            }
        }
        Ok(())
    }

    /// Whether there is credit, or a buffered message, that no pull needs.
    pub(crate) fn has_excess(&self, channel: &ConsumerChannel) -> bool {
        let awaited = self.awaited();
        if self.prefetch() > 0 && !self.waiting.is_empty() {
            return false;
        }
        let excess_credit = self.levels.iter().any(|level| channel.credit(*level) > awaited);
        excess_credit || (self.waiting.is_empty() && !channel.buffered.is_empty())
    }

    /// Withdraws unused credit, and requeues messages that no pull has taken.
    pub(crate) fn release_excess(&mut self) -> Result<()> {
        let awaited = self.awaited();
        let nobody = self.waiting.is_empty();
        let Some(channel) = &mut self.channel else { return Ok(()) };
        for level in &self.levels {
            if nobody || channel.credit(*level) > awaited {
                channel.cancel(*level)?;
            }
        }
        if nobody {
            let buffered = std::mem::take(&mut channel.buffered);
            self.adaptive_prefetch.record_unused(buffered.len());
            channel.requeue_unseen(buffered)?;
        }
        Ok(())
    }
}
