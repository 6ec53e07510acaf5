//! What became of one case.

use std::time::Duration;

use serde::Serialize;

use crate::case::Case;
use crate::clause::Clause;
use crate::options::Layer;
use crate::verdict::Outcome;

/// What became of one case.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseReport {
    /// The case.
    pub id: &'static str,
    /// Its group.
    pub group: &'static str,
    /// What stood between it and the adapter.
    pub layer: Layer,
    /// The clauses that it proves.
    pub clauses: &'static [Clause],
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How often it was run until it proved something; nearly always once. What proves nothing, or shows no more than that something
    /// came late, may be the machine's doing.
    pub attempts: u32,
    /// How long it took, in milliseconds.
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
