//! What is there now: the levels are asked from the highest down, in few steps.
//!
//! Those that gave something last time are asked one after another, each for all that there is room for. Before each of them, those in
//! between are asked for one message each, side by side: mostly they are empty. One of these that gives its message is asked for more
//! before any lower one is. So a higher level always goes first, no level is asked once there is enough, and what a pull can take too
//! much is one message of each level between two that give. A level that is watched by a poll, for it was empty again and again, is asked
//! only if nothing is found elsewhere: what comes to it the poll brings.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{PartitionId, Result};
use futures_util::future::join_all;

use crate::entries::BATCH;
use crate::lines::{Line, Waiting};
use crate::names::Place;
use crate::pull::Terms;
use crate::receive::Ask;
use crate::shared::Inner;
use crate::taken::Taken;

/// Requests at once for further messages of one level.
const MOST_AT_ONCE: usize = 10;
/// How long each level is polled before a thorough pull says that nothing is there: a request that waits asks all of the service.
const SURE_AFTER_SECS: u64 = 1;

/// One pull's look at all levels.
struct Sweep<'s> {
    inner: &'s Inner,
    line: &'s Line,
    terms: &'s Terms,
    partition: &'s PartitionId,
    found: Vec<Taken>,
    /// Levels that are watched, and were not asked.
    skipped: Vec<u8>,
    /// By level, what one message asked for ahead has brought; `None` where none was.
    ahead: Vec<Option<Result<Vec<Taken>>>>,
}

impl Inner {
    /// What is there now: higher levels first, lower ones only if there is room left.
    pub(crate) async fn sweep(
        self: &Arc<Self>,
        partition: &PartitionId,
        terms: &Terms,
    ) -> Result<Vec<Taken>> {
        if terms.is_over(self) {
            return Ok(Vec::new());
        }
        // While this looks, nobody releases what was kept; and what is being released has to be there first.
        let waiting = self.lines.of(partition, self.config.levels).join(terms.request.max);
        drop(waiting.line.giving_back.lock().await);
        let _turn = tokio::select! {
            turn = self.sweeps.acquire() => turn,
            () = terms.request.stop.cancelled() => return Ok(Vec::new()),
            () = self.closed.cancelled() => return Ok(Vec::new()),
        };
        let mut sweep = self.sweep_of(partition, terms, &waiting);
        let end = Box::pin(sweep.run()).await;
        let found = self.end_of(sweep, &waiting, end)?;
        if !found.is_empty() {
            self.watch(&waiting.line, partition, terms.request.lease);
        }
        Ok(found)
    }

    /// The same for a pull that must not take a part of the service for all of it: each level is asked by a poll.
    pub(crate) async fn make_sure(
        self: &Arc<Self>,
        partition: &PartitionId,
        terms: &Terms,
    ) -> Result<Vec<Taken>> {
        if terms.is_over(self) {
            return Ok(Vec::new());
        }
        let waiting = self.lines.of(partition, self.config.levels).join(terms.request.max);
        let mut sweep = self.sweep_of(partition, terms, &waiting);
        let end = Box::pin(sweep.run_thoroughly()).await;
        self.end_of(sweep, &waiting, end)
    }

    fn sweep_of<'s>(
        &'s self,
        partition: &'s PartitionId,
        terms: &'s Terms,
        waiting: &'s Waiting,
    ) -> Sweep<'s> {
        let ahead = (0..self.config.levels).map(|_| None).collect();
        Sweep {
            inner: self,
            line: &waiting.line,
            terms,
            partition,
            found: Vec::new(),
            skipped: Vec::new(),
            ahead,
        }
    }

    /// What was found, if anything; what was taken too much is kept for the next pull here.
    fn end_of(self: &Arc<Self>, sweep: Sweep<'_>, waiting: &Waiting, end: Result<()>) -> Result<Vec<Taken>> {
        let Sweep { found, ahead, .. } = sweep;
        self.keep(&waiting.line, ahead.into_iter().flatten().flatten().flatten().collect());
        match end {
            Err(error) if found.is_empty() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "a level could not be asked; answering what the others brought");
                Ok(found)
            }
            Ok(()) => Ok(found),
        }
    }
}

