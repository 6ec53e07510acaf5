//! Creating this backend's errors.

use std::borrow::Cow;

use anyqueue::{Error, ErrorKind, Operation};

/// The name of this backend, which all its errors carry.
pub(crate) const NAME: &str = "memory";

/// Adds this backend and the operation to an error.
pub(crate) fn stamp(error: Error, operation: Operation) -> Error {
    error.with_backend(NAME).with_operation(operation)
}

/// Creates an error of this backend. Nothing happened, and the retry class is the usual one of its kind.
pub(crate) fn error(operation: Operation, kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
    stamp(Error::new(kind, text), operation)
}
