//! Keeps payloads out of the log. The client logs each returned message as a warning, with its body.
//!
//! The client reads each connection in a separate thread, and the only code of this crate that runs there is
//! the call that connects. That call sets a subscriber for the thread: it forwards everything except those
//! warnings to the subscriber that was set where the connection was opened.

use std::cell::Cell;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// The target under which the client logs returned messages.
const RETURNED_MESSAGES: &str = "lapin::returned_messages";

thread_local! {
    static IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// Returns the current subscriber without the events that show payloads, or `None` if there is no subscriber,
/// because setting one would disable the fallback to the `log` facade.
pub(crate) fn without_payloads() -> Option<Dispatch> {
    let inner = dispatcher::get_default(Clone::clone);
    (!inner.is::<NoSubscriber>())
        .then(|| Dispatch::new(PayloadFilter { inner, max_level: LevelFilter::current() }))
}

/// Makes this the subscriber of the current thread, until the thread ends.
pub(crate) fn set_for_thread(log_filter: Option<&Dispatch>) {
    if let Some(log_filter) = log_filter
        && !IS_SET.replace(true)
    {
        std::mem::forget(dispatcher::set_default(log_filter));
    }
}

/// Forwards everything except [`RETURNED_MESSAGES`] to another subscriber.
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
