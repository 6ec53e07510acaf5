//! Writes into the project's documents what can be derived from the code. `cargo xtask tables` runs it, and
//! its test fails if a document is stale.
//!
//! A separate package, so that `cargo xtask` builds without any adapter.

mod benchmarks;
mod cases;
mod place;
mod reports;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyqueue::Result;

/// Puts the text into the place of this name in the document.
type Place = fn(document: &str, name: &str, text: &str) -> Result<String, String>;

/// A generated part of a document.
struct Table {
    document: String,
    name: &'static str,
    place: Place,
    text: String,
}

fn main() -> ExitCode {
    match update() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask-tables: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Brings every document up to date.
fn update() -> Result<(), String> {
    for table in tables().map_err(|error| error.to_string())? {
        let (old, new) = old_and_new(&table)?;
        let Table { document, name, .. } = table;
        if new == old {
            println!("tables: {name} in {document} is up to date");
        } else {
            fs::write(path(&document), new)
                .map_err(|error| format!("{document} cannot be written: {error}"))?;
            println!("tables: wrote {name} into {document}");
        }
    }
    Ok(())
}

/// Returns the document as it is, and as it should be.
fn old_and_new(table: &Table) -> Result<(String, String), String> {
    let Table { document, name, place, text } = table;
    let old = match fs::read_to_string(path(document)) {
        // The chart of something that was not measured before.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| format!("{document} cannot be read: {error}"))?,
    };
    let new = place(&old, name, text).map_err(|error| format!("{document}: {error}"))?;
    Ok((old, new))
}

fn path(document: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document)
}

fn tables() -> Result<Vec<Table>> {
    let conformance = path(reports::CONFORMANCE);
    let figures = benchmarks::read(&path(benchmarks::FOLDER))?;
    let between = place::between_marks;
    let mut tables = vec![
        table("docs/capabilities.md", "capabilities", between, reports::capability_matrix(&conformance)?),
        table("docs/conformance/cases.md", "clauses", between, cases::by_clause()?),
        table("docs/conformance/cases.md", "cases", between, cases::with_faults()),
        table(
            "docs/conformance/README.md",
            "conformance",
            between,
            reports::conformance_matrix(&conformance)?,
        ),
        table("README.md", "numbers", between, benchmarks::summary(&figures)),
        table("docs/benchmarks.md", "figures", between, benchmarks::page(&figures)),
    ];
    for (name, text) in benchmarks::scaling(&figures) {
        tables.push(table("docs/scaling.md", name, between, text));
    }
    for (file, chart) in benchmarks::charts(&figures) {
        tables.push(table(&format!("{}/{file}", benchmarks::FOLDER), "the chart", place::whole, chart));
    }
    Ok(tables)
}

fn table(document: &str, name: &'static str, place: Place, text: String) -> Table {
    Table { document: document.to_owned(), name, place, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also proves that each clause of the contract has a case.
    #[test]
    fn every_document_is_up_to_date() {
        for table in tables().unwrap() {
            let (old, new) = old_and_new(&table).unwrap();
            let Table { document, name, .. } = table;
            assert!(new == old, "{name} in {document} is stale: run `cargo xtask tables`");
        }
    }
}
