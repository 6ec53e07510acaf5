//! What is to be said of a managing request in the audit trail: gathered while it is dealt with.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue_control::audit::Outcome;

tokio::task_local! {
    /// Set for requests that are entered in the trail, and for no others.
    static NOTES: Notes;
}

/// What was noted of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Outcome>>);

impl Notes {
    /// A name, an id, a count or what was searched for: never what a message holds.
    pub(crate) fn detail(&self, name: &str, value: impl Display) {
        self.change(|outcome| outcome.add_detail(name, &value.to_string()));
    }

    /// A queue that the request names.
    pub(crate) fn queue(&self, name: &str) {
        self.change(|outcome| outcome.add_queue(name));
    }

    /// What came of it whatever is answered, since nobody hears that.
    pub(crate) fn decide(&self, status: u16) {
        self.change(|outcome| outcome.status = status);
    }

    /// With this status, unless another one was decided.
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

/// Does something of which notes are taken.
pub(crate) async fn scope<T>(notes: Notes, done: impl Future<Output = T>) -> T {
    NOTES.scope(notes, done).await
}

/// Where to note what is done after the answer has begun.
pub(crate) fn current() -> Notes {
    NOTES.try_with(Clone::clone).unwrap_or_default()
}

/// A queue that the request names.
pub(crate) fn queue(name: &str) {
    let _ = NOTES.try_with(|notes| notes.queue(name));
}

/// The same of a name, an id, a count or what was searched for.
pub(crate) fn detail(name: &str, value: impl Display) {
    let _ = NOTES.try_with(|notes| notes.detail(name, value));
}
