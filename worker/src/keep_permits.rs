//! Keeps the permits of a run as long as one of its tasks runs.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::CancellationToken;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use crate::permits::Permits;
use crate::shared::Shared;

/// How often to check whether the last task that outlives its run has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How long it may take to release everything.
const FAREWELL: Duration = Duration::from_secs(5);

/// Keeps the permits of a run. After it is dropped, they are kept only until no task runs any more.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    ended: DropGuard,
    keeping: JoinHandle<()>,
}

impl Keeper {
    /// Begins to keep permits, if the worker needs any.
    pub(crate) fn begin(shared: &Arc<Shared>) -> Option<Self> {
        let permits = shared.config.permits.clone()?;
        let ended = CancellationToken::new();
        let keeping = tokio::spawn(keep(shared.clone(), permits, ended.clone()));
        Some(Self { shared: shared.clone(), ended: ended.drop_guard(), keeping })
    }

    /// Stops keeping permits, and waits until everything has been released, unless tasks are left running.
    pub(crate) async fn end(self) {
        drop(self.ended);
        if self.shared.pool.occupied() == 0 {
            let _ = self.keeping.await;
        }
    }
}

async fn keep(shared: Arc<Shared>, permits: Arc<dyn Permits>, ended: CancellationToken) {
    let clock = shared.queue.clock();
    let partitions: Vec<_> = shared.partitions.iter().map(|config| config.id.clone()).collect();
    let idle = async {
        ended.cancelled().await;
        while shared.pool.occupied() > 0 {
            clock.sleep(LOOK).await;
        }
    };
    let kept = permits.keep(&shared.config.name, &partitions, clock);
    tokio::select! { () = kept => {}, () = idle => {} }
    tokio::select! { () = permits.leave() => {}, () = clock.sleep(FAREWELL) => {} }
}
