//! What a partition's task does by time.

use std::time::{Duration, Instant};

use anyqueue::Result;

use super::Actor;

/// How long after a pull a removal may wait for the next that wants as many, so that the server's answer to it is not unwanted. Told before, it costs
/// the consumer its end; and what was not told when this process dies comes again.
const TELL: Duration = Duration::from_millis(30);
/// How long a message that came unasked waits for the next pull, and credit that nobody needs for the next that does.
const SPARE: Duration = Duration::from_millis(20);
/// How often a waiting pull's connection is looked after.
const PULSE: Duration = Duration::from_millis(200);
/// How long after a break pulls are tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// A channel that nobody needs is closed after so long.
const IDLE: Duration = Duration::from_mins(1);

impl Actor {
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let ends = self.waiting.iter().map(|waiting| waiting.until).min();
        let pulse = (!self.waiting.is_empty()).then(|| Instant::now() + PULSE);
        let broke = self.desk.is_none() && self.waiting.iter().any(|waiting| waiting.again);
        let again = broke.then(|| Instant::now() + AGAIN);
        [ends, pulse, again, self.tell_at, self.spare_until, self.idle_at].into_iter().flatten().min()
    }

    pub(super) fn set_timers(&mut self) {
        let Some(desk) = &self.desk else {
            (self.tell_at, self.spare_until, self.idle_at) = (None, None, None);
            return;
        };
        let in_a_while = |at: Option<Instant>, wanted: bool, after: Duration| {
            wanted.then(|| at.unwrap_or_else(|| Instant::now() + after))
        };
        // Pulls that come seldom are not waited for: then it costs little that the consumer ends.
        self.tell_at = desk.removed_since().map(|since| since.min(self.last_pull) + TELL);
        let spare = if self.prefetch() > 0 { self.stock.patience() } else { SPARE };
        self.spare_until = in_a_while(self.spare_until, self.has_excess(desk), spare);
        self.idle_at = in_a_while(self.idle_at, self.waiting.is_empty() && desk.is_idle(), IDLE);
    }

    /// Does what is due by time.
    pub(crate) async fn keep_time(&mut self) -> Result<()> {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.tell_at) {
            self.tell_at = None;
            if let Some(desk) = &mut self.desk {
                desk.tell_all_removed()?;
            }
        }
        if due(self.spare_until) {
            self.spare_until = None;
            self.let_go()?;
        }
        if due(self.idle_at) {
            self.idle_at = None;
            if let Some(desk) = self.desk.take_if(|desk| desk.is_idle()) {
                desk.close().await;
            }
        }
        Ok(())
    }
}
