//! The parts of a message that the ledger keeps.

use std::sync::Arc;

use super::end::TaskEnd;
use super::task::{generation, text};
use crate::message::{Headers, MAX_KEY_BYTES, MessageData, header};

/// How long a task's errors may be to be kept, in bytes. Longer texts are left out: if cut, they could not be
/// parsed.
const MAX_ERRORS_BYTES: usize = 8 << 10;

impl TaskEnd {
    /// Adds what the message says about its task.
    #[must_use]
    pub(crate) fn about(mut self, message: &MessageData) -> Self {
        let headers = message.headers();
        self.generation = generation(headers);
        self.kind = kind_of(headers);
        self.task_id = message.task_id().map(Arc::from);
        self.session_id = message.session_id().map(Arc::from);
        self.trace = headers.get(header::TRACEPARENT).map(|trace| cut(trace, MAX_KEY_BYTES));
        self.with_errors(text(headers, header::TASK_ERRORS))
    }

    /// Sets the failed attempts, unless they are too long.
    #[must_use]
    pub(crate) fn with_errors(mut self, errors: Option<Arc<str>>) -> Self {
        self.errors = errors.filter(|errors| errors.len() <= MAX_ERRORS_BYTES);
        self
    }
}

/// The kind of task, from the headers.
pub(crate) fn kind_of(headers: &Headers) -> Option<Arc<str>> {
    headers.get(header::TASK_KIND).map(|kind| cut(kind, MAX_KEY_BYTES))
}

/// Cuts the text to at most this many bytes, at a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text).into()
}
