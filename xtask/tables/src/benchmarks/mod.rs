//! The measurements, as the page `docs/benchmarks.md`, its charts and the README's table show them.
//!
//! All of it is read from the committed figures, so that no figure lacks its source.

mod capacity;
mod chart;
mod environment;
mod figures;
mod goal;
mod more;
mod page;

use std::path::Path;

use anyqueue::Result;

pub(crate) use figures::Figures;

use figures::{Backend, Line, milliseconds, percent, rate, ratio};

/// The folder of the bench's output, one JSON object a line.
pub(crate) const FOLDER: &str = "docs/benchmarks";

/// Returns the page's tables.
pub(crate) fn page(figures: &Figures) -> String {
    page::page(figures)
}

/// Returns the tables of the guide to scaling: the name of each place, and its content.
pub(crate) fn scaling(figures: &Figures) -> [(&'static str, String); 4] {
    [
        ("inputs", capacity::inputs(figures)),
        ("days", capacity::days(figures)),
        ("payloads", capacity::payloads(figures)),
        ("sqs", capacity::sqs(figures)),
    ]
}

/// Returns the charts: the name of each file in the folder, and its content.
pub(crate) fn charts(figures: &Figures) -> Vec<(String, String)> {
    let charts =
        figures.backends.iter().map(|backend| (format!("{}.svg", backend.name), chart::svg(backend)));
    charts.collect()
}

/// The scenarios that the README shows; all are on the page.
const SUMMARY: [&str; 6] = ["push-one", "push-batch", "push-concurrent", "cycle", "drain-64", "latency"];

/// Returns the README's table: a row for each of these scenarios, a column for each backend, without the
/// classic queues.
pub(crate) fn summary(figures: &Figures) -> String {
    let shown: Vec<&Backend> =
        figures.backends.iter().filter(|backend| !backend.name.contains("classic")).collect();
    let mut text = crate::reports::row("scenario", shown.iter().map(|backend| backend.name.clone()));
    text.push_str(&crate::reports::row("---", shown.iter().map(|_| "---:".to_owned())));
    for scenario in SUMMARY {
        let cells = shown.iter().map(|backend| backend.line(scenario).map_or("–".to_owned(), brief));
        text.push_str(&crate::reports::row(scenario, cells));
    }
    text
}

/// Returns what anyqueue did, and how that compares with the hand-written client.
fn brief(line: &Line) -> String {
    if line.verified != Some(true) {
        return if line.verified.is_some() { "failed".to_owned() } else { "–".to_owned() };
    }
    let beside = line.ratio.map_or(String::new(), |value| format!(" ({})", ratio(Some(value))));
    let own = match (line.p50_ms, line.ours_cpu_percent) {
        (Some(p50), _) => milliseconds(p50),
        (None, Some(share)) => percent(share),
        (None, None) => rate(line.ours_per_s),
    };
    format!("{own}{beside}")
}

/// Reads the committed figures.
pub(crate) fn read(folder: &Path) -> Result<Figures> {
    Figures::read(folder)
}
