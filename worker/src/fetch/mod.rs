//! The loop that pulls: it takes slots first, and then claims messages for them.

mod drain;
mod groups;
mod limit;
mod overdue;
mod partition;
mod permits;
mod pull;
mod ready;
mod reserve;
mod resize;
mod state;
mod throttle;
mod tick;

use anyqueue::Result;
use futures_util::StreamExt;

pub(crate) use self::state::Fetch;
use crate::shared::Stage;
use crate::summary::Summary;

impl Fetch {
    /// Runs until the worker is told to stop or, in burst mode, until nothing is left.
    pub(crate) async fn run(mut self) -> Result<Summary> {
        let shared = self.shared.clone();
        let mut reached = None;
        while *shared.stage.borrow() == Stage::Working && self.failed.is_none() {
            let now = shared.queue.clock().now();
            self.meter.add(&shared.usage, now);
            if now >= self.next_tick {
                self.tick(now);
            }
            self.take_up_slots(now);
            self.hold_refills(now);
            self.start_ready(&self.suspended());
            let suspended = self.suspended(); // what has started may have been the last
            self.open_refills(&suspended);
            self.release_overdue(now, &suspended);
            self.start_pulls(now, &suspended);
            reached = self.reached();
            if reached.is_some() || self.burst && self.is_done(&suspended) {
                break;
            }
            self.meter.begin(&shared.usage, now, |partition| shared.pool.slots_in(partition));
            let wake = self.wake_at(now);
            tokio::select! {
                Some(pulled) = self.pulls.next() => self.finish_pull(pulled),
                () = shared.pool.changed.notified() => {}
                () = permits::changed(&shared) => {}
                () = shared.queue.clock().sleep_until(wake) => {}
            }
        }
        let abandoned = self.drain().await;
        match self.failed {
            Some(error) => Err(error),
            None => Ok(Summary { reached, ..shared.tally.summary(abandoned) }),
        }
    }
}
