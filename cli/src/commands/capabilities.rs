//! `anyqueue capabilities`: shows what backends declare.

use anyqueue_conformance::capability_table;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::{Result, with_causes};
use crate::open::{self, Create};
use crate::output::Table;
use crate::session::{Session, url_argument};

const HELP: &str = "\
Examples:
  anyqueue capabilities
  anyqueue capabilities sqlite:jobs.db
  anyqueue capabilities sqlite:jobs.db postgres://app@host/db      a column for each
  anyqueue capabilities redis://host/ --json

A backend declares what it offers on this server, with these settings. What it does not declare is refused as
unsupported before anything is stored. The conformance suite tests what is declared.";

/// Shows what a backend offers
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Capabilities {
    /// The backends; by default the one of --url
    #[arg(value_name = "URL", value_parser = url_argument)]
    at: Vec<String>,
}

impl Capabilities {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let urls = if self.at.is_empty() { vec![session.url(None)?.to_owned()] } else { self.at };
        let mut declared = Vec::with_capacity(urls.len());
        for url in &urls {
            let storage = open::storage(url, Create::Never).await?;
            declared.push((storage.name(), storage.capabilities().clone()));
            if let Err(error) = storage.close().await {
                session.output.warn(&with_causes(&error));
            }
        }
        let rows = rows(&capability_table(&declared));
        if session.output.json {
            for (column, (name, _)) in declared.iter().enumerate() {
                session.output.object(&json!({ "backend": name, "capabilities": object(&rows, column) }))?;
            }
            return Ok(());
        }
        let header: Vec<_> =
            std::iter::once("capability").chain(declared.iter().map(|(name, _)| *name)).collect();
        let mut table = Table::new(&header);
        for (name, cells) in rows {
            table.row(std::iter::once(name).chain(cells));
        }
        table.print(session.output)
    }
}

/// The rows of the suite's table, without its two lines of header: a name, and a cell for each backend.
fn rows(table: &str) -> Vec<(String, Vec<String>)> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches(['|', ' ']).split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = table.lines().skip(2).map(cells);
    rows.filter_map(|mut row| (!row.is_empty()).then(|| (row.remove(0), row))).collect()
}

fn object(rows: &[(String, Vec<String>)], column: usize) -> Map<String, Value> {
    let cell = |cells: &Vec<String>| cells.get(column).cloned().map_or(Value::Null, Value::String);
    rows.iter().map(|(name, cells)| (name.clone(), cell(cells))).collect()
}
