//! The span around a handler, read as an application's subscriber would read it.
//!
//! One test, in a program of its own: tracing decides once for the process whether anybody listens to a call site.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use anyqueue_testkit::recorder::Recorder;
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Partition, TaskContext, task};
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn each_attempt_is_a_span_that_bears_the_pushers_trace_and_so_do_its_children() {
    let recorder = Recorder::default();
    let subscriber = tracing_subscriber::registry().with(recorder.clone());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new(|worker| {
                worker.partition(Partition::new("p")).handler(
                    "k",
                    |left: u32, task: TaskContext| async move {
                        if left > 0 {
                            task.queue().push("p", task.child("k", &(left - 1))?).await?;
                        }
                        Ok(())
                    },
                )
            })
            .unwrap();
            let parent = task("k", &1).unwrap().with_header("traceparent", TRACE);
            harness.push_message("p", parent).await.unwrap();
            assert_eq!(harness.run().await.unwrap().processed, 2);
        });
    });
    let tasks = recorder.spans("anyqueue.task");
    assert_eq!(tasks.len(), 2);
    for task in &tasks {
        assert_eq!(*task.metadata.level(), Level::INFO);
        let told = ["partition", "kind", "attempt", "traceparent"].map(|field| &task.fields[field]);
        assert_eq!(told, ["p", "k", "1", TRACE]);
        assert_eq!(task.fields["id"].len(), 36);
    }
}
