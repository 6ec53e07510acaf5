//! What is there now: the levels are asked from the highest down, in three steps at most where messages come from one level.
//!
//! A pull first asks all levels above the likely one, the one that gave the most last time, for one message each, side by side.
//! Mostly they are empty. Then it asks the likely level for all that it wants, and if there is room left those below, again for one
//! each and side by side. A level that gives its one message is asked for more before any lower one is. So a higher level always goes
//! first, no level is asked that cannot matter, and what a pull takes too much is one message for each lower level.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{PartitionId, Result};
use futures_util::future::{join_all, try_join_all};

use crate::lines::Line;
use crate::names::Place;
use crate::pull::Terms;
use crate::receive::{Ask, Taken};
use crate::server::BATCH;
use crate::storage::Inner;

/// Requests at once for further messages of one level.
const MOST_AT_ONCE: usize = 10;

/// One pull's look at all levels.
struct Sweep<'s> {
    inner: &'s Inner,
    line: &'s Line,
    terms: &'s Terms,
    /// By level, with the queue's URL if there is such a queue.
    places: Vec<(Place, Option<Arc<str>>)>,
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
        let request = &terms.request;
        if terms.is_over(self) {
            return Ok(Vec::new());
        }
        // While this looks, nobody gives back what was kept; and what is being given back has to be there first.
        let waiting = self.lines.of(partition, self.config.levels).join(request.max);
        drop(waiting.line.giving_back.lock().await);
        let _turn = tokio::select! {
            turn = self.sweeps.acquire() => turn,
            () = request.stop.cancelled() => return Ok(Vec::new()),
            () = self.closed.cancelled() => return Ok(Vec::new()),
        };
        let places: Vec<_> = (0..self.config.levels).map(|level| Place::new(partition, level)).collect();
        let urls = try_join_all(places.iter().map(|place| self.queues.find(&self.server, place))).await?;
        let ahead = places.iter().map(|_| None).collect();
        let places = places.into_iter().zip(urls).collect();
        let mut sweep = Sweep { inner: self, line: &waiting.line, terms, places, ahead };
        let answer = Box::pin(sweep.run()).await;
        let too_much = sweep.ahead.into_iter().flatten().flatten().flatten().collect();
        self.keep(&waiting.line, too_much);
        answer
    }
}

impl Sweep<'_> {
    async fn run(&mut self) -> Result<Vec<Taken>> {
        let (levels, likely) = (self.inner.config.levels, self.line.likely());
        let mut found = Vec::new();
        self.ask_ahead(likely + 1..levels).await;
        for level in (0..levels).rev() {
            if self.room(&found) == 0 || self.terms.is_over(self.inner) {
                break;
            }
            if level + 1 == likely {
                self.ask_ahead(0..likely).await;
            }
            match self.ask(level, &mut found).await {
                Ok(()) => {}
                Err(error) if found.is_empty() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a level could not be asked; answering what the others brought");
                    break;
                }
            }
        }
        self.line.learn(found.iter().map(|taken| taken.claim.place.level));
        Ok(found)
    }

    fn room(&self, found: &[Taken]) -> usize {
        self.terms.request.max.saturating_sub(found.len())
    }

    /// One message of each of these levels, side by side.
    async fn ask_ahead(&mut self, levels: Range<u8>) {
        let ask = Ask { max: 1, wait_secs: 0, lease: self.terms.request.lease };
        let levels = usize::from(levels.start)..usize::from(levels.end);
        let asked =
            self.places.get(levels.clone()).unwrap_or_default().iter().map(async |(place, url)| match url {
                Some(url) => self.inner.receive(self.line, place, url, ask).await,
                None => Ok(Vec::new()),
            });
        let answers = join_all(asked).await;
        for (slot, answer) in self.ahead.iter_mut().skip(levels.start).zip(answers) {
            *slot = Some(answer);
        }
    }

    /// All of one level that there is room for: what was kept of it, what it gave ahead, and what it has beyond that.
    async fn ask(&mut self, level: u8, found: &mut Vec<Taken>) -> Result<()> {
        let kept = self.line.take_kept(level, self.room(found));
        found.extend(self.inner.refresh(kept, self.terms).await);
        if self.room(found) == 0 {
            return Ok(());
        }
        match self.ahead.get_mut(usize::from(level)).and_then(Option::take) {
            Some(Ok(ahead)) if ahead.is_empty() => return Ok(()),
            Some(ahead) => found.extend(ahead?),
            None => {}
        }
        let room = self.room(found);
        if let Some((place, Some(url))) = self.places.get(usize::from(level))
            && room > 0
        {
            found.extend(self.ask_further(place, url, room).await?);
        }
        Ok(())
    }

    /// Up to `room` messages of one level: one request, and if that was full as many at once as the rest takes. Each is paid for, also
    /// if it brings nothing.
    async fn ask_further(&self, place: &Place, url: &str, room: usize) -> Result<Vec<Taken>> {
        let lease: Duration = self.terms.request.lease;
        let ask = |max| self.inner.receive(self.line, place, url, Ask { max, wait_secs: 0, lease });
        let full = self.line.full(BATCH);
        let mut taken = ask(room.min(full)).await?;
        if taken.len() < full {
            return Ok(taken);
        }
        let full = self.line.full(BATCH);
        let rest = (taken.len()..room).step_by(full).map(|before| ask((room - before).min(full)));
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
}
