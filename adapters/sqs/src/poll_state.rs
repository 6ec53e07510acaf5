//! The pulls that wait for messages of a partition, their long polls, and messages that are buffered for
//! later pulls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, PartitionId};
use tokio::sync::Notify;

use crate::received::Received;

/// A poll lasts at most this share of the time that pulls waited before. A poll must not be cancelled, so one
/// that no pull waits for any more should end soon.
const WAIT_SHARE: u64 = 8;
/// The longest poll that the server allows.
const LONGEST_POLL_SECS: u64 = 20;
/// How long a waiting pull may keep buffered messages from being released.
const MAX_BUFFERED_FOR: Duration = Duration::from_millis(1200);

/// A level that was empty this many times in a row is watched by a long poll while other levels have
/// messages, and is not asked by each pull.
const WATCH_AFTER: u32 = 8;

/// How long messages are received one at a time after several of a group had to be released together.
const ONE_AT_A_TIME_FOR: Duration = Duration::from_mins(1);

/// The states of partitions that are polled.
#[derive(Debug, Default)]
pub(crate) struct PollStates(Mutex<HashMap<PartitionId, Arc<PollState>>>);

impl PollStates {
    /// Returns the state of a partition. Creates it if there is none.
    pub(crate) fn of(&self, partition: &PartitionId, levels: u8) -> Arc<PollState> {
        let mut poll_states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // While this lock is held, nobody else can obtain a state.
        if poll_states.len() > 64 && !poll_states.contains_key(partition) {
            poll_states
                .retain(|_, poll_state| Arc::strong_count(poll_state) > 1 || !poll_state.lock().is_idle());
        }
        poll_states.entry(partition.clone()).or_insert_with(|| Arc::new(PollState::new(levels))).clone()
    }
}

/// The state of one partition.
#[derive(Debug)]
pub(crate) struct PollState {
    state: Mutex<State>,
    /// Notified when messages came, a request failed, or a poll ended.
    pub(crate) changed: Notify,
    /// Held while messages are released. A message on its way back is at no level, so those below it would
    /// seem to be the first.
    pub(crate) releasing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// How many messages the waiting pulls want in total.
    wanted: usize,
    failures: u64,
    last_failure: Option<Error>,
    levels: Vec<Level>,
    /// When the last pull came.
    pulled: Instant,
    /// Set after several messages of a group had to be released together. Until then messages are received
    /// one at a time.
    one_at_a_time_until: Option<Instant>,
}

#[derive(Debug)]
struct Level {
    /// When the poll in progress ends by itself.
    poll_ends: Option<Instant>,
    /// How long pulls have been waiting without a break.
    waited_secs: u64,
    buffered: VecDeque<Received>,
    /// Whether it had messages when it was last asked.
    had_messages: bool,
    /// How often in a row it was empty since then.
    empty_answers: u32,
}

impl Level {
    /// Whether a poll in progress would bring its messages. A poll that should have ended already proves
    /// nothing.
    fn is_watched(&self, now: Instant) -> bool {
        self.empty_answers >= WATCH_AFTER && self.poll_ends.is_some_and(|ends| now < ends)
    }

    fn record_answer(&mut self, something: bool) {
        self.had_messages = something;
        self.empty_answers = if something { 0 } else { self.empty_answers.saturating_add(1) };
    }

    fn begin_poll(&mut self, now: Instant, longest_secs: u64) -> u64 {
        let wait_secs = (self.waited_secs / WAIT_SHARE).min(LONGEST_POLL_SECS).min(longest_secs).max(1);
        self.poll_ends = Some(now + Duration::from_secs(wait_secs));
        wait_secs
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.wanted == 0
            && self.levels.iter().all(|level| level.poll_ends.is_none() && level.buffered.is_empty())
    }

    fn level(&mut self, level: u8) -> Option<&mut Level> {
        self.levels.get_mut(usize::from(level))
    }
}

/// A long poll to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongPoll {
    pub(crate) level: u8,
    pub(crate) wait_secs: u64,
    pub(crate) max: usize,
}

