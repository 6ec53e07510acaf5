//! Panics of the application's code, which must not reach the worker's code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the application's code. The error is the text of its panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(text)
}

/// The text of a panic.
pub(crate) fn text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // Dropping the panic's payload may panic again, and so may dropping that panic's payload: the second one
    // is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text.unwrap_or_else(|| "no message".to_owned())
}
