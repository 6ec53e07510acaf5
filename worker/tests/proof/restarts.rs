//! A server that dies, freezes or is cut off under the same worker.

use std::time::{Duration, Instant};

use anyqueue_testkit::{Error, Fault};

use crate::grounds::{FaultTarget, Ground, LEASE, PARTITION};
use crate::load::{Runs, builder, counting, empty, push, run, total};

const TASKS: u32 = 300;
const MOMENT: Duration = Duration::from_millis(300);
/// Longer than any pause between two pulls.
const HEALED: Duration = Duration::from_secs(30);

type Harmed = Result<(), Error>;

/// All tasks are done by one worker, whatever befalls its server meanwhile.
async fn outlives(ground: &Ground, harm: impl AsyncFnOnce(&FaultTarget) -> Harmed) {
    let queue = ground.open().await;
    let runs = Runs::default();
    push(&queue, 0..TASKS).await;
    let worker = counting(builder(&queue).slots(4).max_crashes(100), &runs, Duration::from_millis(20));
    let run = run(&worker);
    tokio::time::sleep(MOMENT).await;
    harm(ground.target.as_ref().unwrap()).await.unwrap();
    // What was pulled when the server failed comes back when its lease ends.
    while queue.counts(PARTITION).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    empty(&queue, TASKS as usize, || total(&runs)).await;
    // A pull that failed last is made again after a pause.
    let since = Instant::now();
    while !worker.health().failing.is_empty() {
        assert!(since.elapsed() < HEALED, "{:?}", worker.health());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.shutdown();
    let summary = run.await.unwrap();
    assert_eq!(summary.abandoned, 0);
    assert_eq!(runs.lock().unwrap().len(), TASKS as usize, "tasks were lost");
}

pub(crate) async fn a_worker_outlives_the_server(ground: Ground) {
    let twice = async |target: &FaultTarget| {
        for _ in 0..2 {
            target.end().await?;
            tokio::time::sleep(MOMENT).await;
            target.server.restart().await?;
            tokio::time::sleep(MOMENT).await;
        }
        Ok(())
    };
    outlives(&ground, twice).await;
}

pub(crate) async fn a_worker_outlives_a_frozen_server(ground: Ground) {
    let frozen = async |target: &FaultTarget| {
        target.server.freeze().await?;
        tokio::time::sleep(LEASE * 3).await; // every lease ends meanwhile
        target.server.thaw().await
    };
    outlives(&ground, frozen).await;
}

pub(crate) async fn a_worker_outlives_cut_and_stalled_connections(ground: Ground) {
    let cut = async |target: &FaultTarget| {
        for _ in 0..5 {
            target.proxy.reset_all();
            tokio::time::sleep(MOMENT / 3).await;
        }
        for fault in [Fault::Stall, Fault::DropReplies] {
            target.proxy.set(fault).await?;
            tokio::time::sleep(LEASE).await;
            target.proxy.reset_all();
            target.proxy.set(Fault::Pass).await?;
            tokio::time::sleep(MOMENT).await;
        }
        Ok(())
    };
    outlives(&ground, cut).await;
}
