//! How errors of this backend are made.

use std::borrow::Cow;

use anyqueue::{Error, ErrorKind, Operation};

/// The name of this backend, which all its errors bear.
pub(crate) const NAME: &str = "memory";

/// The same error, of this backend and operation.
pub(crate) fn stamp(error: Error, operation: Operation) -> Error {
    error.with_backend(NAME).with_operation(operation)
}

/// An error of this backend. Nothing happened; the retry class is the usual one of its kind.
pub(crate) fn error(operation: Operation, kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
    stamp(Error::new(kind, text), operation)
}
