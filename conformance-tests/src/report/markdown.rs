//! The certificate of one backend, and the matrix of backends and groups for a README.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Report, Tally};
use crate::verdict::Outcome;

impl Report {
    /// Returns the certificate in Markdown: the backend, its version and capabilities, what was run and how
    /// it ended, what does not apply and why, the failures in full, the seed, and the verdict.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# Conformance of {}: {}\n\n", self.about.backend, self.certificate());
        let tally = self.tally();
        let facts = [
            ("server version", self.about.server_version.clone().unwrap_or_else(|| "not told".to_owned())),
            ("hardware", self.about.hardware.clone()),
            ("suite", format!("anyqueue-conformance {}, tier {}", self.suite, self.tier)),
            ("cases run", (self.cases.len() - tally.not_applicable).to_string()),
            ("passed", tally.passed.to_string()),
            ("failed", tally.failed.to_string()),
            ("inconclusive", tally.inconclusive.to_string()),
            ("not applicable", tally.not_applicable.to_string()),
            ("seed", self.seed.to_string()),
            ("duration", format!("{} ms", self.took_ms)),
        ];
        table(&mut text, ["run", ""], facts.iter().map(|(what, value)| [*what, value.as_str()]));
        if self.selection {
            text.push_str("\nOnly a selection of the cases was run.\n");
        }
        self.write_not_applicable(&mut text);
        self.write_beyond(&mut text);
        self.write_failures(&mut text);
        text.push_str("\n## Declared\n\n");
        let declared = self.about.capabilities.iter().map(|(what, value)| [*what, value.as_str()]);
        table(&mut text, ["capability", ""], declared);
        text.push_str("\n## Cases\n\n");
        text.push_str(&markdown_matrix(std::slice::from_ref(self)));
        text
    }

    /// Grouped by reason, so that many cases with one reason are one line.
    fn write_not_applicable(&self, text: &mut String) {
        let mut by_reason: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for case in &self.cases {
            if let Outcome::NotApplicable { needs, rule, .. } = &case.outcome {
                by_reason.entry((needs, rule.unwrap_or("not cited"))).or_default().push(case.id);
            }
        }
        if by_reason.is_empty() {
            return;
        }
        text.push_str("\n## Not applicable\n\n");
        let rows: Vec<_> = by_reason
            .iter()
            .map(|((needs, rule), ids)| [*needs, rule, &*ids.join(", ")].map(str::to_owned))
            .collect();
        let rows = rows.iter().map(|row| row.each_ref().map(String::as_str));
        table(text, ["needs", "the server's rule", "cases"], rows);
    }

    /// Writes what the verdict does not cover.
    fn write_beyond(&self, text: &mut String) {
        if !self.about.unproven.is_empty() {
            text.push_str("\n## Declared, not proven by this run\n\n");
            for claim in &self.about.unproven {
                let _ = writeln!(text, "- {claim}");
            }
        }
        if !self.about.undeclared.is_empty() {
            text.push_str("\n## Not declared\n\n");
            let rows = self.about.undeclared.iter().map(|(what, rule)| [*what, rule.unwrap_or("not cited")]);
            table(text, ["a backend could declare", "the server's rule against it"], rows);
        }
    }

    fn write_failures(&self, text: &mut String) {
        for case in &self.cases {
            let why = match &case.outcome {
                Outcome::Fail(failure) => failure.to_string(),
                Outcome::Inconclusive { why } => format!("inconclusive: {why}"),
                Outcome::Pass | Outcome::NotApplicable { .. } => continue,
            };
            let _ = write!(text, "\n## {}\n\n```text\n{why}\n```\n", case.id);
        }
    }
}

/// Writes a Markdown table.
fn table<'a, const N: usize>(text: &mut String, head: [&str; N], rows: impl Iterator<Item = [&'a str; N]>) {
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
}

/// Returns a Markdown table with a row per group of cases and a column per backend. Each field shows how many
/// cases passed of those that concern the backend, or `–` if none does.
pub fn markdown_matrix(reports: &[Report]) -> String {
    let groups: BTreeSet<&str> =
        reports.iter().flat_map(|report| report.cases.iter().map(|case| case.group)).collect();
    let mut text = String::from("| cases |");
    for report in reports {
        let _ = write!(text, " {} |", report.about.backend);
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(reports.len()));
    for group in groups {
        let _ = write!(text, "\n| {group} |");
        for report in reports {
            let _ = write!(
                text,
                " {} |",
                field(Tally::of(report.cases.iter().filter(|case| case.group == group)))
            );
        }
    }
    text.push_str("\n| **certificate** |");
    for report in reports {
        let _ = write!(text, " **{}** |", report.certificate());
    }
    text.push('\n');
    text
}

fn field(tally: Tally) -> String {
    let concern = tally.passed + tally.failed + tally.inconclusive;
    if concern == 0 { "–".to_owned() } else { format!("{}/{concern}", tally.passed) }
}
