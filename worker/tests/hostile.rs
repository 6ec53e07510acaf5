//! Application code that misbehaves: the worker survives it, and says what happened.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at anything")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{CancelReason, Governor, Partition, Retry, Room, TaskContext, TaskError};

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a panic in Drop");
    }
}

#[tokio::test]
async fn a_panic_whose_payload_panics_in_drop_is_one_failed_attempt() {
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let harness = Harness::new(|worker| {
        worker.partition(Partition::new("p")).retry(Retry::never()).handler("k", move |(): (), _| {
            let run = count.fetch_add(1, SeqCst);
            async move {
                if run < 3 {
                    std::panic::panic_any(Bomb);
                }
                Ok(())
            }
        })
    })
    .unwrap();
    harness.push("p", "k", &()).await.unwrap();
    let summary = harness.run().await.unwrap();
    assert_eq!((summary.dead, runs.load(SeqCst)), (1, 1), "{summary:?}");
}

#[tokio::test]
async fn a_handler_that_cancels_its_token_was_not_asked_to_stop() {
    let harness = Harness::new(|worker| {
        worker.partition(Partition::new("p")).handler("k", |(): (), task: TaskContext| async move {
            task.token().cancel();
            assert!(!task.token().is_cancelled(), "the next token is cancelled too");
            assert_eq!(task.cancel_reason(), None);
            Err(TaskError::retry(task.cancelled().await.as_str()))
        })
    })
    .unwrap();
    harness.push("p", "k", &()).await.unwrap();
    let watch = async {
        harness.advance(Duration::from_secs(1)).await;
        let running = harness.worker().running();
        harness.worker().shutdown_now();
        harness.advance(Duration::from_secs(1)).await;
        running
    };
    let (summary, running) = tokio::join!(harness.run(), watch);
    assert_eq!(summary.unwrap().interrupted, 1);
    let reasons: Vec<_> = running.iter().map(TaskContext::cancel_reason).collect();
    assert_eq!(reasons, [Some(CancelReason::Shutdown)]);
    assert!(running.iter().all(|task| task.token().is_cancelled()), "a token made later is cancelled too");
}

/// Panics at first.
#[derive(Debug, Default)]
struct Broken(AtomicU32);

impl Governor for Broken {
    fn check(&self) -> Room {
        assert!(self.0.fetch_add(1, SeqCst) > 0, "as the test wants");
        Room::all()
    }
}

#[tokio::test]
async fn a_governor_that_panics_says_no() {
    let harness = Harness::new(|worker| {
        let worker = worker.partition(Partition::new("p")).governor(Broken::default());
        worker.handler("k", |(): (), _| async { Ok(()) })
    })
    .unwrap();
    harness.push("p", "k", &()).await.unwrap();
    let watch = async {
        harness.advance(Duration::from_millis(500)).await;
        let throttled = harness.worker().health().throttled;
        harness.advance(Duration::from_secs(10)).await;
        harness.worker().shutdown();
        throttled
    };
    let run = harness.worker().run_until(std::future::pending());
    let (summary, throttled) = tokio::join!(run, watch);
    assert_eq!(throttled.as_deref(), Some("the governor panicked: as the test wants"));
    assert_eq!(summary.unwrap().processed, 1);
}
