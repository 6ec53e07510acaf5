//! The span around a handler, read as an application's subscriber would read it.
//!
//! One test, in a program of its own: tracing decides once for the process whether anybody listens to a call site.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Partition, TaskContext, task};
use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The fields of each span named `anyqueue.task`.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl<S: Subscriber> Layer<S> for Tasks {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "anyqueue.task" {
            assert_eq!(*attributes.metadata().level(), Level::INFO);
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").replace('"', ""));
    }
}

#[test]
fn each_attempt_is_a_span_that_bears_the_pushers_trace_and_so_do_its_children() {
    let tasks = Tasks::default();
    let subscriber = tracing_subscriber::registry().with(tasks.clone());
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
    let tasks = tasks.0.lock().unwrap();
    assert_eq!(tasks.len(), 2);
    for task in tasks.iter() {
        let told = [&task["partition"], &task["kind"], &task["attempt"], &task["traceparent"]];
        assert_eq!(told, ["p", "k", "1", TRACE]);
        assert_eq!(task["id"].len(), 36);
    }
}
