//! The links between clauses, cases and faulty adapters, as the page of cases shows them: each clause names its cases, each case
//! its clauses and the faulty adapters that it finds.
//!
//! That the page is what the suite says is checked by the test of `xtask-tables`, which writes it.

use std::collections::BTreeSet;

use super::contract::{CONTRACT, clauses};
use super::file::{File, Finding};

const CASES: &str = "docs/conformance/cases.md";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(page), Some(contract)) = (find(CASES), find(CONTRACT)) else { return Vec::new() };
    let clauses = clauses(&contract.text);
    let mut linked: BTreeSet<(String, u32)> = BTreeSet::new();
    for clause in &clauses {
        let ids = clause.cases.iter().flat_map(|(_, ids)| ids);
        linked.extend(ids.filter_map(|id| Some((id.clone(), clause.number?))));
    }
    let mut findings = Vec::new();
    for (line, row) in (1..).zip(page.text.lines()).filter_map(|(line, text)| Some((line, row(text)?))) {
        let advice = if row.clauses.is_empty() {
            Some("names no clause of the contract".to_owned())
        } else if row.finds.is_empty() {
            Some("names no faulty adapter that it finds".to_owned())
        } else {
            let missing = row.clauses.iter().find(|clause| !linked.contains(&(row.id.to_owned(), **clause)));
            missing.map(|clause| format!("is not among the cases of clause {clause} in {CONTRACT}"))
        };
        findings
            .extend(advice.map(|advice| Finding::new(page, line, "links", format!("`{}` {advice}", row.id))));
    }
    findings
}

/// One line of the table: a case.
struct Row<'a> {
    id: &'a str,
    clauses: Vec<u32>,
    finds: &'a str,
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
    let id = cells.next()?.strip_suffix('`')?;
    let clauses = cells.nth(1)?.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    let finds = cells.next().filter(|finds| finds.contains('`')).unwrap_or_default();
    Some(Row { id, clauses, finds })
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn found(rows: &str) -> Vec<String> {
        let contract = sample(CONTRACT, "### 1. A\n\nCases: `a.b`\n\n### 2. B\n\nCases: `a.b`, `c.d`\n");
        check(&[contract, sample(CASES, rows)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn whole_links_are_right() {
        assert!(found("| `a.b` | storage | 1, 2 | `Fault` |\n| `c.d` | queue | 2 | `X`, `Y` |\n").is_empty());
    }

    #[test]
    fn a_case_without_clause_or_fault_or_not_in_its_clause_is_found() {
        assert!(found("| `a.b` | storage |  | `Fault` |\n")[0].contains("no clause"));
        assert!(found("| `a.b` | storage | 1 |  |\n")[0].contains("no faulty adapter"));
        assert!(found("| `c.d` | storage | 1 | `Fault` |\n")[0].contains("clause 1"));
    }
}
