//! The spans core opens, read as an application's subscriber would read them.
//!
//! One test, in a program of its own: tracing decides once for the process whether anybody listens to a call site, and a
//! thread without a subscriber that comes there first may decide for all.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::*;
use anyqueue_testkit::recorder::Recorder;
use support::spy;
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;

#[test]
fn each_call_is_a_span_that_names_backend_operation_and_items() {
    let recorder = Recorder::default();
    let subscriber = tracing_subscriber::registry().with(recorder.clone());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let queue = Queue::new(spy()).unwrap();
            queue.push_many("p", vec![MessageData::new("1"), MessageData::new("2")]).await.unwrap();
            let mut held = queue.pull("p").max(2).await.unwrap();
            queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await;
        });
    });
    let calls = recorder.spans("anyqueue.call");
    assert!(calls.iter().all(|call| *call.metadata.level() == Level::DEBUG), "{calls:?}");
    for operation in ["push", "settle"] {
        let call =
            calls.iter().find(|call| call.fields.get("operation").is_some_and(|name| name == operation));
        let call = call.unwrap_or_else(|| panic!("no span of {operation}: {calls:?}"));
        assert_eq!((call.fields["backend"].as_str(), call.fields["items"].as_str()), ("spy", "2"));
    }
    assert!(calls.iter().any(|call| call.fields["operation"] == "pull"), "{calls:?}");
}