impl Sweep<'_> {
    async fn run(&mut self) -> Result<()> {
        let mut below = self.inner.config.levels;
        while below > 0 && self.wants_more() {
            // The next one that gives; or the lowest, for nothing is below it that it could take too much beside.
            let next = (0..below).rev().find(|level| self.line.is_giving(*level)).unwrap_or(0);
            let (watched, between): (Vec<_>, Vec<_>) =
                (next..below).rev().partition(|level| self.line.is_watched(*level));
            self.ask_ahead(between.iter().copied().filter(|level| *level > next), 0).await;
            for level in (next..below).rev() {
                if !self.wants_more() {
                    return Ok(());
                }
                if watched.contains(&level) { self.take_kept(level).await } else { self.ask(level).await? }
            }
            self.skipped.extend(watched);
            below = next;
        }
        let skipped = std::mem::take(&mut self.skipped);
        if self.found.is_empty() { self.ask_side_by_side(skipped, 0).await } else { Ok(()) }
    }

    async fn run_thoroughly(&mut self) -> Result<()> {
        self.ask_side_by_side((0..self.inner.config.levels).rev().collect(), SURE_AFTER_SECS).await
    }

    /// These levels, from the highest down, of which none gave anything of late.
    async fn ask_side_by_side(&mut self, levels: Vec<u8>, wait_secs: u64) -> Result<()> {
        self.ask_ahead(levels.iter().copied(), wait_secs).await;
        for level in levels {
            if !self.wants_more() {
                break;
            }
            self.ask(level).await?;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        self.terms.request.max.saturating_sub(self.found.len())
    }

    fn wants_more(&self) -> bool {
        self.room() > 0 && !self.terms.is_over(self.inner)
    }

    /// One message of each of these levels, side by side.
    async fn ask_ahead(&mut self, levels: impl Iterator<Item = u8>, wait_secs: u64) {
        let asked = levels.map(async |level| (level, self.receive(level, 1, wait_secs).await));
        let answers = join_all(asked).await;
        for (level, answer) in answers {
            if let Some(slot) = self.ahead.get_mut(usize::from(level)) {
                *slot = Some(answer);
            }
        }
    }

    /// All of one level that there is room for: what was kept of it, what it gave ahead, and what it has beyond that.
    async fn ask(&mut self, level: u8) -> Result<()> {
        self.take_kept(level).await;
        if self.room() == 0 {
            return Ok(());
        }
        match self.ahead.get_mut(usize::from(level)).and_then(Option::take) {
            Some(Ok(ahead)) if ahead.is_empty() => return Ok(()),
            Some(ahead) => self.found.extend(self.inner.refresh(ahead?, self.terms).await),
            None => {}
        }
        let room = self.room();
        if room > 0 {
            let further = self.ask_further(level, room).await?;
            self.found.extend(further);
        }
        Ok(())
    }

    async fn take_kept(&mut self, level: u8) {
        let kept = self.line.take_kept(level, self.room());
        self.found.extend(self.inner.refresh(kept, self.terms).await);
    }

    /// Up to `room` messages of one level: one request, and if that was full as many at once as the rest takes. Each is paid for, also
    /// if it brings nothing.
    async fn ask_further(&self, level: u8, room: usize) -> Result<Vec<Taken>> {
        let full = self.line.full(BATCH);
        let mut taken = self.receive(level, room.min(full), 0).await?;
        if taken.len() < full {
            return Ok(taken);
        }
        let full = self.line.full(BATCH);
        let rest =
            (taken.len()..room).step_by(full).map(|before| self.receive(level, (room - before).min(full), 0));
        for answer in join_all(rest.take(MOST_AT_ONCE)).await {
            match answer {
                Ok(more) => taken.extend(more),
                Err(error) => {
                    tracing::debug!(%error, "a further request failed; answering what the first brought");
                }
            }
        }
        Ok(taken)
    }

    /// One request. A level without a queue is empty.
    async fn receive(&self, level: u8, max: usize, wait_secs: u64) -> Result<Vec<Taken>> {
        let (inner, lease): (_, Duration) = (self.inner, self.terms.request.lease);
        let place = Place::new(self.partition, level);
        let taken = match inner.queues.find(&inner.server, &place).await? {
            Some(url) => inner.receive(&place, &url, Ask { max, wait_secs, lease }).await?,
            None => Vec::new(),
        };
        self.line.gave(level, !taken.is_empty());
        Ok(taken)
    }
}
