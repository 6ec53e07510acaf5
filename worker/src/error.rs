//! How a handler reports a failure.

use std::fmt;
use std::time::Duration;

/// What a handler returns.
pub type TaskResult = Result<(), TaskError>;

/// What happens to a task whose handler failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The task is retried according to the [`Retry`](crate::Retry) policy.
    Retry,
    /// The task is retried after this delay, if the policy has retries left.
    After(Duration),
    /// A retry cannot help: the task goes to the dead letters.
    Permanent,
}

/// Why a task failed, and whether a retry can help.
///
/// Any [`std::error::Error`] converts into one that is retried, so that `?` works in handlers. Its text and
/// those of its sources are stored with the message for people to read (see [`history`](crate::history)), so
/// they must not contain secrets.
///
/// ```
/// use anyqueue_worker::{ErrorClass, TaskError};
/// fn parse(text: &str) -> Result<u32, TaskError> {
///     text.parse().map_err(|error| TaskError::permanent(format!("no number: {error}")))
/// }
/// assert_eq!(parse("x").unwrap_err().class(), ErrorClass::Permanent);
/// ```
#[derive(Clone)]
pub struct TaskError {
    class: ErrorClass,
    text: String,
}

impl TaskError {
    /// A failure that a retry may cure.
    #[must_use]
    pub fn retry(text: impl Into<String>) -> Self {
        Self { class: ErrorClass::Retry, text: text.into() }
    }

    /// A failure that a retry may cure, but not before this delay.
    #[must_use]
    pub fn after(delay: Duration, text: impl Into<String>) -> Self {
        Self { class: ErrorClass::After(delay), text: text.into() }
    }

    /// A failure that no retry can cure.
    #[must_use]
    pub fn permanent(text: impl Into<String>) -> Self {
        Self { class: ErrorClass::Permanent, text: text.into() }
    }

    /// What happens to the task.
    pub fn class(&self) -> ErrorClass {
        self.class
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError").field("class", &self.class).field("text", &self.text).finish()
    }
}

// `TaskError` itself does not implement `std::error::Error`: this conversion would overlap with the one from
// itself.
impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::retry(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_is_tried_again_and_tells_its_causes() {
        let cause = std::io::Error::other("the disk is full");
        let error = anyqueue::Error::invalid("not stored").with_source(cause);
        let error = TaskError::from(error);
        assert_eq!(error.class(), ErrorClass::Retry);
        assert_eq!(error.to_string(), "not stored (invalid_input): the disk is full");
    }
}
