//! When it is looked for the dead.

use std::time::{Duration, Instant};

use anyqueue::Clock;
use anyqueue::control::Key;

use super::Registry;
use super::sweep::Seen;
use super::usage::Elsewhere;

/// How many living workers look as often as each alone would. Of more, each looks less often, so that the store is not asked more the more there are.
const WATCHERS: f64 = 8.0;
/// How long a look may take of somebody who has nothing else to do.
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How often one page is tried in a row. Then the round begins anew: what cannot be looked at is not to keep others from being looked at.
const TRIES: u32 = 3;

/// Where somebody looks next, and when.
#[derive(Debug)]
pub(super) struct Watch {
    at: Instant,
    after: Option<Key>,
    /// How often the next page was tried.
    tries: u32,
    valid_for: Duration,
    /// What the workers of the pages so far use.
    elsewhere: Elsewhere,
}

/// How far a look has come.
#[derive(Debug)]
pub(super) enum Looked {
    /// The round goes on.
    Page,
    /// It was the last page of a round: so much do all others use.
    Round(Elsewhere),
}

impl Registry {
    /// Looks for workers that are silent, and removes them, until it is dropped: members do that among themselves, and those who [admit](Self::admit) others
    /// do it for them. At least once in `every`, if few workers live; what fails, the next look makes up for.
    pub async fn watch(&self, clock: &Clock, every: Duration) {
        let mut watch = Watch::new(clock.now(), every);
        loop {
            clock.sleep_until(watch.at).await;
            let late = clock.sleep(LONGEST_LOOK);
            tokio::select! { _ = watch.look(self, clock, None) => {}, () = late => {} }
        }
    }
}

impl Watch {
    /// Begins somewhere within the time that a beat counts: members that start together do not look together.
    pub(super) fn new(now: Instant, valid_for: Duration) -> Self {
        Self {
            at: now + valid_for.mul_f64(fastrand::f64()),
            after: None,
            tries: 0,
            valid_for,
            elsewhere: Elsewhere::new(),
        }
    }

    /// Looks through one page, if it is time to. One that fails, or is dropped, is tried again with the next look: so a round of many pages ends, too.
    pub(super) async fn look(
        &mut self,
        registry: &Registry,
        clock: &Clock,
        own: Option<&Key>,
    ) -> Option<Looked> {
        let now = clock.now();
        if now < self.at {
            return None;
        }
        self.at = now + self.valid_for;
        if self.tries >= TRIES {
            (self.after, self.tries) = (None, 0);
        }
        self.tries += 1;
        if self.after.is_none() {
            self.elsewhere.clear();
        }
        let seen = registry.sweep_page(self.after.clone(), own).await.ok()?;
        (self.at, self.tries) = (now + self.until_next(&seen), 0);
        for (partition, slots) in seen.elsewhere {
            *self.elsewhere.entry(partition).or_default() += slots;
        }
        self.after = seen.next;
        let is_last = self.after.is_none();
        Some(if is_last { Looked::Round(std::mem::take(&mut self.elsewhere)) } else { Looked::Page })
    }

    /// Until the first of those seen will have been silent for too long, if it stays silent.
    fn until_next(&self, seen: &Seen) -> Duration {
        let first = seen.first_lapse.unwrap_or(self.valid_for).min(self.valid_for);
        #[allow(clippy::cast_precision_loss, reason = "a page has at most 100 entries")]
        let crowd = seen.living as f64 / WATCHERS;
        if crowd <= 1.0 {
            return first;
        }
        // By chance, or all would look at once and then nobody for long.
        first.mul_f64(crowd * (0.5 + fastrand::f64())).min(self.valid_for.saturating_mul(2))
    }
}
