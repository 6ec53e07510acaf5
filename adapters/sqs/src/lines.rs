//! Who waits for messages of a partition, the long polls that are under way for them, and what these brought for nobody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, PartitionId};
use tokio::sync::Notify;

use crate::receive::Taken;

/// A poll lasts no longer than this part of the time that has been waited before, so that one that nobody waits for any more, and
/// that must not be cancelled, soon ends.
const PART_OF_WAIT: u64 = 8;
/// The longest poll: the server's limit.
const LONGEST_POLL_SECS: u64 = 20;
/// How long somebody who is about to pull may keep others from what was kept.
const MOST_KEPT: Duration = Duration::from_millis(1200);

/// How long only one message is asked for at a time, once several of a group came at once.
const GROUPED_FOR: Duration = Duration::from_mins(1);

/// The partitions that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<PartitionId, Arc<Line>>>);

impl Lines {
    /// The partition's line, made if there is none.
    pub(crate) fn of(&self, partition: &PartitionId, levels: u8) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody outside can come by a line while this lock is held.
        if lines.len() > 64 && !lines.contains_key(partition) {
            lines.retain(|_, line| Arc::strong_count(line) > 1 || !line.lock().is_idle());
        }
        lines.entry(partition.clone()).or_insert_with(|| Arc::new(Line::new(levels))).clone()
    }
}

/// One partition's.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<State>,
    /// Something came, failed, or a poll ended.
    pub(crate) changed: Notify,
    /// Held while messages are given back. One that is on its way is at no level, and those below it would seem to be the first.
    pub(crate) giving_back: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// How many messages those who wait want in all.
    wanted: usize,
    failures: u64,
    last_failure: Option<Error>,
    levels: Vec<Level>,
    /// The level that gave the most last time.
    likely: u8,
    /// Several messages of one group came at once. Until then only one is asked for at a time.
    grouped_until: Option<Instant>,
}

#[derive(Debug)]
struct Level {
    /// When the poll under way ends by itself.
    poll_ends: Option<Instant>,
    /// For how long somebody has been waiting here without a break.
    waited_secs: u64,
    kept: VecDeque<Taken>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.wanted == 0 && self.levels.iter().all(|level| level.poll_ends.is_none() && level.kept.is_empty())
    }

    fn level(&mut self, level: u8) -> Option<&mut Level> {
        self.levels.get_mut(usize::from(level))
    }
}

/// A poll to be begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll {
    pub(crate) level: u8,
    pub(crate) wait_secs: u64,
    pub(crate) max: usize,
}

