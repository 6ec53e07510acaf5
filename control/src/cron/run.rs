//! The loops of a scheduler.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Error, ErrorKind};
use tokio::task::JoinSet;

use super::outage::{Outage, Part};
use super::scheduler::{Scheduler, Shared};
use super::tick::TICKS;

/// How many ticks one scheduler works on at once.
const AT_ONCE: usize = 32;
/// How long a pull of ticks waits.
const WAIT: Duration = Duration::from_secs(20);
/// How long a tick is kept from others if its process dies or freezes.
const LEASE: Duration = Duration::from_secs(10);
/// The average time between looks at all schedules.
const LOOK: Duration = Duration::from_secs(15);
/// The longest pause after failures; the pause doubles up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the work under way may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

impl Scheduler {
    /// Runs the schedules until `shutdown` completes, or their queue is closed. Any number of processes may
    /// run the same schedules: each time is run by one of them, and there is no leader. While the backend
    /// cannot be reached, it tries again, less and less often, down to every 30 s; it logs one warning.
    ///
    /// # Cancellation
    /// Dropping the future has the effect of the death of the process: others continue, after 10 s for a tick
    /// that was being worked on.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        let (shared, outage) = (&self.0, Outage::default());
        let mut under_way = JoinSet::new();
        tokio::select! {
            biased;
            () = shutdown => {}
            () = shared.fire_all(&mut under_way, &outage) => {}
            () = shared.heal_all(&outage) => {}
        }
        let rest = async { while under_way.join_next().await.is_some() {} };
        tokio::select! { biased; () = rest => {}, () = shared.home.clock().sleep(FAREWELL) => {} }
    }
}

impl Shared {
    async fn fire_all(self: &Arc<Self>, under_way: &mut JoinSet<()>, outage: &Outage) {
        let lease = self.home.capabilities().lease;
        let lease = LEASE.clamp(lease.min, lease.max);
        let mut pause = Pause::default();
        loop {
            while under_way.len() >= AT_ONCE {
                under_way.join_next().await;
            }
            while under_way.try_join_next().is_some() {}
            let room = AT_ONCE - under_way.len();
            match self.home.pull(TICKS).max(room).wait(WAIT).lease(lease).await {
                Ok(ticks) => {
                    pause = Pause::default();
                    outage.answers(Part::Ticks);
                    for tick in ticks {
                        let shared = Arc::clone(self);
                        under_way.spawn(async move { shared.fire(tick).await });
                    }
                }
                Err(error) if is_end(&error) => return,
                Err(error) => {
                    outage.fails(Part::Ticks, &error);
                    self.home.clock().sleep(pause.next()).await;
                }
            }
        }
    }

    async fn heal_all(&self, outage: &Outage) {
        let mut pause = Pause::default();
        loop {
            let wait = match self.heal().await {
                Ok(()) => {
                    pause = Pause::default();
                    outage.answers(Part::Entries);
                    jittered(LOOK)
                }
                Err(error) if is_end(&error) => return,
                Err(error) => {
                    outage.fails(Part::Entries, &error);
                    pause.next()
                }
            };
            self.home.clock().sleep(wait).await;
        }
    }
}

fn is_end(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed
}

/// Between three quarters and five quarters of the mean, so that many processes do not look at the same time
/// forever.
fn jittered(mean: Duration) -> Duration {
    mean.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// The pauses after failures in a row.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(Duration::from_millis(500))
    }
}

impl Pause {
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        jittered(pause)
    }
}
