//! The notes on a managing request for the audit trail, gathered while the request is handled.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue_control::audit::Outcome;

tokio::task_local! {
    /// Set for requests that are entered in the trail, and for no others.
    static NOTES: Notes;
}

/// The notes on a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Outcome>>);

impl Notes {
    /// Notes a name, an id, a count or a search term: never the contents of a message.
    pub(crate) fn detail(&self, name: &str, value: impl Display) {
        self.change(|outcome| outcome.add_detail(name, &value.to_string()));
    }

    /// Notes a queue that the request names.
    pub(crate) fn queue(&self, name: &str) {
        self.change(|outcome| outcome.add_queue(name));
    }

    /// Fixes the outcome, whatever the response says, since nobody receives that.
    pub(crate) fn decide(&self, status: u16) {
        self.change(|outcome| outcome.status = status);
    }

    /// Returns the notes with this status, unless another one was fixed.
    pub(crate) fn outcome(&self, status: u16) -> Outcome {
        let mut outcome = Outcome::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if outcome.status == 0 {
            outcome.status = status;
        }
        outcome
    }

    fn change(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Runs a future during which notes are taken.
pub(crate) async fn scope<T>(notes: Notes, done: impl Future<Output = T>) -> T {
    NOTES.scope(notes, done).await
}

/// The current notes, for work that is done after the response has begun.
pub(crate) fn current() -> Notes {
    NOTES.try_with(Clone::clone).unwrap_or_default()
}

/// Notes a queue that the current request names.
pub(crate) fn queue(name: &str) {
    let _ = NOTES.try_with(|notes| notes.queue(name));
}

/// Notes a name, an id, a count or a search term of the current request.
pub(crate) fn detail(name: &str, value: impl Display) {
    let _ = NOTES.try_with(|notes| notes.detail(name, value));
}
