//! Runs schedules alongside other work.

use anyqueue::CancellationToken;
use anyqueue_control::cron::Scheduler;

/// Does the work, and meanwhile runs the schedules, if there is a scheduler.
pub(crate) async fn with_schedules<T>(scheduler: Option<Scheduler>, work: impl Future<Output = T>) -> T {
    let Some(scheduler) = scheduler else { return work.await };
    let stop = CancellationToken::new();
    let work = async {
        let _stops_them = stop.clone().drop_guard();
        work.await
    };
    tokio::join!(work, scheduler.run(stop.cancelled())).0
}
