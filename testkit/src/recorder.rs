//! Records what a program under test emits with `tracing`, as an application's subscriber would receive it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// A layer that records each span when it is opened, and each event. Clones share the records.
///
/// ```
/// use anyqueue_testkit::recorder::Recorder;
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let recorder = Recorder::default();
/// let subscriber = tracing_subscriber::registry().with(recorder.clone());
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("bake", loaves = 2).entered();
///     tracing::debug!(heat = "high");
/// });
/// assert_eq!(recorder.spans("bake")[0].fields["loaves"], "2");
/// assert_eq!(recorder.events()[0].fields["heat"], "high");
/// ```
///
/// Tracing decides once per process whether anybody listens to a call site. So a test that must receive
/// something needs a program of its own: a thread without a subscriber that gets there first may decide for
/// all threads.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Record>>>);

/// One span or event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// Its name, target and level, and whether it is a span or an event.
    pub metadata: &'static Metadata<'static>,
    /// Its fields, as text.
    pub fields: BTreeMap<&'static str, String>,
}

impl Recorder {
    /// The spans of this name, in the order in which they were opened.
    pub fn spans(&self, name: &str) -> Vec<Record> {
        self.those(|metadata| metadata.is_span() && metadata.name() == name)
    }

    /// The events, in order.
    pub fn events(&self) -> Vec<Record> {
        self.those(Metadata::is_event)
    }

    fn those(&self, wanted: impl Fn(&Metadata<'static>) -> bool) -> Vec<Record> {
        self.records().iter().filter(|record| wanted(record.metadata)).cloned().collect()
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, metadata: &'static Metadata<'static>, read: impl FnOnce(&mut dyn Visit)) {
        let mut fields = Fields::default();
        read(&mut fields);
        self.records().push(Record { metadata, fields: fields.0 });
    }
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.write(attributes.metadata(), |fields| attributes.values().record(fields));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.write(event.metadata(), |fields| event.record(fields));
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
