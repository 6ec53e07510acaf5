//! Errors that carry a backend's name.

use std::borrow::Cow;

use crate::error::{Error, ErrorKind, Operation};

/// Creates the errors of one backend, each with its name.
///
/// ```
/// use anyqueue::{ErrorKind, Operation};
/// use anyqueue::adapter::Errors;
///
/// const ERRORS: Errors = Errors::of("carrier-pigeon");
/// let error = ERRORS.error(ErrorKind::Unavailable, "the pigeon is asleep");
/// assert_eq!(error.to_string(), "carrier-pigeon: the pigeon is asleep (unavailable)");
/// assert_eq!(ERRORS.closed(Operation::Push).kind(), ErrorKind::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errors {
    backend: &'static str,
}

impl Errors {
    /// Creates errors of the backend with this name.
    #[must_use]
    pub const fn of(backend: &'static str) -> Self {
        Self { backend }
    }

    /// Creates an error of `kind`, like [`Error::new`].
    pub fn error(self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        Error::new(kind, message).with_backend(self.backend)
    }

    /// Creates the error for an invalid argument, like [`Error::invalid`].
    pub fn invalid(self, message: impl Into<Cow<'static, str>>) -> Error {
        Error::invalid(message).with_backend(self.backend)
    }

    /// Creates the error that a closed handle returns, like [`Error::closed`].
    #[must_use]
    pub fn closed(self, operation: Operation) -> Error {
        Error::closed().with_backend(self.backend).with_operation(operation)
    }
}
