//! What a process has of one limit.

use std::time::{Duration, Instant};

use anyqueue::PartitionId;

use super::gcra::Gcra;

/// How long a start that was taken from a rate stays usable, from the response on.
const FRESH: Duration = Duration::from_millis(100);

/// What a process has of one limit.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) partition: PartitionId,
    pub(super) cap: Option<Block>,
    pub(super) rate: Option<Tokens>,
    /// How many permits were requested in vain since the last turn.
    pub(super) wanted: usize,
    /// How many tasks have permits and wait to start.
    pub(super) waiting: usize,
    /// The time before which no more permits are requested.
    pub(super) next_try: Option<Instant>,
    /// The time before which no more starts of the rate are requested.
    pub(super) next_start: Option<Instant>,
    /// The last pause that was made because nothing was free.
    pub(super) pause: Duration,
    /// The time before which nothing more is released.
    pub(super) give_at: Option<Instant>,
    /// When the rate allows the next task, if a pull waits for that.
    pub(super) hint_at: Option<Instant>,
}

/// Permits of a cap.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) size: usize,
    /// Tasks start only while fewer than this are running.
    pub(super) most: usize,
    /// Until when tasks may start with the permits, and when running tasks have to stop.
    pub(super) starts_until: Instant,
    pub(super) revoke_at: Instant,
    pub(super) is_revoked: bool,
}

/// What is known about a rate, and what was taken of it.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) gcra: Gcra,
    /// The time by the server's clock, and the latest corresponding time of this process's clock.
    seen_ns: u64,
    seen_at: Instant,
    count: usize,
    fresh_until: Instant,
}

impl Held {
    pub(super) const fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            cap: None,
            rate: None,
            wanted: 0,
            waiting: 0,
            next_try: None,
            next_start: None,
            pause: Duration::ZERO,
            give_at: None,
            hint_at: None,
        }
    }

    /// How many more permits could be taken, if `in_use` are in use, and `unstarted` of those have not
    /// started.
    pub(super) fn room(&self, in_use: usize, unstarted: usize, now: Instant) -> usize {
        let of_cap = self.cap.as_ref().map_or(usize::MAX, |block| block.room(in_use, now));
        let of_rate = self.rate.as_ref().map_or(usize::MAX, |tokens| tokens.expected(now));
        of_cap.min(of_rate.saturating_sub(unstarted))
    }

    /// Whether a permit that is released can be expected to be there for the next task, if `in_use` are in
    /// use. A rate grants starts only to tasks that are there already, so never with a rate.
    pub(super) fn passes_on(&self, in_use: usize, now: Instant) -> bool {
        self.rate.is_none() && self.cap.as_ref().is_some_and(|block| block.passes_on(in_use, now))
    }

    /// How many tasks with permits may start in addition to the `started` ones.
    pub(super) fn can_start(&self, started: usize, now: Instant) -> usize {
        let of_cap = self.cap.as_ref().map_or(usize::MAX, |block| block.can_start(started, now));
        of_cap.min(self.rate.as_ref().map_or(usize::MAX, |tokens| tokens.left(now)))
    }

    /// Whether there is something to request or to release, if `in_use` permits are in use.
    pub(super) fn is_needy(&self, in_use: usize, now: Instant) -> bool {
        let asks = self.ask_at(in_use, now).is_some_and(|at| at <= now);
        asks || self.has_surplus(in_use) && self.give_at.is_none_or(|at| at <= now)
    }

    /// When to request what is missing. Permits that others have do not delay the starts that the rate allows
    /// to tasks here.
    fn ask_at(&self, in_use: usize, now: Instant) -> Option<Instant> {
        let lacks = |block: &Block| self.wanted > 0 || in_use > block.size;
        let permits = self.cap.as_ref().is_some_and(lacks).then(|| self.next_try.unwrap_or(now));
        let lacks_starts = self.rate.as_ref().is_some_and(|tokens| self.waiting > tokens.left(now));
        let starts = lacks_starts.then(|| self.next_start.unwrap_or(now));
        [permits, starts].into_iter().flatten().min()
    }

    fn has_surplus(&self, in_use: usize) -> bool {
        self.cap.as_ref().is_some_and(|block| block.size > block.most && block.size > in_use)
    }

    /// When the limit will be needy, or will have something to announce.
    pub(super) fn wake_at(&self, in_use: usize, now: Instant) -> Option<Instant> {
        let give = self.has_surplus(in_use).then(|| self.give_at.unwrap_or(now));
        [self.ask_at(in_use, now), give, self.hint_at].into_iter().flatten().min()
    }

    /// Notes how many permits are missing, and when a rate will allow the next one.
    pub(super) fn ask(&mut self, wanted: usize, now: Instant) {
        self.wanted = wanted;
        let exhausted = self.rate.as_ref().filter(|tokens| tokens.expected(now) == 0);
        self.hint_at = exhausted.map(|tokens| tokens.next_at(now));
    }
}

impl Block {
    /// A block without permits.
    pub(super) const fn none(now: Instant) -> Self {
        Self { size: 0, most: 0, starts_until: now, revoke_at: now, is_revoked: true }
    }

    fn room(&self, in_use: usize, now: Instant) -> usize {
        if now < self.starts_until { self.size.min(self.most).saturating_sub(in_use) } else { 0 }
    }

    /// While others want permits, those above `most` are theirs once they are released.
    fn passes_on(&self, in_use: usize, now: Instant) -> bool {
        now < self.starts_until && in_use <= self.size.min(self.most)
    }

    /// Tasks that got their permits before others did must not start if others use those permits by now.
    fn can_start(&self, started: usize, now: Instant) -> usize {
        if now < self.starts_until { self.size.saturating_sub(started) } else { 0 }
    }
}

impl Tokens {
    pub(super) const fn new(gcra: Gcra, seen_ns: u64, now: Instant) -> Self {
        Self { gcra, seen_ns, seen_at: now, count: 0, fresh_until: now }
    }

    /// Notes what is known now, and how many starts were taken.
    pub(super) fn see(&mut self, gcra: Gcra, seen_ns: u64, taken: usize, now: Instant) {
        let left = self.left(now);
        (self.gcra, self.seen_ns, self.seen_at) = (gcra, seen_ns, now);
        if taken > 0 {
            (self.count, self.fresh_until) = (left.saturating_add(taken), now + FRESH);
        }
    }

    /// The starts that were taken and can still be used.
    pub(super) fn left(&self, now: Instant) -> usize {
        if now < self.fresh_until { self.count } else { 0 }
    }

    pub(super) fn spend(&mut self, count: usize) {
        self.count = self.count.saturating_sub(count);
    }

    /// How many tasks will probably be allowed to start now.
    fn expected(&self, now: Instant) -> usize {
        let untaken = self.gcra.available(self.server_ns(now)).min(self.gcra.block());
        self.left(now).saturating_add(usize::try_from(untaken).unwrap_or(usize::MAX))
    }

    fn next_at(&self, now: Instant) -> Instant {
        now + Duration::from_nanos(self.gcra.until_next(self.server_ns(now)))
    }

    fn server_ns(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.seen_at).as_nanos();
        self.seen_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}
