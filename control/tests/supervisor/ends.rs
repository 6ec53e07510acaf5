//! The end of a supervisor, in order and otherwise.

use std::time::{Duration, Instant};

use crate::bed::{Bed, end, quick, start};

/// Says when it is there, and ends in order when it is told to.
const HEEDS: &str = "trap 'echo bye >> ended; exit 0' TERM; echo $0 >> begun; while :; do sleep 0.02; done";

#[tokio::test]
async fn a_shutdown_tells_all_and_waits_for_them() {
    let bed = Bed::new();
    let supervisor = bed.supervisor(&["a", "b", "c"], HEEDS, quick());
    let running = start(&supervisor);
    bed.until_lines("begun", 3).await;
    supervisor.shutdown();
    let report = end(running).await.unwrap();
    assert_eq!((report.started, report.failed, report.killed), (3, 0, 0));
    assert_eq!(bed.lines("ended").len(), 3);
}

#[tokio::test]
async fn what_does_not_heed_a_shutdown_is_killed_after_the_grace() {
    let bed = Bed::new();
    let grace = Duration::from_millis(300);
    let script = "trap '' TERM; echo $0 >> begun; while :; do sleep 0.02; done";
    let supervisor = bed.supervisor(&["a"], script, quick().with_grace(grace));
    let running = start(&supervisor);
    bed.until_lines("begun", 1).await;
    let told = Instant::now();
    supervisor.shutdown();
    assert_eq!(end(running).await.unwrap().killed, 1);
    assert!(told.elapsed() >= grace);
}

#[tokio::test]
async fn one_that_is_stopped_by_a_signal_is_killed_after_the_grace_too() {
    let bed = Bed::new();
    let options = quick().with_grace(Duration::from_millis(300));
    let supervisor = bed.supervisor(&["a"], "echo $$ >> begun; kill -STOP $$", options);
    let running = start(&supervisor);
    bed.until_lines("begun", 1).await;
    supervisor.shutdown();
    // It may have died of SIGTERM before it stopped itself.
    assert_eq!(end(running).await.unwrap().failed, 0);
}

#[tokio::test]
async fn hurrying_tells_them_once_more() {
    let bed = Bed::new();
    let script = "trap 'echo told >> told' TERM; echo $0 >> begun; while [ \"$(wc -l < told)\" != 2 ]; do sleep 0.02; done; exit 0";
    std::fs::write(bed.path("told"), "").unwrap();
    let supervisor = bed.supervisor(&["a"], script, quick());
    let running = start(&supervisor);
    bed.until_lines("begun", 1).await;
    supervisor.shutdown();
    bed.until_lines("told", 1).await;
    supervisor.shutdown_now();
    assert_eq!(end(running).await.unwrap().killed, 0);
}

#[tokio::test]
async fn a_shutdown_ends_a_pause() {
    let bed = Bed::new();
    let hour = Duration::from_hours(1);
    let supervisor = bed.supervisor(&["a"], "echo x >> begun; exit 1", quick().with_pauses(hour, hour));
    let running = start(&supervisor);
    bed.until_lines("begun", 1).await;
    crate::bed::until("it has failed", || bed.events.lock().unwrap().get(1).cloned()).await;
    supervisor.shutdown();
    assert_eq!(end(running).await.unwrap().failed, 1);
}

#[tokio::test]
async fn when_the_supervisor_is_gone_the_pipe_of_each_process_closes() {
    let bed = Bed::new();
    let script = "echo $0 >> begun; cat; echo $0 >> ended";
    let supervisor = bed.supervisor(&["a", "b"], script, quick());
    let running = start(&supervisor);
    bed.until_lines("begun", 2).await;
    assert!(bed.lines("ended").is_empty(), "while it is there they wait");
    running.abort();
    bed.until_lines("ended", 2).await;
}
