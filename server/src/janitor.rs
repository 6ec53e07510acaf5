//! What has to be looked after, whoever asks: deliveries whose leases have ended, and workers that are silent.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

/// How often what has ended is forgotten.
const SWEEP: Duration = Duration::from_secs(1);
/// How often, at least, it is looked for workers that are silent.
const WATCH: Duration = Duration::from_secs(5);

/// Forgets what has ended, until the service ends.
pub(crate) async fn forget(app: Arc<App>) {
    while !app.ending.is_cancelled() {
        tokio::time::sleep(SWEEP).await;
        app.pins.sweep();
        app.handed.sweep();
        app.desk.sweep();
    }
}

/// Looks for workers that are silent, until the service ends. Those of this library do that among themselves; those in other languages need somebody.
pub(crate) async fn watch(app: Arc<App>) {
    // One that only reads removes nobody.
    let Some(registry) = app.registry().ok().filter(|_| !app.read_only) else { return };
    tokio::select! {
        () = app.ending.cancelled() => {}
        () = registry.watch(app.queue.clock(), WATCH) => {}
    }
}
