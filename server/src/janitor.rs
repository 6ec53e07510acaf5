//! Background work that does not depend on requests: deliveries whose leases have ended, and workers that are
//! silent.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

/// How often expired entries are forgotten.
const SWEEP: Duration = Duration::from_secs(1);
/// How often, at least, silent workers are looked for.
const WATCH: Duration = Duration::from_secs(5);

/// Forgets expired entries, until the service ends.
pub(crate) async fn forget(app: Arc<App>) {
    while !app.ending.is_cancelled() {
        tokio::time::sleep(SWEEP).await;
        app.pins.sweep();
        app.handed.sweep();
        app.pulls.sweep();
    }
}

/// Looks for silent workers, until the service ends. Workers of this library do that among themselves; those
/// in other languages need somebody to do it.
pub(crate) async fn watch(app: Arc<App>) {
    // A read-only service removes nobody.
    let Some(registry) = app.registry().ok().filter(|_| !app.read_only) else { return };
    tokio::select! {
        () = app.ending.cancelled() => {}
        () = registry.watch(app.queue.clock(), WATCH) => {}
    }
}
