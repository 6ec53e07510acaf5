//! A queue on a file in a tokio runtime whose clock is paused.

use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::{MessageData, Queue, SettleOutcome};

use crate::common::Bed;

#[tokio::test(start_paused = true)]
async fn calls_answer_though_the_paused_clock_would_jump_over_them() {
    let bed = Bed::new().await;
    let queue = Queue::new(bed.queue.clone()).unwrap();
    let really = Instant::now();
    for _ in 0..10 {
        queue.push("p", MessageData::new("x")).await.unwrap();
    }
    let mut held = queue.pull("p").max(10).await.unwrap();
    assert_eq!(held.len(), 10);
    // Kept by the heartbeat, of which there are hundreds meanwhile.
    tokio::time::sleep(Duration::from_hours(1)).await;
    for delivery in &mut held {
        assert_eq!(delivery.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    }
    assert!(queue.pull("p").wait(Duration::from_hours(1)).await.unwrap().is_empty());
    assert!(really.elapsed() < Duration::from_mins(1));
}
