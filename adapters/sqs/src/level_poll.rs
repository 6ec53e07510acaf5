//! Short polls of all levels, from the highest down, in few steps.
//!
//! Levels that had messages last time are asked one after another, each for as many messages as there is room
//! for. Before each of them, the levels in between are asked for one message each, concurrently, since they
//! are mostly empty. If one of these has a message, it is asked for more before any lower level. So a higher
//! level always goes first, no level is asked once there is enough, and a pull receives at most one surplus
//! message for each level in between. A level that was empty many times in a row is watched by a long poll,
//! and is asked only if nothing is found elsewhere.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{PartitionId, Result};
use futures_util::future::join_all;

use crate::entries::BATCH;
use crate::names::LevelQueue;
use crate::poll_state::{PollState, Waiting};
use crate::pull::PullContext;
use crate::receive::ReceiveRequest;
use crate::received::Received;
use crate::shared::Inner;

/// The most concurrent requests for further messages of one level.
const MAX_CONCURRENT: usize = 10;
/// How long a thorough pull polls each level before it reports it as empty. A request that waits asks all of
/// the service's servers.
const THOROUGH_WAIT_SECS: u64 = 1;

/// The poll of all levels for one pull.
struct LevelPoll<'s> {
    inner: &'s Inner,
    poll_state: &'s PollState,
    context: &'s PullContext,
    partition: &'s PartitionId,
    found: Vec<Received>,
    /// The watched levels that were not asked.
    skipped: Vec<u8>,
    /// For each level, the answer to a request for one message that was sent ahead; `None` if none was sent.
    ahead: Vec<Option<Result<Vec<Received>>>>,
}

impl Inner {
    /// Returns messages that are available now: higher levels first, lower ones only if there is room left.
    pub(crate) async fn poll_levels(
        self: &Arc<Self>,
        partition: &PartitionId,
        context: &PullContext,
    ) -> Result<Vec<Received>> {
        if context.is_stopped(self) {
            return Ok(Vec::new());
        }
        // Meanwhile buffered messages are not released, and those that are being released must be back first.
        let waiting = self.poll_states.of(partition, self.config.levels).join(context.request.max);
        drop(waiting.poll_state.releasing.lock().await);
        let _permit = tokio::select! {
            permit = self.level_polls.acquire() => permit,
            () = context.request.stop.cancelled() => return Ok(Vec::new()),
            () = self.closed.cancelled() => return Ok(Vec::new()),
        };
        let mut level_poll = self.new_level_poll(partition, context, &waiting);
        let end = Box::pin(level_poll.run()).await;
        let found = self.finish_level_poll(level_poll, &waiting, end)?;
        if !found.is_empty() {
            self.watch(&waiting.poll_state, partition, context.request.lease);
        }
        Ok(found)
    }

    /// Does the same for a thorough pull, which needs an answer from all of the service's servers, by polling
    /// each level with a wait.
    pub(crate) async fn poll_thoroughly(
        self: &Arc<Self>,
        partition: &PartitionId,
        context: &PullContext,
    ) -> Result<Vec<Received>> {
        if context.is_stopped(self) {
            return Ok(Vec::new());
        }
        let waiting = self.poll_states.of(partition, self.config.levels).join(context.request.max);
        let mut level_poll = self.new_level_poll(partition, context, &waiting);
        let end = Box::pin(level_poll.run_thoroughly()).await;
        self.finish_level_poll(level_poll, &waiting, end)
    }

    fn new_level_poll<'s>(
        &'s self,
        partition: &'s PartitionId,
        context: &'s PullContext,
        waiting: &'s Waiting,
    ) -> LevelPoll<'s> {
        let ahead = (0..self.config.levels).map(|_| None).collect();
        LevelPoll {
            inner: self,
            poll_state: &waiting.poll_state,
            context,
            partition,
            found: Vec::new(),
            skipped: Vec::new(),
            ahead,
        }
    }

    /// Returns what was found, if anything. Buffers surplus messages for the next pull.
    fn finish_level_poll(
        self: &Arc<Self>,
        level_poll: LevelPoll<'_>,
        waiting: &Waiting,
        end: Result<()>,
    ) -> Result<Vec<Received>> {
        let LevelPoll { found, ahead, .. } = level_poll;
        self.buffer(&waiting.poll_state, ahead.into_iter().flatten().flatten().flatten().collect());
        match end {
            Err(error) if found.is_empty() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "a level could not be polled; returning the messages of the others");
                Ok(found)
            }
            Ok(()) => Ok(found),
        }
    }
}

