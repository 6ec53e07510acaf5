//! What the checks found.

use serde::Serialize;

use crate::failure::with_causes;
use crate::open::Told;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Ok,
    /// It cannot be told, by this backend or by any client: good to know, and no reason to stop.
    Unknown,
    Warning,
    Failed,
}

/// What one check found.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) text: String,
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding { check, verdict, text: text.into() });
    }

    /// Whether the result is there; else it is a failure of this check.
    pub(super) fn need<T>(&mut self, check: &'static str, result: anyqueue::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(check, Verdict::Failed, with_causes(&error))).ok()
    }

    pub(super) fn told(&mut self, check: &'static str, told: Told) {
        match told {
            Told::Fact(text) => self.add(check, Verdict::Ok, text),
            Told::Unknown(text) => self.add(check, Verdict::Unknown, text),
        }
    }

    pub(super) fn has(&self, verdict: Verdict) -> bool {
        self.0.iter().any(|finding| finding.verdict == verdict)
    }
}
