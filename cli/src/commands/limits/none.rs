//! The failure for a limit that does not exist.

use crate::failure::Failure;
use crate::output::Output;

/// Notes that there is no such limit, and returns the failure.
pub(super) fn none(name: &str, output: Output) -> Failure {
    output.note(&format!("there is no limit {name}: see `anyqueue limits list`"));
    Failure::Nothing
}