impl LevelPoll<'_> {
    async fn run(&mut self) -> Result<()> {
        let mut below = self.inner.config.levels;
        while below > 0 && self.wants_more() {
            // The next level that had messages, or else the lowest, below which nothing can be received too
            // early.
            let next = (0..below).rev().find(|level| self.poll_state.had_messages(*level)).unwrap_or(0);
            let (watched, between): (Vec<_>, Vec<_>) =
                (next..below).rev().partition(|level| self.poll_state.is_watched(*level));
            self.poll_ahead(between.iter().copied().filter(|level| *level > next), 0).await;
            for level in (next..below).rev() {
                if !self.wants_more() {
                    return Ok(());
                }
                if watched.contains(&level) {
                    self.take_buffered(level).await;
                } else {
                    self.poll_level(level).await?;
                }
            }
            self.skipped.extend(watched);
            below = next;
        }
        let skipped = std::mem::take(&mut self.skipped);
        if self.found.is_empty() { self.poll_concurrently(skipped, 0).await } else { Ok(()) }
    }

    async fn run_thoroughly(&mut self) -> Result<()> {
        self.poll_concurrently((0..self.inner.config.levels).rev().collect(), THOROUGH_WAIT_SECS).await
    }

    /// Polls these levels from the highest down. None of them had messages recently.
    async fn poll_concurrently(&mut self, levels: Vec<u8>, wait_secs: u64) -> Result<()> {
        self.poll_ahead(levels.iter().copied(), wait_secs).await;
        for level in levels {
            if !self.wants_more() {
                break;
            }
            self.poll_level(level).await?;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        self.context.request.max.saturating_sub(self.found.len())
    }

    fn wants_more(&self) -> bool {
        self.room() > 0 && !self.context.is_stopped(self.inner)
    }

    /// Asks each of these levels for one message, concurrently.
    async fn poll_ahead(&mut self, levels: impl Iterator<Item = u8>, wait_secs: u64) {
        let asked = levels.map(async |level| (level, self.receive(level, 1, wait_secs).await));
        let answers = join_all(asked).await;
        for (level, answer) in answers {
            if let Some(ahead) = self.ahead.get_mut(usize::from(level)) {
                *ahead = Some(answer);
            }
        }
    }

    /// Takes as many messages as there is room for from one level: buffered messages, the answer sent ahead,
    /// and further ones.
    async fn poll_level(&mut self, level: u8) -> Result<()> {
        self.take_buffered(level).await;
        if self.room() == 0 {
            return Ok(());
        }
        let is_empty = match self.ahead.get_mut(usize::from(level)).and_then(Option::take) {
            Some(ahead) => {
                let ahead = ahead?;
                let is_empty = ahead.is_empty();
                self.found.extend(self.inner.renew(ahead, self.context).await);
                is_empty
            }
            None => false,
        };
        let room = self.room();
        if room > 0 && !is_empty {
            let further = self.poll_further(level, room).await?;
            self.found.extend(further);
        }
        // A long poll of this level may have received meanwhile what this pull asked for in vain.
        self.take_buffered(level).await;
        Ok(())
    }

    async fn take_buffered(&mut self, level: u8) {
        let buffered = self.poll_state.take_buffered(level, self.room());
        self.found.extend(self.inner.renew(buffered, self.context).await);
    }

    /// Receives up to `room` messages of one level: with one request and, if that was full, with as many
    /// concurrent requests as the rest needs. Each request is billed, even if it brings nothing.
    async fn poll_further(&self, level: u8, room: usize) -> Result<Vec<Received>> {
        let full = self.poll_state.request_size(BATCH);
        let mut received = self.receive(level, room.min(full), 0).await?;
        if received.len() < full {
            return Ok(received);
        }
        let full = self.poll_state.request_size(BATCH);
        let rest = (received.len()..room)
            .step_by(full)
            .map(|before| self.receive(level, (room - before).min(full), 0));
        for answer in join_all(rest.take(MAX_CONCURRENT)).await {
            match answer {
                Ok(more) => received.extend(more),
                Err(error) => {
                    tracing::debug!(%error, "a further request failed; returning what the first one brought");
                }
            }
        }
        Ok(received)
    }

    /// Sends one request. A level without a queue counts as empty.
    async fn receive(&self, level: u8, max: usize, wait_secs: u64) -> Result<Vec<Received>> {
        let (inner, lease): (_, Duration) = (self.inner, self.context.request.lease);
        let level_queue = LevelQueue::new(self.partition, level);
        let received = match inner.queues.find(&inner.server, &level_queue).await? {
            Some(url) => inner.receive(&level_queue, &url, ReceiveRequest { max, wait_secs, lease }).await?,
            None => Vec::new(),
        };
        self.poll_state.record_answer(level, !received.is_empty());
        Ok(received)
    }
}
