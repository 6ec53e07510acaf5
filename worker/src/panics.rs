//! Panics of the application's code, which must not reach the worker's.

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
    // What was thrown may panic again when it is dropped, and so may what it throws then: that is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text.unwrap_or_else(|| "no message".to_owned())
}
