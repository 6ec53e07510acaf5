//! The timers of a partition's task.

use std::time::{Duration, Instant};

use anyqueue::Result;

use super::Actor;

/// How long after a pull an acknowledgement may be withheld for the next pull, which then needs no new
/// consumer. Sending an acknowledgement earlier costs the consumer. If the process dies before it is sent,
/// its message comes again.
const FLUSH_AFTER: Duration = Duration::from_millis(30);
/// How long unwanted messages and unused credit are kept for the next pull.
const RELEASE_AFTER: Duration = Duration::from_millis(20);
/// How often the connection of a waiting pull is checked.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(200);
/// How long after a connection broke pulls are tried again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long an idle channel is kept open.
const CLOSE_AFTER: Duration = Duration::from_mins(1);

impl Actor {
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let ends = self.waiting.iter().map(|waiting| waiting.until).min();
        let liveness = (!self.waiting.is_empty()).then(|| Instant::now() + LIVENESS_INTERVAL);
        let is_broken = self.channel.is_none() && self.waiting.iter().any(|waiting| waiting.is_retried);
        let retry = is_broken.then(|| Instant::now() + RETRY_AFTER);
        [ends, liveness, retry, self.flush_at, self.release_at, self.idle_at].into_iter().flatten().min()
    }

    pub(super) fn set_timers(&mut self) {
        let Some(channel) = &self.channel else {
            (self.flush_at, self.release_at, self.idle_at) = (None, None, None);
            return;
        };
        let in_a_while = |at: Option<Instant>, wanted: bool, after: Duration| {
            wanted.then(|| at.unwrap_or_else(|| Instant::now() + after))
        };
        // If pulls are rare, acknowledgements do not wait for the next one, since cancelling the consumer
        // then costs little.
        self.flush_at = channel.oldest_pending_ack().map(|since| since.min(self.last_pull) + FLUSH_AFTER);
        let release_after =
            if self.prefetch() > 0 { self.adaptive_prefetch.hold_time() } else { RELEASE_AFTER };
        self.release_at = in_a_while(self.release_at, self.has_excess(channel), release_after);
        self.idle_at = in_a_while(self.idle_at, self.waiting.is_empty() && channel.is_idle(), CLOSE_AFTER);
    }

    /// Runs the timers that are due.
    pub(crate) async fn run_due_timers(&mut self) -> Result<()> {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.flush_at) {
            self.flush_at = None;
            if let Some(channel) = &mut self.channel {
                channel.flush_acks()?;
            }
        }
        if due(self.release_at) {
            self.release_at = None;
            self.release_excess()?;
        }
        if due(self.idle_at) {
            self.idle_at = None;
            if let Some(channel) = self.channel.take_if(|channel| channel.is_idle()) {
                channel.close().await;
            }
        }
        Ok(())
    }
}
