//! The report for a terminal.

use std::fmt;

use super::{Report, Tally};
use crate::case::Outcome;

/// A table of groups, then every failure in full, then the verdict.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14}{:>6}{:>6}{:>6}{:>14}",
            self.about.backend, "pass", "fail", "n/a", "inconclusive"
        )?;
        for (group, cases) in self.groups() {
            let Tally { passed, failed, not_applicable, inconclusive } = Tally::of(cases);
            writeln!(f, "{group:<14}{passed:>6}{failed:>6}{not_applicable:>6}{inconclusive:>14}")?;
        }
        for case in &self.cases {
            match &case.outcome {
                Outcome::Fail(failure) => writeln!(f, "\n{}: {failure}", case.id)?,
                Outcome::Inconclusive { why } => writeln!(f, "\n{}: inconclusive: {why}", case.id)?,
                Outcome::Pass | Outcome::NotApplicable { .. } => {}
            }
        }
        write!(f, "\ncertificate: {} (seed {})", self.certificate(), self.seed)
    }
}
