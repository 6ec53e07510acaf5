//! Tasks as messages: the kind, the attempts and the errors travel in headers.

use std::fmt;
use std::time::SystemTime;

use anyqueue::{Error, Headers, MessageData, Result};
use serde::{Deserialize, Serialize};

/// The names of the headers that tasks use.
///
/// | header | is |
/// |---|---|
/// | `task-kind` | the kind, which selects the handler |
/// | `task-attempts` | failed attempts so far |
/// | `task-errors` | their last errors, as JSON: see [`Failure`](crate::Failure) |
/// | `task-unknown` | how often a worker did not know the kind, or could not read the payload |
/// | `task-retry-of` | on a retry that is a [message of its own](crate::Retry::as_new_message): the id of the first attempt's message |
/// | `task-cursor` | how far a part of a [work set](crate::WorkSet) has come |
/// | `task-redriven` | the time of the redrive since which attempts are counted |
/// | `traceparent` | the W3C trace context of the sender |
pub mod header {
    /// The kind, which selects the handler.
    pub const KIND: &str = "task-kind";
    /// Failed attempts so far.
    pub const ATTEMPTS: &str = "task-attempts";
    /// The last errors, as JSON.
    pub const ERRORS: &str = "task-errors";
    /// How often a worker did not know the kind, or could not read the payload.
    pub const UNKNOWN: &str = "task-unknown";
    /// The id of the first attempt's message.
    pub const RETRY_OF: &str = "task-retry-of";
    /// How far a part of a work set has come.
    pub const CURSOR: &str = "task-cursor";
    /// The time of the redrive since which attempts are counted.
    pub const REDRIVEN: &str = "task-redriven";
}

/// How many errors travel with a message. The oldest are dropped first.
pub const MAX_HISTORY: usize = 5;
/// The longest error text that travels with a message, in bytes.
pub const MAX_ERROR_BYTES: usize = 256;

/// Makes a task: a message with the payload as JSON and the kind in a header. Further options are set as on
/// any message.
///
/// ```
/// use anyqueue_worker::task;
/// #[derive(serde::Serialize)]
/// struct Mail { to: String }
/// let message = task("send_mail", &Mail { to: "a@example.org".into() })?.with_max_retries(3);
/// assert_eq!(message.payload(), br#"{"to":"a@example.org"}"#);
/// # Ok::<(), anyqueue::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) if the value cannot be written as JSON.
pub fn task<T: Serialize>(kind: &str, payload: &T) -> Result<MessageData> {
    let payload = serde_json::to_vec(payload)
        .map_err(|error| Error::invalid("the task cannot be written as JSON").with_source(error))?;
    Ok(MessageData::from_bytes(payload).with_header(header::KIND, kind))
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The handler returned an error.
    Failed,
    /// The handler took too long.
    TimedOut,
    /// The handler panicked.
    Panicked,
}

impl FailureKind {
    /// The name used in logs and metrics, in `snake_case`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed attempt, as it travels with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How it ended.
    pub kind: FailureKind,
    /// When it ended, by the worker's clock: RFC 3339 in UTC.
    pub at: String,
    /// The text of the error, cut to [`MAX_ERROR_BYTES`].
    pub error: String,
}

impl Failure {
    pub(crate) fn new(attempt: u32, kind: FailureKind, at: SystemTime, error: &str) -> Self {
        let error = error.get(..error.floor_char_boundary(MAX_ERROR_BYTES)).unwrap_or(error).to_owned();
        Self { attempt, kind, at: humantime::format_rfc3339_millis(at).to_string(), error }
    }
}

/// The failed attempts that a message carries, the oldest first, at most [`MAX_HISTORY`]. For a dead letter,
/// the last failure is its [reason](anyqueue::DeadLetter::reason), and the earlier ones are here.
pub fn history(headers: &Headers) -> Vec<Failure> {
    // A foreign or damaged header is no reason not to run the task.
    headers.get(header::ERRORS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// What the headers say about earlier runs. A redrive resets the counts.
pub(crate) struct TaskHeaders<'a>(&'a Headers);

impl<'a> TaskHeaders<'a> {
    pub(crate) fn of(headers: &'a Headers) -> Self {
        Self(headers)
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.number(header::ATTEMPTS)
    }

    pub(crate) fn unknown(&self) -> u32 {
        self.number(header::UNKNOWN)
    }

    fn number(&self, name: &str) -> u32 {
        let counts = || self.0.get(header::REDRIVEN) == self.0.get(anyqueue::header::REDRIVEN_AT);
        self.0.get(name).filter(|_| counts()).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The headers after one more failed attempt.
    pub(crate) fn failed(&self, attempts: u32, failure: Failure) -> Headers {
        let mut errors = history(self.0);
        errors.push(failure);
        let excess = errors.len().saturating_sub(MAX_HISTORY);
        errors.drain(..excess);
        let mut headers = self.counted(header::ATTEMPTS, attempts);
        if let Ok(text) = serde_json::to_string(&errors) {
            headers.insert(header::ERRORS.to_owned(), text);
        }
        headers
    }

    /// The headers after one more worker did not know the task.
    pub(crate) fn unknown_again(&self, times: u32) -> Headers {
        self.counted(header::UNKNOWN, times)
    }

    fn counted(&self, name: &str, count: u32) -> Headers {
        let mut headers = self.0.clone();
        if let Some(redriven) = headers.get(anyqueue::header::REDRIVEN_AT).cloned()
            && headers.insert(header::REDRIVEN.to_owned(), redriven.clone()) != Some(redriven)
        {
            headers.remove(header::ATTEMPTS);
            headers.remove(header::UNKNOWN);
        }
        headers.insert(name.to_owned(), count.to_string());
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(attempt: u32, text: &str) -> Failure {
        Failure::new(attempt, FailureKind::Failed, SystemTime::UNIX_EPOCH, text)
    }

    #[test]
    fn the_last_errors_travel_and_long_ones_are_cut() {
        let mut headers = Headers::from([("mine".to_owned(), "kept".to_owned())]);
        for attempt in 1..=7 {
            headers = TaskHeaders::of(&headers).failed(attempt, failure(attempt, &"ä".repeat(1000)));
        }
        let errors = history(&headers);
        assert_eq!(errors.iter().map(|failure| failure.attempt).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert!(errors.iter().all(|failure| failure.error.len() == MAX_ERROR_BYTES));
        assert_eq!((TaskHeaders::of(&headers).attempts(), headers["mine"].as_str()), (7, "kept"));
    }

    #[test]
    fn a_redrive_starts_anew_and_keeps_the_history() {
        let mut headers = TaskHeaders::of(&Headers::new()).failed(3, failure(3, "no"));
        headers.insert(anyqueue::header::REDRIVEN_AT.to_owned(), "now".to_owned());
        assert_eq!(TaskHeaders::of(&headers).attempts(), 0);
        let headers = TaskHeaders::of(&headers).failed(1, failure(1, "again"));
        assert_eq!((TaskHeaders::of(&headers).attempts(), history(&headers).len()), (1, 2));
    }

    #[test]
    fn what_is_damaged_counts_for_nothing() {
        let headers = Headers::from([
            (header::ATTEMPTS.to_owned(), "many".to_owned()),
            (header::ERRORS.to_owned(), "{".to_owned()),
        ]);
        assert_eq!((TaskHeaders::of(&headers).attempts(), history(&headers)), (0, vec![]));
    }
}
