//! A server that dies and comes back under the same worker.

use std::time::Duration;

use crate::grounds::Ground;
use crate::load::{Runs, builder, counting, empty, push, run};

pub(crate) async fn a_worker_outlives_the_server(ground: Ground) {
    const TASKS: u32 = 300;
    let queue = ground.open().await;
    let runs = Runs::default();
    push(&queue, 0..TASKS).await;
    let worker = counting(builder(&queue).slots(4).max_crashes(100), &runs, Duration::from_millis(20));
    let run = run(&worker);
    let server = ground.server.as_deref().unwrap();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.restart().await.unwrap();
    }
    // What was pulled when the server died comes back when its lease ends.
    while queue.counts(crate::grounds::PARTITION).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    empty(&queue).await;
    let health = worker.health();
    assert!(health.failing.is_empty(), "{health:?}");
    worker.shutdown();
    let summary = run.await.unwrap();
    assert_eq!(summary.abandoned, 0);
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), TASKS as usize, "tasks were lost");
}
