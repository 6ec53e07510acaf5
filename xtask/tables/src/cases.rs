//! The cases of the suite: which of them prove a clause of the contract, and which faulty adapters they find.

use std::collections::BTreeMap;

use anyqueue::{Error, Result};
use anyqueue_conformance::{Case, Clause, cases};

use crate::reports::row;

/// Returns a row for each clause, with its cases.
///
/// # Errors
/// If a clause has no case: then nothing proves it.
pub(crate) fn by_clause() -> Result<String> {
    table_of_clauses(cases::all())
}

fn table_of_clauses<'a>(cases: impl Iterator<Item = &'a Case>) -> Result<String> {
    let mut proven: BTreeMap<Clause, Vec<String>> = BTreeMap::new();
    for case in cases {
        for clause in case.clauses {
            proven.entry(*clause).or_default().push(format!("`{}`", case.id));
        }
    }
    let mut text = "| clause | says | cases |\n|---:|---|---|\n".to_owned();
    for clause in Clause::ALL {
        let none = || Error::invalid(format!("no case of the suite proves clause {clause}"));
        let ids = proven.get(clause).ok_or_else(none)?;
        text.push_str(&row(&clause.to_string(), [clause.title().to_owned(), ids.join(", ")].into_iter()));
    }
    Ok(text)
}

/// Returns a row for each case, with its clauses and the faulty adapters that it finds.
pub(crate) fn with_faults() -> String {
    let row_of = |case: &Case| {
        let layer = format!("{:?}", case.layer).to_lowercase();
        let clauses: Vec<_> = case.clauses.iter().map(Clause::to_string).collect();
        let faults: Vec<_> = case.kills.iter().map(|fault| format!("`{fault:?}`")).collect();
        row(&format!("`{}`", case.id), [layer, clauses.join(", "), faults.join(", ")].into_iter())
    };
    let rows: Vec<_> = cases::all().map(row_of).collect();
    format!("| case | layer | clauses | finds |\n|---|---|---|---|\n{}", rows.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_without_a_case_is_an_error() {
        let unproven = cases::all().filter(|case| !case.clauses.contains(&Clause::Expiry));
        let error = table_of_clauses(unproven).unwrap_err().to_string();
        assert!(error.contains("clause 34"), "{error}");
    }

    #[test]
    fn a_case_stands_with_each_of_its_clauses() {
        let table = by_clause().unwrap();
        for case in cases::all() {
            for clause in case.clauses {
                let start = format!("| {clause} | {} |", clause.title());
                let line = table.lines().find(|line| line.starts_with(&start)).unwrap();
                assert!(line.contains(&format!("`{}`", case.id)), "{} is not in: {line}", case.id);
            }
        }
    }
}
