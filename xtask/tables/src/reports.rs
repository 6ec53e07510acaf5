//! Tables of test runs, read from the committed reports, so that no figure lacks its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyqueue::{Error, Result};
use serde_json::Value;

/// The reports of the conformance suite, one file for each backend.
pub(crate) const CONFORMANCE: &str = "docs/conformance";

/// Returns a row for each thing that backends declare, and a column for each backend. The values are those
/// that the backends declared in the reported run, because some have to ask their server first.
pub(crate) fn capability_matrix(folder: &Path) -> Result<String> {
    let reports: Vec<Value> = files(folder)?.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    let mut text = row("capability", reports.iter().map(|report| word(report, "backend").to_owned()));
    text.push_str(&row("---", reports.iter().map(|_| "---".to_owned())));
    let declared: Vec<_> = reports.iter().map(declared).collect();
    for (label, _) in declared.first().into_iter().flatten() {
        let cell = |of: &Vec<(&str, &str)>| {
            let value = of.iter().find(|(name, _)| name == label).map_or("–", |(_, value)| value);
            value.to_owned()
        };
        text.push_str(&row(label, declared.iter().map(cell)));
    }
    Ok(text)
}

/// Returns the pairs of name and value in a report.
fn declared(report: &Value) -> Vec<(&str, &str)> {
    let pairs = report.get("capabilities").and_then(Value::as_array).into_iter().flatten();
    pairs.filter_map(|pair| Some((pair.get(0)?.as_str()?, pair.get(1)?.as_str()?))).collect()
}

/// Returns a row for each group of cases, and a column for each backend: how many passed of those that apply
/// to it.
pub(crate) fn conformance_matrix(folder: &Path) -> Result<String> {
    let reports: Vec<Value> = files(folder)?.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    let names: Vec<&str> = reports.iter().map(|report| word(report, "backend")).collect();
    let mut groups: BTreeSet<&str> = BTreeSet::new();
    let mut tallies: BTreeMap<(usize, &str), [u64; 2]> = BTreeMap::new();
    for (column, report) in reports.iter().enumerate() {
        for case in report.get("cases").and_then(Value::as_array).into_iter().flatten() {
            let group = word(case, "group");
            groups.insert(group);
            let [passed, concern] = tallies.entry((column, group)).or_default();
            *passed += u64::from(word(case, "outcome") == "pass");
            *concern += u64::from(word(case, "outcome") != "not_applicable");
        }
    }
    let mut text = row("cases", names.iter().map(|name| (*name).to_owned()));
    text.push_str(&row("---", names.iter().map(|_| "---:".to_owned())));
    for group in groups {
        let cells = (0..names.len()).map(|column| match tallies.get(&(column, group)) {
            None | Some([_, 0]) => "–".to_owned(),
            Some([passed, concern]) => format!("{passed}/{concern}"),
        });
        text.push_str(&row(&format!("`{group}`"), cells));
    }
    let all = (0..names.len()).map(|column| {
        let own = tallies.iter().filter(|((of, _), _)| *of == column);
        let [passed, concern] = own.fold([0, 0], |[a, b], (_, [p, c])| [a + p, b + c]);
        format!("**{passed}/{concern}**")
    });
    text.push_str(&row("**all**", all));
    Ok(text)
}

/// Returns a row of a table.
pub(crate) fn row(label: &str, cells: impl Iterator<Item = String>) -> String {
    let mut line = format!("| {label} |");
    for cell in cells {
        let _ = write!(line, " {cell} |"); // writing to a string does not fail
    }
    line.push('\n');
    line
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|error| Error::invalid("a committed report is no JSON").with_source(error))
}

/// Returns the contents of the folder's files, sorted by name.
fn files(folder: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::invalid(format!("{} cannot be read", folder.display())).with_source(error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).map_err(failed)).collect()
}

#[cfg(test)]
mod tests {
    use anyqueue_conformance::Need;

    use super::*;

    #[test]
    fn a_case_that_does_not_concern_a_backend_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let report = r#"{"backend":"b","cases":[
            {"group":"push","outcome":"pass"}, {"group":"push","outcome":"fail"},
            {"group":"kill","outcome":"not_applicable"}]}"#;
        fs::write(folder.path().join("b.json"), report).unwrap();
        let matrix = conformance_matrix(folder.path()).unwrap();
        assert!(matrix.contains("| `push` | 1/2 |\n"), "{matrix}");
        assert!(matrix.contains("| `kill` | – |\n"), "{matrix}");
        assert!(matrix.contains("| **all** | **1/2** |\n"), "{matrix}");
    }

    /// For backends without a server, a report must not say what the code no longer does.
    #[tokio::test]
    async fn the_reports_of_embedded_backends_are_of_what_they_declare_now() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CONFORMANCE);
        let registry =
            anyqueue::Registry::new().with(anyqueue_memory::backend()).with(anyqueue_sqlite::backend());
        let mut now = Vec::new();
        for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("t.db").display())] {
            let storage = registry.open(&url).await.unwrap();
            let report = format!("{}.json", storage.name());
            fs::copy(reports.join(&report), folder.path().join(&report)).unwrap();
            now.push((storage.name(), storage.capabilities().clone()));
        }
        let told = capability_matrix(folder.path()).unwrap();
        assert_eq!(told, anyqueue_conformance::capability_table(&now));
    }

    #[test]
    fn whatever_does_not_apply_to_a_backend_of_ours_cites_the_reason() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CONFORMANCE);
        for report in files(&folder).unwrap().iter().map(|text| parse(text).unwrap()) {
            let cases = report.get("cases").and_then(Value::as_array).unwrap();
            let skipped = cases.iter().filter(|case| word(case, "outcome") == "not_applicable");
            // Some cases do not apply to the reported backends: a case about what is not declared, if a
            // backend declares everything; one about the order of several calls, if a backend wants one at a
            // time; and one about connections, if a backend's leases are timed.
            let of_no_concern =
                [Need::Undeclared, Need::OverlappingExchanges, Need::ConnectionLease, Need::DedupWindow]
                    .map(Need::what);
            let lacks = skipped.filter(|case| !of_no_concern.contains(&word(case, "needs")));
            for case in lacks {
                let id = word(case, "id");
                assert!(!word(case, "rule").is_empty(), "{id} on {}: no reason", word(&report, "backend"));
            }
        }
    }
}
