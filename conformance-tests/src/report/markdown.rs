//! The matrix backend × group for a README.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Report, Tally};

/// A Markdown table: a row per group of cases, a column per backend, and in each field how many passed of how many that
/// concern the backend; `–` where none does.
pub fn markdown_matrix(reports: &[Report]) -> String {
    let groups: BTreeSet<&str> =
        reports.iter().flat_map(|report| report.cases.iter().map(|case| case.group)).collect();
    let mut text = String::from("| cases |");
    for report in reports {
        let _ = write!(text, " {} |", report.backend);
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
