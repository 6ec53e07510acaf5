//! The contract's shape: prose in clauses that are numbered without gaps.
//!
//! Which cases prove a clause is in the page of cases, which is generated: see `links`.

use super::file::{File, Finding};

pub(super) const CONTRACT: &str = "core/CONTRACT.md";

/// One `### n. Title`.
pub(super) struct Clause {
    pub(super) number: Option<u32>,
    pub(super) title: String,
    pub(super) line: usize,
}

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    if !files.iter().any(|file| file.path.starts_with("core/")) {
        return Vec::new();
    }
    let Some(file) = files.iter().find(|file| file.path == CONTRACT) else {
        let missing = File { path: CONTRACT.to_owned(), text: String::new() };
        return vec![Finding::new(
            &missing,
            1,
            "contract",
            "the contract is missing: write its numbered clauses",
        )];
    };
    let clauses = clauses(&file.text);
    let mut findings = Vec::new();
    if clauses.is_empty() {
        findings.push(Finding::new(file, 1, "contract", "no clause found: write each as `### n. Title`"));
    }
    for (expected, clause) in (1..).zip(&clauses) {
        if clause.number != Some(expected) {
            let advice =
                format!("this is the clause in place {expected}: number it so, `### {expected}. Title`");
            findings.push(Finding::new(file, clause.line, "contract", advice));
        }
    }
    let lists = (1..).zip(file.text.lines()).filter(|(_, text)| text.starts_with("Cases:"));
    findings.extend(lists.map(|(line, _)| {
        let advice = "name the clause in its cases instead: `cargo xtask tables` lists them by clause";
        Finding::new(file, line, "contract", advice)
    }));
    findings
}

pub(super) fn clauses(text: &str) -> Vec<Clause> {
    let headings =
        (1..).zip(text.lines()).filter_map(|(line, text)| Some((line, text.strip_prefix("### ")?)));
    // A third-level heading that begins with a digit is meant to be a clause; others are prose.
    let clauses = headings.filter(|(_, heading)| heading.starts_with(|c: char| c.is_ascii_digit()));
    clauses
        .map(|(line, heading)| {
            let parts = heading.split_once(". ").unwrap_or(("", heading));
            Clause { number: parts.0.parse().ok(), title: parts.1.to_owned(), line }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn lines(contract: &str) -> Vec<usize> {
        check(&[sample(CONTRACT, contract)]).iter().map(|finding| finding.line).collect()
    }

    const GOOD: &str = "# Contract\n\n## Push\n### 1. Stored\nText.\n\n### Words\n### 2. Order\nMore.\n";

    #[test]
    fn numbered_clauses_are_right() {
        assert_eq!(lines(GOOD), [] as [usize; 0]);
        let titles: Vec<_> = clauses(GOOD).into_iter().map(|clause| clause.title).collect();
        assert_eq!(titles, ["Stored", "Order"]);
    }

    #[test]
    fn gaps_missing_clauses_and_lists_of_cases_are_found() {
        assert_eq!(lines(&GOOD.replace("### 2.", "### 3.")), [8]);
        assert_eq!(lines(&GOOD.replace("### 2.", "### 2")), [8]);
        assert_eq!(lines(&GOOD.replace("Text.", "Cases: `push.single`")), [5]);
        assert_eq!(lines("# Contract\n"), [1]);
    }

    #[test]
    fn a_missing_contract_is_found() {
        assert_eq!(check(&[sample("core/src/lib.rs", "//! A.\n")]).len(), 1);
        assert_eq!(check(&[sample("README.md", "no core, no contract\n")]).len(), 0);
    }
}
