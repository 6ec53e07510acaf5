//! Ending a run over dead letters while consumers let more messages die all the time.

use std::time::{Duration, Instant, SystemTime};

use crate::clock::Clock;
use crate::message::{MessageData, header};

/// How long a run goes on that finds only messages that died since it began.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a run remembers to find its end. An empty result ends it, but if consumers let every message die,
/// there may never be one; and a small result proves nothing, as a server may answer from a part of itself.
#[derive(Debug)]
pub(super) struct Trickle {
    clock: Clock,
    began: SystemTime,
    since: Option<Instant>,
    /// The most that the backend returns at once.
    page: usize,
}

impl Trickle {
    pub(super) fn new(clock: Clock, page: usize) -> Self {
        Self { began: clock.wall(), clock, since: None, page }
    }

    /// Whether, for a while, there were only letters that died after the run began, and never a full page of
    /// them. A wrong clock where they died may make the run end too early or go on for longer; but full pages
    /// are always processed.
    pub(super) fn is_all<'m>(&mut self, letters: impl ExactSizeIterator<Item = &'m MessageData>) -> bool {
        let is_full = letters.len() >= self.page.max(2);
        if is_full || !letters.into_iter().all(|letter| self.died_since(letter)) {
            self.since = None;
            return false;
        }
        let now = self.clock.now();
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= PATIENCE
    }

    fn died_since(&self, letter: &MessageData) -> bool {
        let died = letter.headers().get(header::DEAD_AT);
        died.and_then(|at| humantime::parse_rfc3339(at).ok()).is_some_and(|at| at > self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn letter(died: SystemTime) -> MessageData {
        let at = humantime::format_rfc3339_millis(died).to_string();
        MessageData::new("x").with_header(header::DEAD_AT, at)
    }

    #[test]
    fn a_run_ends_when_nothing_comes_but_what_died_since() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let mut trickle = Trickle::new(clock.clone(), 100);
        let new = letter(clock.wall() + SECOND);
        assert!(!trickle.is_all([&new].into_iter()));
        manual.advance(PATIENCE.saturating_sub(SECOND));
        assert!(!trickle.is_all([&new].into_iter()));
        manual.advance(SECOND);
        assert!(trickle.is_all([&new, &new].into_iter()));
    }

    #[test]
    fn it_goes_on_where_pages_are_full_or_anything_died_before() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let mut trickle = Trickle::new(clock.clone(), 100);
        let (old, new) = (letter(clock.wall()), letter(clock.wall() + SECOND));
        let undated = MessageData::new("x");
        for page in [vec![&new, &old], vec![&undated], vec![&new; 100]] {
            assert!(!trickle.is_all([&new].into_iter()));
            manual.advance(PATIENCE);
            assert!(!trickle.is_all(page.into_iter()));
        }
        assert!(!trickle.is_all([&new].into_iter()));
    }
}
