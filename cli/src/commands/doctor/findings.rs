//! What the checks found.

use serde::Serialize;

use crate::failure::with_causes;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Ok,
    /// The backend does not tell, or no client can know: useful information, and no reason to stop.
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

impl Finding {
    pub(super) fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into() }
    }

    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, text)
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Unknown, text)
    }

    pub(super) fn failed(check: &'static str, error: &anyqueue::Error) -> Self {
        Self::new(check, Verdict::Failed, with_causes(error))
    }
}

/// All findings so far.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding::new(check, verdict, text));
    }

    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.0.extend(findings);
    }

    /// Returns the value if the call succeeded; otherwise records that this check has failed.
    pub(super) fn need<T>(&mut self, check: &'static str, result: anyqueue::Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push(Finding::failed(check, &error))).ok()
    }

    pub(super) fn has(&self, verdict: Verdict) -> bool {
        self.0.iter().any(|finding| finding.verdict == verdict)
    }
}
