//! When to look for dead workers.

use std::time::{Duration, Instant};

use anyqueue::Clock;
use anyqueue::control::Key;

use super::Registry;
use super::sweep::Seen;
use super::usage::Elsewhere;

/// How many living workers look as often as one alone would. If there are more, each looks less often, so
/// that the load on the store does not grow with their number.
const WATCHERS: f64 = 8.0;
/// How long a look may take if the caller has nothing else to do.
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How often one page is tried in a row. Then the round starts over: a page that cannot be read must not keep
/// the others from being read.
const TRIES: u32 = 3;

/// Where to look next, and when.
#[derive(Debug)]
pub(super) struct Watch {
    at: Instant,
    after: Option<Key>,
    /// How often the next page was tried.
    tries: u32,
    valid_for: Duration,
    /// What the workers on the pages so far use.
    elsewhere: Elsewhere,
}

/// How far a look has come.
#[derive(Debug)]
pub(super) enum Looked {
    /// The round continues.
    Page,
    /// This was the last page of a round: this is how much all others use.
    Round(Elsewhere),
}

impl Registry {
    /// Looks for workers that are silent, and removes them, until the future is dropped. Members do this
    /// among themselves; a service that [admits](Self::admit) workers does it for them. It looks at least
    /// once per `every` if few workers are alive; the next look makes up for one that fails.
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
    /// Begins at a random moment within the validity of a beat, so that members that start together do not
    /// look together.
    pub(super) fn new(now: Instant, valid_for: Duration) -> Self {
        Self {
            at: now + valid_for.mul_f64(fastrand::f64()),
            after: None,
            tries: 0,
            valid_for,
            elsewhere: Elsewhere::new(),
        }
    }

    /// Looks through one page, if it is time to. A page that fails, or whose look is dropped, is tried again
    /// with the next look, so that a round of many pages ends too.
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

    /// The time until the first of the workers seen will have been silent for too long, if it stays silent.
    fn until_next(&self, seen: &Seen) -> Duration {
        let first = seen.first_lapse.unwrap_or(self.valid_for).min(self.valid_for);
        #[allow(clippy::cast_precision_loss, reason = "a page has at most 100 entries")]
        let crowd = seen.living as f64 / WATCHERS;
        if crowd <= 1.0 {
            return first;
        }
        // At random: otherwise all would look at once, and then nobody for a long time.
        first.mul_f64(crowd * (0.5 + fastrand::f64())).min(self.valid_for.saturating_mul(2))
    }
}
