//! The spans core opens, read as an application's subscriber would read them.
//!
//! One test, in a program of its own: tracing decides once for the process whether anybody listens to a call site, and a
//! thread without a subscriber that comes there first may decide for all.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::*;
use support::spy;
use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The fields of each span named `anyqueue.call`.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl<S: Subscriber> Layer<S> for Calls {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "anyqueue.call" {
            assert_eq!(*attributes.metadata().level(), Level::DEBUG);
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
fn each_call_is_a_span_that_names_backend_operation_and_items() {
    let calls = Calls::default();
    let subscriber = tracing_subscriber::registry().with(calls.clone());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let queue = Queue::new(spy()).unwrap();
            queue.push_many("p", vec![MessageData::new("1"), MessageData::new("2")]).await.unwrap();
            let mut held = queue.pull("p").max(2).await.unwrap();
            queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await;
        });
    });
    let calls = calls.0.lock().unwrap();
    for operation in ["push", "settle"] {
        let call = calls.iter().find(|call| call.get("operation").is_some_and(|name| name == operation));
        let call = call.unwrap_or_else(|| panic!("no span of {operation}: {calls:?}"));
        assert_eq!((call["backend"].as_str(), call["items"].as_str()), ("spy", "2"));
    }
    assert!(calls.iter().any(|call| call["operation"] == "pull"), "{calls:?}");
}
