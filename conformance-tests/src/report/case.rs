//! The result of one case.

use std::time::Duration;

use serde::Serialize;

use crate::case::Case;
use crate::clause::Clause;
use crate::options::Layer;
use crate::verdict::Outcome;

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseReport {
    /// The case's id.
    pub id: &'static str,
    /// Its group.
    pub group: &'static str,
    /// The layer between the case and the adapter.
    pub layer: Layer,
    /// The clauses that it proves.
    pub clauses: &'static [Clause],
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How often the case was run until it proved something; nearly always once. An attempt that proves
    /// nothing, or only shows that something came late, may be the machine's fault.
    pub attempts: u32,
    /// How long the case took, in milliseconds.
    pub took_ms: u64,
}

impl CaseReport {
    pub(crate) fn new(case: &Case, outcome: Outcome, attempts: u32, took: Duration) -> Self {
        Self {
            id: case.id,
            group: case.group(),
            layer: case.layer,
            clauses: case.clauses,
            outcome,
            attempts,
            took_ms: millis(took),
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
