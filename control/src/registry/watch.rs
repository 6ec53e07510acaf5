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

/// Where somebody looks next, and when.
#[derive(Debug)]
pub(super) struct Watch {
    at: Instant,
    after: Option<Key>,
    valid_for: Duration,
    /// What the workers of the pages so far use.
    elsewhere: Elsewhere,
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
            valid_for,
            elsewhere: Elsewhere::new(),
        }
    }

    /// Looks through one page, if it is time to. What fails, another member or the next look makes up for. After the last page it returns what all others use.
    pub(super) async fn look(
        &mut self,
        registry: &Registry,
        clock: &Clock,
        own: Option<&Key>,
    ) -> Option<Elsewhere> {
        let now = clock.now();
        if now < self.at {
            return None;
        }
        self.at = now + self.valid_for;
        let after = self.after.take();
        if after.is_none() {
            self.elsewhere.clear();
        }
        let seen = registry.sweep_page(after, own).await.ok()?;
        self.at = now + self.until_next(&seen);
        for (partition, slots) in seen.elsewhere {
            *self.elsewhere.entry(partition).or_default() += slots;
        }
        self.after = seen.next;
        self.after.is_none().then(|| std::mem::take(&mut self.elsewhere))
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