impl Line {
    fn new(levels: u8) -> Self {
        let level = || Level { poll_ends: None, waited_secs: 0, kept: VecDeque::new() };
        let levels = (0..levels).map(|_| level()).collect();
        let state =
            State { wanted: 0, failures: 0, last_failure: None, levels, likely: 0, grouped_until: None };
        Self { state: Mutex::new(state), changed: Notify::new(), giving_back: tokio::sync::Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for up to `max` messages, until the answer is dropped.
    pub(crate) fn join(self: &Arc<Self>, max: usize) -> Waiting {
        let mut state = self.lock();
        state.wanted += max;
        Waiting { seen_failures: state.failures, line: self.clone(), max }
    }

    /// The level that messages are likely to come from: the lowest as long as nothing comes, for then all others are asked at once.
    pub(crate) fn likely(&self) -> u8 {
        self.lock().likely
    }

    /// Messages came from these levels, each as often as it is named, or none did.
    pub(crate) fn learn(&self, levels: impl Iterator<Item = u8>) {
        let mut counts = BTreeMap::<u8, usize>::new();
        for level in levels {
            *counts.entry(level).or_default() += 1;
        }
        // Of several, the highest.
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        self.lock().likely = most.map_or(0, |(level, _)| level);
    }

    /// Several messages of one group came at once.
    pub(crate) fn saw_groups(&self) {
        self.lock().grouped_until = Some(Instant::now() + GROUPED_FOR);
    }

    /// How many messages to ask for at once, at most so many.
    pub(crate) fn full(&self, most: usize) -> usize {
        let is_grouped = self.lock().grouped_until.is_some_and(|until| Instant::now() < until);
        if is_grouped { 1 } else { most }
    }

    /// These messages are for whoever pulls next.
    pub(crate) fn keep(&self, taken: Vec<Taken>) {
        let mut state = self.lock();
        for mut taken in taken {
            taken.arrived = Instant::now();
            if let Some(level) = state.level(taken.claim.place.level) {
                level.kept.push_back(taken);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// What was kept at this level.
    pub(crate) fn take_kept(&self, level: u8, max: usize) -> Vec<Taken> {
        let mut state = self.lock();
        let Some(level) = state.level(level) else { return Vec::new() };
        let count = level.kept.len().min(max);
        level.kept.drain(..count).collect()
    }

    /// Marks polls as under way at all levels that have none. They are to be begun by the caller.
    pub(crate) fn arm(&self, longest_secs: u64) -> Vec<Poll> {
        let mut state = self.lock();
        // All polls together bring at most one message per level more than is wanted.
        let max = state.wanted.div_ceil(state.levels.len().max(1)).max(1);
        let now = Instant::now();
        let mut polls = Vec::new();
        for (number, level) in (0_u8..).zip(&mut state.levels) {
            if level.poll_ends.is_none() {
                let wait_secs =
                    (level.waited_secs / PART_OF_WAIT).min(LONGEST_POLL_SECS).min(longest_secs).max(1);
                level.poll_ends = Some(now + Duration::from_secs(wait_secs));
                polls.push(Poll { level: number, wait_secs, max });
            }
        }
        polls
    }

    /// When the last poll under way ends by itself.
    pub(crate) fn polls_end(&self) -> Option<Instant> {
        self.lock().levels.iter().filter_map(|level| level.poll_ends).max()
    }

    /// A poll ended. What it brought is there for whoever pulls next.
    pub(crate) fn landed(&self, poll: Poll, answer: Result<Vec<Taken>, Error>) {
        let Poll { level, wait_secs, .. } = poll;
        let mut state = self.lock();
        let is_waited_for = state.wanted > 0;
        let failed = match answer {
            Ok(taken) => {
                if !taken.is_empty() {
                    state.likely = level;
                }
                if let Some(level) = state.level(level) {
                    level.kept.extend(taken);
                }
                None
            }
            Err(error) => Some(error),
        };
        if let Some(level) = state.level(level) {
            level.poll_ends = None;
            level.waited_secs = if is_waited_for { level.waited_secs + wait_secs } else { 0 };
        }
        if failed.is_some() {
            state.failures += 1;
            state.last_failure = failed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// What has been kept since before this moment, if nobody is about to take it. `None`: somebody is, so look again.
    pub(crate) fn unwanted(&self, before: Instant) -> Option<Vec<Taken>> {
        let mut state = self.lock();
        let is_old = |taken: &&Taken| taken.arrived <= before;
        let is_any = state.levels.iter().any(|level| level.kept.iter().any(|taken| is_old(&taken)));
        if is_any && state.wanted > 0 && before.elapsed() < MOST_KEPT {
            return None;
        }
        let mut unwanted = Vec::new();
        for level in &mut state.levels {
            let count = level.kept.iter().take_while(is_old).count();
            unwanted.extend(level.kept.drain(..count));
        }
        Some(unwanted)
    }
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) line: Arc<Line>,
    max: usize,
    seen_failures: u64,
}

impl Waiting {
    /// The error of a poll that failed since the wait began.
    pub(crate) fn failure(&self) -> Option<Error> {
        let state = self.line.lock();
        if state.failures == self.seen_failures { None } else { state.last_failure.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.line.lock().wanted -= self.max;
    }
}
