//! The end of a run: take on nothing new, release what has not started, wait for running tasks, then ask them
//! to stop.

use std::time::Duration;

use anyqueue::QueueMessageStatus;
use futures_util::StreamExt;

use super::partition::Ready;
use super::state::Fetch;
use crate::runner::LATE;
use crate::shared::{Shared, Stage};
use crate::summary::Outcome;

/// How long it may take to release what has not started, and to make the last settlements after everything
/// has ended.
const LAST_CALLS: Duration = Duration::from_secs(5);

impl Fetch {
    /// Ends the run. Returns how many tasks are left running because their handlers cannot be stopped.
    pub(super) async fn drain(&mut self) -> usize {
        self.shared.pool.eager.store(true, std::sync::atomic::Ordering::SeqCst);
        for partition in &self.partitions {
            partition.settle_pulls.set_open(false);
        }
        self.release_unstarted_in_time().await;
        let shared = self.shared.clone();
        let left = tokio::select! { left = end_running(&shared) => left, left = self.attend() => left };
        // The last settlements may have brought more messages.
        self.release_unstarted_in_time().await;
        left
    }

    async fn release_unstarted_in_time(&mut self) {
        let shared = self.shared.clone();
        tokio::select! { () = self.release_unstarted() => {}, () = shared.queue.clock().sleep(LAST_CALLS) => {} }
    }

    /// Lets the pulls under way end, and releases everything that has not started.
    async fn release_unstarted(&mut self) {
        self.stop_pulls(|_, pull| pull.waits());
        // First what is there: a pull may hang.
        self.release_ready().await;
        while let Some(pulled) = self.pulls.next().await {
            self.finish_pull(pulled);
        }
        self.release_ready().await;
    }

    async fn release_ready(&mut self) {
        self.hold_refills(self.shared.queue.clock().now());
        let ready = self.partitions.iter_mut().flat_map(|partition| partition.ready.drain(..));
        let mut held: Vec<_> = ready.flat_map(Ready::into_deliveries).collect();
        let all = held.iter_mut().map(|delivery| (delivery, QueueMessageStatus::Waiting));
        for result in self.shared.queue.settle_many(all).await {
            match result {
                Ok(_) => self.shared.tally.count(Outcome::Released),
                Err(error) => {
                    tracing::debug!(%error, "not released: the message comes back when its lease ends");
                }
            }
        }
    }

    /// Looks after what waits to be started or settled, as the fetch loop did before: the runner that should come
    /// back for it may be held up by a handler that blocks its thread. And lets go of what settlements and pulls
    /// bring that were under way: others should not wait for it until the last task has ended. Never returns.
    async fn attend(&mut self) -> usize {
        let shared = self.shared.clone();
        loop {
            shared.runs.add(&shared, []);
            self.hold_refills(shared.queue.clock().now());
            for partition in &mut self.partitions {
                for delivery in partition.ready.drain(..).flat_map(Ready::into_deliveries) {
                    shared.tally.count(Outcome::Released);
                    drop(delivery); // which releases it, without a wait
                }
            }
            tokio::select! {
                Some(pulled) = self.pulls.next() => self.finish_pull(pulled),
                () = shared.queue.clock().sleep(LATE) => {}
            }
        }
    }
}

/// Waits for running tasks, then asks them to stop. Returns how many are left.
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
    let left = shared.pool.tasks();
    if left > 0 {
        tracing::error!(left, "tasks are left running: their handlers block and cannot be stopped");
    }
    left
}
