//! The error type of all backends: what went wrong, what a retry would do, and where it happened.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The result of every fallible call in anyqueue.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Act on this and on [`RetryClass`], never on the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid: a name, a lease, a `max` of zero, a URL option. The message says what is
    /// allowed.
    InvalidInput,
    /// The backend does not support this, as its [`Capabilities`](crate::adapter::Capabilities) declare.
    /// Nothing was stored.
    Unsupported,
    /// The encoded message exceeds the declared limit. No part of it was stored.
    TooLarge,
    /// The server, or a bounded local buffer, has no room now: a full disk, a memory limit, an alarm.
    Full,
    /// The handle was closed.
    Closed,
    /// The server cannot be reached, or the connection broke.
    Unavailable,
    /// A deadline passed before the server answered.
    TimedOut,
    /// Credentials or rights are missing; the message names the missing right if the server does.
    AccessDenied,
    /// The server, its version, its schema or its settings do not fit this release.
    Incompatible,
    /// Stored data cannot be read: a damaged file, a broken envelope.
    Corrupt,
    /// A defect in the adapter or in anyqueue. Please report it.
    Internal,
}

impl ErrorKind {
    /// Returns the name used in logs and metrics, in `snake_case`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too_large",
            Self::Full => "full",
            Self::Closed => "closed",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed_out",
            Self::AccessDenied => "access_denied",
            Self::Incompatible => "incompatible",
            Self::Corrupt => "corrupt",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a repetition of the failed call would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum RetryClass {
    /// Repeating the call does not help until something else changes.
    Never,
    /// Repeating the call is safe: nothing happened, or doing it twice is the same as doing it once.
    Safe,
    /// The call may have taken effect; repeating it may do it a second time.
    MayDuplicate,
}

/// Which operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is the method of the same name")]
pub enum Operation {
    Open,
    Init,
    Check,
    Close,
    Push,
    Pull,
    Settle,
    Extend,
    Inspect,
    Pause,
    /// Changing waiting messages.
    Amend,
    /// Reading and changing control entries.
    Control,
}

impl Operation {
    /// Returns the name used in logs and metrics, in `snake_case`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Init => "init",
            Self::Check => "check",
            Self::Close => "close",
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Settle => "settle",
            Self::Extend => "extend",
            Self::Inspect => "inspect",
            Self::Pause => "pause",
            Self::Amend => "amend",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of every call: its kind, what a retry would do, the backend, the operation and the source.
///
/// Cheap to move and to clone: when a batch of settlements fails together, each caller gets its own copy.
/// Neither `Display` nor `Debug` ever contains credentials: adapters never put in a URL with a password.
///
/// ```
/// use anyqueue::{Error, ErrorKind, RetryClass};
/// let error = Error::new(ErrorKind::Unavailable, "connection refused").with_backend("postgres");
/// assert_eq!(error.retry(), RetryClass::Safe);
/// assert_eq!(error.to_string(), "postgres: connection refused (unavailable)");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    retry: RetryClass,
    is_uncertain: bool,
    backend: Option<&'static str>,
    operation: Option<Operation>,
    message: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error of `kind` with a message that says what to do about it. The retry class starts as the
    /// usual one for the kind: `Safe` for [`Unavailable`](ErrorKind::Unavailable),
    /// [`TimedOut`](ErrorKind::TimedOut) and [`Full`](ErrorKind::Full), otherwise `Never`. Override it with
    /// [`with_retry`](Self::with_retry) wherever the call may have taken effect.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let retry = match kind {
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Full => RetryClass::Safe,
            _ => RetryClass::Never,
        };
        Self(Box::new(Inner {
            kind,
            retry,
            is_uncertain: false,
            backend: None,
            operation: None,
            message: message.into(),
            source: None,
        }))
    }

    /// Creates an [`InvalidInput`](ErrorKind::InvalidInput) error.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Creates an [`Unsupported`](ErrorKind::Unsupported) error.
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Creates a [`Closed`](ErrorKind::Closed) error.
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "this handle was closed: open a new one")
    }

    /// Sets what repeating the call would do. With [`MayDuplicate`](RetryClass::MayDuplicate) the error
    /// becomes [uncertain](Self::is_uncertain), and stays so.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryClass) -> Self {
        self.0.retry = retry;
        self.0.is_uncertain |= retry == RetryClass::MayDuplicate;
        self
    }

    /// Turns `MayDuplicate` into `Safe`: for a call that can be repeated without harm, whether it took effect
    /// or not.
    #[must_use]
    pub fn repeatable(self) -> Self {
        if self.retry() == RetryClass::MayDuplicate { self.with_retry(RetryClass::Safe) } else { self }
    }

    /// Sets the backend.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend = Some(backend);
        self
    }

    /// Sets the operation.
    #[must_use]
    pub fn with_operation(mut self, operation: Operation) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Attaches the client's own error. Its text must not contain credentials.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Returns what went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns what repeating the call would do.
    pub fn retry(&self) -> RetryClass {
        self.0.retry
    }

    /// Returns whether the call may have taken effect, even if [repeating](Self::retry) it would do no harm:
    /// for example, after an uncertain failure of a push the message may be stored. If this is `false`,
    /// nothing has happened as far as the adapter and core could see.
    pub fn is_uncertain(&self) -> bool {
        self.0.is_uncertain
    }

    /// Marks the error as uncertain if the call follows another one that may have taken effect.
    #[must_use]
    pub(crate) fn uncertain_if(mut self, is_uncertain: bool) -> Self {
        self.0.is_uncertain |= is_uncertain;
        self
    }

    /// Returns the name of the backend.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.0.backend {
            write!(f, "{backend}")?;
            if let Some(operation) = self.0.operation {
                write!(f, " {}", operation.as_str())?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{} ({})", self.0.message, self.0.kind)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("retry", &self.0.retry)
            .field("backend", &self.0.backend)
            .field("operation", &self.0.operation)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
