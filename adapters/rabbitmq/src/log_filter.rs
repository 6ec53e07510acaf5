//! Keeps payloads out of the log: the client logs each message that the broker returns, with its body, as a warning.
//!
//! The client reads from the broker in a thread of its own, one for each connection, and runs nothing of ours there but the call that
//! connects. That call gives the thread a subscriber that passes all on to the one of whoever opened the connection, but not this.

use std::cell::Cell;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// Where the client tells of messages that came back.
const RETURNED_MESSAGES: &str = "lapin::returned_messages";

thread_local! {
    static IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// What is heard here and now, without what shows payloads. `None` where nobody listens: to set something then would end what the
/// facade falls back to.
pub(crate) fn without_payloads() -> Option<Dispatch> {
    let inner = dispatcher::get_default(Clone::clone);
    (!inner.is::<NoSubscriber>())
        .then(|| Dispatch::new(PayloadFilter { inner, max_level: LevelFilter::current() }))
}

/// Makes it what this thread's events go to, until the thread ends.
pub(crate) fn set_for_thread(log_filter: Option<&Dispatch>) {
    if let Some(log_filter) = log_filter
        && !IS_SET.replace(true)
    {
        std::mem::forget(dispatcher::set_default(log_filter));
    }
}

/// Passes on what another subscriber hears, but for [`RETURNED_MESSAGES`].
struct PayloadFilter {
    inner: Dispatch,
    max_level: LevelFilter,
}

impl Subscriber for PayloadFilter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == RETURNED_MESSAGES {
            Interest::never()
        } else {
            self.inner.register_callsite(metadata)
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() != RETURNED_MESSAGES && self.inner.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.max_level)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.inner.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() != RETURNED_MESSAGES {
            self.inner.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.inner.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.inner.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.inner.try_close(id)
    }
}
