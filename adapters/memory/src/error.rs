//! How errors of this backend are made.

use std::borrow::Cow;

use anyqueue::{Error, ErrorKind, Operation};

use crate::storage::NAME;

/// An error of this backend. Nothing happened; the retry class is the usual one of its kind.
pub(crate) fn error(operation: Operation, kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, text).with_backend(NAME).with_operation(operation)
}
