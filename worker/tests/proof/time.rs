//! Leases: what takes longer than one, and what keeps the executor from renewing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use anyqueue::{IoThread, Queue};
use tokio::sync::mpsc;

use crate::grounds::{Ground, LEASE, PARTITION, options};
use crate::load::{builder, empty, push, run};

pub(crate) async fn a_handler_that_outlives_its_lease_runs_once(ground: Ground) {
    let queue = ground.open().await;
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let handler = move |_: u32, _| {
        count.fetch_add(1, SeqCst);
        async {
            tokio::time::sleep(LEASE * 3).await;
            Ok(())
        }
    };
    let worker = builder(&queue).handler("k", handler).build().unwrap();
    push(&queue, 0..4).await;
    let run = run(&worker);
    empty(&queue, 4, || runs.load(SeqCst) as usize).await;
    worker.shutdown();
    let summary = run.await.unwrap();
    assert_eq!((summary.processed, summary.lost, runs.load(SeqCst)), (4, 0, 4));
}

/// The one thread of the worker's runtime computes for three leases; the queue's own thread renews.
pub(crate) async fn a_blocked_executor_loses_no_lease(ground: Ground) {
    let io = IoThread::start().unwrap();
    let url = ground.url.clone();
    let storage = io.run(async move { anyqueue_backends::open(&url).await }).await.unwrap().unwrap();
    let queue = Queue::builder(storage).defaults(options()).io(&io).build().unwrap();
    queue.init().await.unwrap();
    push(&queue, 0..1).await;
    let (begun, mut begins) = mpsc::channel(1);
    let blocked = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let handler = move |_: u32, _| {
                begun.try_send(()).unwrap();
                std::thread::sleep(LEASE * 3);
                async { Ok(()) }
            };
            let worker = builder(&queue).handler("k", handler).build().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(worker.run_once()).unwrap()
        }
    });
    begins.recv().await.unwrap();
    while !blocked.is_finished() {
        assert_eq!(
            queue.pull(PARTITION).wait(LEASE / 10).await.unwrap().len(),
            0,
            "somebody else got the task"
        );
    }
    let summary = tokio::task::spawn_blocking(|| blocked.join().unwrap()).await.unwrap();
    assert_eq!((summary.processed, summary.lost), (1, 0));
    empty(&queue, 1, || 1).await;
}
