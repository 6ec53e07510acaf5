//! The report for a terminal.

use std::fmt;

use super::{Report, Tally};
use crate::verdict::Outcome;

/// Shows a table of groups, then every failure in full, then the verdict.
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
        self.beyond().iter().try_for_each(|line| writeln!(f, "\n{line}"))?;
        write!(f, "\ncertificate: {} (seed {})", self.certificate(), self.seed)
    }
}

impl Report {
    /// Returns what the verdict does not cover, one line for each kind.
    pub(crate) fn beyond(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.about.unproven.is_empty() {
            lines.push(format!("declared, not proven by this run: {}", self.about.unproven.join("; ")));
        }
        let unruled = self.about.undeclared.iter().filter(|(_, rule)| rule.is_none());
        let unruled: Vec<_> = unruled.map(|(what, _)| *what).collect();
        if !unruled.is_empty() {
            lines.push(format!("not declared, and no rule of the server's cited: {}", unruled.join(", ")));
        }
        lines
    }
}
