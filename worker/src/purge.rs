//! Deletes the ends of tasks once they have been kept long enough.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::ErrorKind;

use crate::shared::{Shared, Stage};

/// The approximate time between purges. It varies at random, so that many workers do not purge together.
const PAUSE: Duration = Duration::from_mins(1);
const JITTER: f64 = 0.25;
/// How many ends one purge deletes at most.
const FREED_AT_ONCE: u64 = 5_000;
/// The pause after a purge that deleted that many: there are most likely more.
const PAUSE_IF_FULL: Duration = Duration::from_secs(1);

/// Purges now and then, until the worker takes on nothing more. A purge under way is abandoned then.
pub(crate) async fn purge_ended(shared: Arc<Shared>) {
    if !shared.queue.keeps_ends() {
        return;
    }
    let mut stage = shared.stage.subscribe();
    tokio::select! {
        biased;
        _ = stage.wait_for(|stage| *stage != Stage::Working) => {}
        () = purge_on(&shared) => {}
    }
}

/// Returns only when the queue is closed, or turns out to keep no ends.
async fn purge_on(shared: &Shared) {
    let clock = shared.queue.clock();
    loop {
        clock.sleep_until(due(shared)).await;
        let pause = match shared.queue.purge_ended(FREED_AT_ONCE).await {
            Ok(FREED_AT_ONCE) => PAUSE_IF_FULL,
            Ok(freed) => {
                tracing::debug!(freed, "ends of tasks were freed");
                pause()
            }
            Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Unsupported) => return,
            Err(error) => {
                tracing::warn!(%error, "expired ends of tasks could not be freed: trying again");
                pause()
            }
        };
        shared.control().purge_at = clock.now().checked_add(pause);
    }
}

/// When the next purge is due. The first one is within a minute of the first run, even if other runs follow.
fn due(shared: &Shared) -> Instant {
    let now = shared.queue.clock().now();
    let first = PAUSE.mul_f64(fastrand::f64());
    *shared.control().purge_at.get_or_insert_with(|| now.checked_add(first).unwrap_or(now))
}

fn pause() -> Duration {
    PAUSE.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}
