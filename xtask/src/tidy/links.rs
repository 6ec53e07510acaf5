//! The links between clauses, cases and faulty adapters on the page of cases: each clause of the contract has
//! its cases there, and each case its clauses and the faulty adapters that it finds.
//!
//! The test of `xtask-tables`, which writes the page, checks that it agrees with the suite.

use std::collections::BTreeSet;

use super::contract::{CONTRACT, clauses};
use super::file::{File, Finding};

const CASES: &str = "docs/conformance/cases.md";

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(page), Some(contract)) = (find(CASES), find(CONTRACT)) else { return Vec::new() };
    let rows = || (1..).zip(page.text.lines()).filter_map(|(line, text)| Some((line, Row::of(text)?)));
    let of_clauses: BTreeSet<(&str, u32)> = rows().flat_map(|(_, row)| row.links_of_clause()).collect();
    let of_cases: BTreeSet<(&str, u32)> = rows().flat_map(|(_, row)| row.links_of_case()).collect();
    let mut findings = not_in_page(contract, &rows().map(|(_, row)| row).collect::<Vec<_>>());
    for (line, row) in rows() {
        let (name, advice) = match &row {
            Row::Clause { number, .. } => (number.to_string(), clause_fault(&row, &of_cases)),
            Row::Case { id, .. } => ((*id).to_owned(), case_fault(&row, &of_clauses)),
        };
        findings.extend(advice.map(|advice| Finding::new(page, line, "links", format!("`{name}` {advice}"))));
    }
    findings
}

/// Returns the clauses of the contract that are missing from the page, or have other titles there.
fn not_in_page(contract: &File, rows: &[Row<'_>]) -> Vec<Finding> {
    let is = |row: &Row<'_>, wanted: u32, called: &str| match row {
        Row::Clause { number, title, .. } => *number == wanted && title.eq_ignore_ascii_case(called),
        Row::Case { .. } => false,
    };
    let missing = clauses(&contract.text).into_iter().filter_map(|clause| {
        let number = clause.number?;
        let found = rows.iter().any(|row| is(row, number, &clause.title));
        let advice =
            format!("clause {number} is not in {CASES} under this title: the suite calls it otherwise");
        (!found).then(|| Finding::new(contract, clause.line, "links", advice))
    });
    missing.collect()
}

fn clause_fault(row: &Row<'_>, of_cases: &BTreeSet<(&str, u32)>) -> Option<String> {
    let links = row.links_of_clause();
    if links.is_empty() {
        return Some("is a clause without a case: a wish".to_owned());
    }
    let missing = links.into_iter().find(|link| !of_cases.contains(link));
    missing.map(|(id, _)| format!("is not among the clauses of the case `{id}`"))
}

fn case_fault(row: &Row<'_>, of_clauses: &BTreeSet<(&str, u32)>) -> Option<String> {
    let Row::Case { clauses, finds, .. } = row else { return None };
    if clauses.is_empty() {
        return Some("names no clause of the contract".to_owned());
    }
    if finds.is_empty() {
        return Some("names no faulty adapter that it finds".to_owned());
    }
    let missing = row.links_of_case().into_iter().find(|link| !of_clauses.contains(link));
    missing.map(|(_, clause)| format!("is not among the cases of clause {clause}"))
}

/// A row of one of the two tables.
enum Row<'a> {
    Clause { number: u32, title: &'a str, cases: Vec<&'a str> },
    Case { id: &'a str, clauses: Vec<u32>, finds: &'a str },
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.split('|').map(str::trim);
        let first = cells.next()?;
        if let Ok(number) = first.parse() {
            let title = cells.next()?;
            let cases = cells.next()?.split('`').skip(1).step_by(2).collect();
            return Some(Self::Clause { number, title, cases });
        }
        let id = first.strip_prefix('`')?.strip_suffix('`')?;
        let clauses = cells.nth(1)?.split(',').filter_map(|number| number.trim().parse().ok()).collect();
        let finds = cells.next().filter(|finds| finds.contains('`')).unwrap_or_default();
        Some(Self::Case { id, clauses, finds })
    }

    /// Returns the pairs of case and clause.
    fn links_of_clause(&self) -> Vec<(&'a str, u32)> {
        match self {
            Self::Clause { number, cases, .. } => cases.iter().map(|id| (*id, *number)).collect(),
            Self::Case { .. } => Vec::new(),
        }
    }

    fn links_of_case(&self) -> Vec<(&'a str, u32)> {
        match self {
            Self::Case { id, clauses, .. } => clauses.iter().map(|clause| (*id, *clause)).collect(),
            Self::Clause { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    const CLAUSES: &str = "| 1 | a first | `a.b` |\n| 2 | a second | `a.b`, `c.d` |\n";
    const ROWS: &str = "| `a.b` | storage | 1, 2 | `Fault` |\n| `c.d` | queue | 2 | `X`, `Y` |\n";

    fn found(page: &str) -> Vec<String> {
        let contract = sample(CONTRACT, "### 1. A first\n\n### 2. A second\n");
        check(&[contract, sample(CASES, page)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn whole_links_are_right() {
        assert_eq!(found(&format!("{CLAUSES}{ROWS}")), Vec::<String>::new());
    }

    #[test]
    fn a_case_without_clause_or_fault_or_not_in_its_clause_is_found() {
        let with = |row: &str| found(&format!("{CLAUSES}{ROWS}{row}")).concat();
        assert!(with("| `e.f` | storage |  | `Fault` |\n").contains("no clause"));
        assert!(with("| `e.f` | storage | 1 |  |\n").contains("no faulty adapter"));
        assert!(with("| `e.f` | storage | 1 | `Fault` |\n").contains("cases of clause 1"));
    }

    #[test]
    fn a_clause_without_a_case_or_with_another_s_or_under_another_title_is_found() {
        let page = format!("{CLAUSES}{ROWS}");
        assert!(found(&page.replace("a first | `a.b`", "a first | ")).concat().contains("without a case"));
        assert!(found(&page.replace("1, 2", "2")).concat().contains("clauses of the case `a.b`"));
        assert!(found(&page.replace("a second", "another")).concat().contains("clause 2 is not in"));
        assert!(found(ROWS).concat().contains("clause 1 is not in"));
    }
}
