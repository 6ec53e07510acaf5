//! The contract's shape: clauses numbered without gaps, each with the conformance cases that prove it.
//!
//! That the cases named are those of the suite is checked by the test of `xtask-tables`, which writes them.

use super::file::{File, Finding};

pub(super) const CONTRACT: &str = "core/CONTRACT.md";

/// One `### n. Title` with what follows up to the next heading.
pub(super) struct Clause {
    pub(super) number: Option<u32>,
    line: usize,
    /// The lines that begin with `Cases:`, and the ids in back quotes on each.
    pub(super) cases: Vec<(usize, Vec<String>)>,
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
        if let Some((line, advice)) = cases_fault(clause) {
            findings.push(Finding::new(file, line, "contract", advice));
        }
    }
    findings
}

fn cases_fault(clause: &Clause) -> Option<(usize, String)> {
    let [(line, ids)] = clause.cases.as_slice() else {
        let advice =
            "give the clause one line ``Cases: `id`, `id` `` with the cases that prove it".to_owned();
        return Some((clause.line, advice));
    };
    if ids.is_empty() {
        return Some((
            *line,
            "a clause without a case is a wish: name at least one case in back quotes".to_owned(),
        ));
    }
    let twice = ids.iter().enumerate().find(|(index, id)| ids.iter().take(*index).any(|other| other == *id));
    twice.map(|(_, id)| (*line, format!("`{id}` stands twice")))
}

pub(super) fn clauses(text: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = Vec::new();
    let mut inside = false;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(heading) = content.strip_prefix("### ") {
            let number = heading.split_once(". ").and_then(|(number, _)| number.parse().ok());
            // A heading of the third level that starts with a digit means to be a clause; others are prose.
            inside = heading.starts_with(|c: char| c.is_ascii_digit());
            if inside {
                clauses.push(Clause { number, line, cases: Vec::new() });
            }
        } else if content.starts_with('#') {
            inside = false;
        } else if let Some(ids) = content.strip_prefix("Cases:")
            && inside
            && let Some(clause) = clauses.last_mut()
        {
            clause.cases.push((line, ids.split('`').skip(1).step_by(2).map(str::to_owned).collect()));
        }
    }
    clauses
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn lines(contract: &str) -> Vec<usize> {
        check(&[sample(CONTRACT, contract)]).iter().map(|finding| finding.line).collect()
    }

    const GOOD: &str = "# Contract\n\n## Push\n### 1. Stored\nText.\nCases: `push.single`, `push.kill`\n\n\
                        ### Words\n### 2. Order\nCases: `push.order`\n";

    #[test]
    fn numbered_clauses_with_cases_are_right() {
        assert_eq!(lines(GOOD), [] as [usize; 0]);
    }

    #[test]
    fn gaps_and_missing_repeated_or_empty_cases_are_found() {
        assert_eq!(lines(&GOOD.replace("### 2.", "### 3.")), [9]);
        assert_eq!(lines(&GOOD.replace("### 2.", "### 2")), [9]);
        assert_eq!(lines(&GOOD.replace("Cases: `push.order`", "")), [9]);
        assert_eq!(lines(&GOOD.replace("`push.order`", "none")), [10]);
        assert_eq!(lines(&GOOD.replace("`push.kill`", "`push.single`")), [6]);
        assert_eq!(lines(&format!("{GOOD}Cases: `push.more`\n")), [9]);
        assert_eq!(lines("# Contract\n"), [1]);
    }

    #[test]
    fn a_missing_contract_is_found() {
        assert_eq!(check(&[sample("core/src/lib.rs", "//! A.\n")]).len(), 1);
        assert_eq!(check(&[sample("README.md", "no core, no contract\n")]).len(), 0);
    }
}
