//! What the ledger takes over from a message.

use std::sync::Arc;

use super::end::TaskEnd;
use super::task::{generation, text};
use crate::message::{Headers, MAX_KEY_BYTES, MessageData, header};

/// The most of a task's errors that is kept, in bytes. Longer texts are left out: cut, they could not be parsed.
const MAX_ERRORS_BYTES: usize = 8 << 10;

impl TaskEnd {
    /// With what the message says of its task.
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

    /// With these failed attempts.
    #[must_use]
    pub(crate) fn with_errors(mut self, errors: Option<Arc<str>>) -> Self {
        self.errors = errors.filter(|errors| errors.len() <= MAX_ERRORS_BYTES);
        self
    }
}

/// The kind of task that the headers say.
pub(crate) fn kind_of(headers: &Headers) -> Option<Arc<str>> {
    headers.get(header::TASK_KIND).map(|kind| cut(kind, MAX_KEY_BYTES))
}

/// At most so many bytes, at a character boundary.
pub(crate) fn cut(text: &str, bytes: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text).into()
}
