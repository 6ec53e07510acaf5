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
const LEAKS: &str = "lapin::returned_messages";

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What is heard here and now, without what shows payloads. `None` where nobody listens: to set something then would end what the
/// facade falls back to.
pub(crate) fn without_payloads() -> Option<Dispatch> {
    let heard = dispatcher::get_default(Clone::clone);
    (!heard.is::<NoSubscriber>()).then(|| Dispatch::new(Quiet { heard, most: LevelFilter::current() }))
}

/// Makes it what this thread's events go to, until the thread ends.
pub(crate) fn listen_with(quiet: Option<&Dispatch>) {
    if let Some(quiet) = quiet
        && !IS_QUIET.replace(true)
    {
        std::mem::forget(dispatcher::set_default(quiet));
    }
}

/// Passes on what another subscriber hears, but for [`LEAKS`].
struct Quiet {
    heard: Dispatch,
    most: LevelFilter,
}

impl Subscriber for Quiet {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == LEAKS { Interest::never() } else { self.heard.register_callsite(metadata) }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() != LEAKS && self.heard.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.heard.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.heard.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.heard.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() != LEAKS {
            self.heard.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.heard.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.heard.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.heard.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.heard.try_close(id)
    }
}