impl PollState {
    fn new(levels: u8) -> Self {
        let level = || Level {
            poll_ends: None,
            waited_secs: 0,
            buffered: VecDeque::new(),
            had_messages: false,
            empty_answers: 0,
        };
        let levels = (0..levels).map(|_| level()).collect();
        let pulled = Instant::now();
        let state =
            State { wanted: 0, failures: 0, last_failure: None, levels, pulled, one_at_a_time_until: None };
        Self { state: Mutex::new(state), changed: Notify::new(), releasing: tokio::sync::Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a pull that waits for up to `max` messages, until the returned value is dropped.
    pub(crate) fn join(self: &Arc<Self>, max: usize) -> Waiting {
        let mut state = self.lock();
        state.wanted += max;
        state.pulled = Instant::now();
        Waiting { seen_failures: state.failures, poll_state: self.clone(), max }
    }

    /// Whether a level had messages when it was last asked.
    pub(crate) fn had_messages(&self, level: u8) -> bool {
        self.lock().level(level).is_some_and(|level| level.had_messages)
    }

    /// Whether a poll is in progress that would have brought a level's messages.
    pub(crate) fn is_watched(&self, level: u8) -> bool {
        self.lock().level(level).is_some_and(|level| level.is_watched(Instant::now()))
    }

    /// Records whether a level had messages.
    pub(crate) fn record_answer(&self, level: u8, something: bool) {
        if let Some(level) = self.lock().level(level) {
            level.record_answer(something);
        }
    }

    /// Records that several messages of a group were received together and had to be released.
    pub(crate) fn receive_one_at_a_time(&self) {
        self.lock().one_at_a_time_until = Some(Instant::now() + ONE_AT_A_TIME_FOR);
    }

    /// Returns how many messages to request at once, at most `most`.
    pub(crate) fn request_size(&self, most: usize) -> usize {
        let is_one_at_a_time = self.lock().one_at_a_time_until.is_some_and(|until| Instant::now() < until);
        if is_one_at_a_time { 1 } else { most }
    }

    /// Buffers messages for the next pull.
    pub(crate) fn buffer(&self, received: Vec<Received>) {
        let mut state = self.lock();
        for mut received in received {
            received.arrived = Instant::now();
            if let Some(level) = state.level(received.claim.level_queue.level) {
                level.buffered.push_back(received);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Removes and returns buffered messages of a level.
    pub(crate) fn take_buffered(&self, level: u8, max: usize) -> Vec<Received> {
        let mut state = self.lock();
        let Some(level) = state.level(level) else { return Vec::new() };
        let count = level.buffered.len().min(max);
        level.buffered.drain(..count).collect()
    }

    /// Marks polls as in progress at all levels without one. The caller must start them.
    pub(crate) fn start_polls(&self, longest_secs: u64) -> Vec<LongPoll> {
        let mut state = self.lock();
        // All polls together bring at most one message per level more than wanted.
        let max = state.wanted.div_ceil(state.levels.len().max(1)).max(1);
        begin_polls(&mut state, max, longest_secs, |_| true)
    }

    /// Does the same only at levels that were empty many times in a row, for one message each.
    pub(crate) fn start_watches(&self, longest_secs: u64) -> Vec<LongPoll> {
        begin_polls(&mut self.lock(), 1, longest_secs, |level| level.empty_answers >= WATCH_AFTER)
    }

    /// Returns when the last poll in progress ends by itself.
    pub(crate) fn polls_end(&self) -> Option<Instant> {
        self.lock().levels.iter().filter_map(|level| level.poll_ends).max()
    }

    /// Records that a poll ended. Its messages are buffered for the next pull.
    pub(crate) fn finish_poll(&self, poll: LongPoll, answer: Result<Vec<Received>, Error>) {
        let LongPoll { level, wait_secs, .. } = poll;
        let mut state = self.lock();
        let was_wanted = state.wanted > 0 || state.pulled.elapsed() < Duration::from_secs(wait_secs);
        let failed = match answer {
            Ok(received) => {
                if let Some(level) = state.level(level)
                    && !received.is_empty()
                {
                    level.record_answer(true);
                    level.buffered.extend(received);
                }
                None
            }
            Err(error) => Some(error),
        };
        if let Some(level) = state.level(level) {
            level.poll_ends = None;
            level.waited_secs = if was_wanted { level.waited_secs + wait_secs } else { 0 };
        }
        if failed.is_some() {
            state.failures += 1;
            state.last_failure = failed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Removes messages that were buffered before this moment. Returns `None` if a pull is about to take
    /// them, in which case the caller must try again.
    pub(crate) fn take_unwanted(&self, before: Instant) -> Option<Vec<Received>> {
        let mut state = self.lock();
        let is_old = |received: &&Received| received.arrived <= before;
        let is_any = state.levels.iter().any(|level| level.buffered.iter().any(|received| is_old(&received)));
        if is_any && state.wanted > 0 && before.elapsed() < MAX_BUFFERED_FOR {
            return None;
        }
        let mut unwanted = Vec::new();
        for level in &mut state.levels {
            let count = level.buffered.iter().take_while(is_old).count();
            unwanted.extend(level.buffered.drain(..count));
        }
        Some(unwanted)
    }
}

fn begin_polls(
    state: &mut State,
    max: usize,
    longest_secs: u64,
    which: impl Fn(&Level) -> bool,
) -> Vec<LongPoll> {
    let now = Instant::now();
    let idle = (0_u8..).zip(&mut state.levels).filter(|(_, level)| level.poll_ends.is_none() && which(level));
    idle.map(|(number, level)| LongPoll {
        level: number,
        wait_secs: level.begin_poll(now, longest_secs),
        max,
    })
    .collect()
}

/// A waiting pull.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) poll_state: Arc<PollState>,
    max: usize,
    seen_failures: u64,
}

impl Waiting {
    /// The error of a poll that failed since the wait began.
    pub(crate) fn failure(&self) -> Option<Error> {
        let state = self.poll_state.lock();
        if state.failures == self.seen_failures { None } else { state.last_failure.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.poll_state.lock().wanted -= self.max;
    }
}
