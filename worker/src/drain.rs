//! The end of a run: nothing new, release, wait, ask to stop, release what was interrupted.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus;
use futures_util::StreamExt;

use crate::fetch::Fetch;
use crate::runner::LATE;
use crate::shared::{Shared, Stage};
use crate::summary::Outcome;

/// How long releasing what has not started may take, and the last settlements after everything has ended.
const LAST_CALLS: Duration = Duration::from_secs(5);

impl Fetch {
    /// Ends the run; returns how many tasks are left, whose handlers cannot be stopped.
    pub(crate) async fn drain(&mut self) -> usize {
        self.shared.pool.eager.store(true, std::sync::atomic::Ordering::SeqCst);
        for lane in &self.lanes {
            lane.refills.set_open(false);
        }
        self.give_back_in_time().await;
        let shared = self.shared.clone();
        let left = tokio::select! { left = end_running(&shared) => left, left = attend(&shared) => left };
        // Settlements that were under way may have brought more.
        self.give_back_in_time().await;
        left
    }

    async fn give_back_in_time(&mut self) {
        let shared = self.shared.clone();
        tokio::select! { () = self.give_back() => {}, () = shared.queue.clock().sleep(LAST_CALLS) => {} }
    }

    /// Lets the pulls under way end, and releases everything that has not started.
    async fn give_back(&mut self) {
        for lane in &self.lanes {
            if let Some(pull) = lane.pull.as_ref().filter(|pull| pull.granted == 0) {
                pull.stop.cancel();
            }
        }
        while let Some(answer) = self.pulls.next().await {
            self.answered(answer);
        }
        self.hold_refills(self.shared.queue.clock().now());
        let mut held: Vec<_> =
            self.lanes.iter_mut().flat_map(|lane| lane.ready.drain(..)).map(|ready| ready.delivery).collect();
        let all = held.iter_mut().map(|delivery| (delivery, QueueMessageStatus::Waiting));
        for answer in self.shared.queue.settle_many(all).await {
            match answer {
                Ok(_) => self.shared.tally.count(Outcome::Returned),
                Err(error) => tracing::debug!(%error, "a message could not be given back; its lease ends it"),
            }
        }
    }
}

/// Looks after what waits to be begun or settled, as the fetch loop did before: whoever should come back for it may be kept by a
/// handler that blocks its thread. Never ends.
async fn attend(shared: &Arc<Shared>) -> usize {
    loop {
        shared.runs.add(shared, []);
        shared.queue.clock().sleep(LATE).await;
    }
}

/// Waits for what runs, then asks it to stop. Returns how many tasks are left.
async fn end_running(shared: &Shared) -> usize {
    let clock = shared.queue.clock();
    let mut stage = shared.stage.subscribe();
    tokio::select! {
        () = shared.pool.idle() => return 0,
        () = clock.sleep(shared.config.drain) => {}
        _ = stage.wait_for(|stage| *stage == Stage::Cancelling) => {}
    }
    shared.stage.send_replace(Stage::Cancelling);
    tokio::select! {
        () = shared.pool.idle() => return 0,
        () = clock.sleep(shared.config.cancel_grace.saturating_add(LAST_CALLS)) => {}
    }
    let left = shared.pool.occupied();
    if left > 0 {
        tracing::error!(left, "tasks are left behind: their handlers block and cannot be stopped");
    }
    left
}
