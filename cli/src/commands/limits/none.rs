//! A limit that is not there.

use crate::failure::Failure;
use crate::output::Output;

/// Says so.
pub(super) fn none(name: &str, output: Output) -> Failure {
    output.note(&format!("there is no limit {name}: see `anyqueue limits list`"));
    Failure::Nothing
}
