//! The committed figures, as the programs printed them.

use std::fs;
use std::path::Path;

use anyqueue::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The worker compared with the bare queue.
const WORKER: &str = "worker";
/// Other Rust libraries.
const PEERS: &str = "peers";

/// All figures.
pub(crate) struct Figures {
    /// Sorted by name.
    pub(super) backends: Vec<Backend>,
    pub(super) sqs: Vec<Cost>,
    pub(super) worker: Vec<Worker>,
    pub(super) peers: Vec<Peer>,
}

/// The scenarios of one backend.
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

/// One scenario on one backend. Old lines do not say where they were measured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) backend: String,
    pub(super) scenario: String,
    pub(super) ours_per_s: Option<f64>,
    pub(super) handwritten_per_s: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) handwritten_p50_ms: Option<f64>,
    pub(super) handwritten_p99_ms: Option<f64>,
    /// For `backlog` and `in-flight`: the rate on an empty queue, which the ratio is to.
    pub(super) empty_per_s: Option<f64>,
    /// For `drain-ledger` and `drain-controlled`: the rate without, which the ratio is to.
    pub(super) without_per_s: Option<f64>,
    /// What kept the ledger, if that was not the backend.
    pub(super) beside: Option<String>,
    pub(super) ours_cpu_percent: Option<f64>,
    pub(super) handwritten_cpu_percent: Option<f64>,
    /// `None` if the scenario does not apply.
    pub(super) verified: Option<bool>,
    pub(super) rounds: usize,
    pub(super) note: Option<String>,
    pub(super) environment: Option<Environment>,
}

/// Where and with what a figure was measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Environment {
    pub(super) date: String,
    pub(super) processor: Option<String>,
    pub(super) cores: Option<usize>,
    pub(super) memory_mib: Option<u64>,
    pub(super) system: String,
    pub(super) rust: String,
    pub(super) optimized: bool,
    pub(super) server: Option<String>,
}

/// What one way of using SQS costs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cost {
    pub(super) way: String,
    pub(super) levels: u8,
    /// How many of the levels messages were pushed to.
    pub(super) used: u8,
    pub(super) messages: usize,
    pub(super) requests_per_message: f64,
    pub(super) by_hand: f64,
    pub(super) found_nothing_per_message: f64,
    pub(super) dollars_per_million_messages: f64,
    pub(super) environment: Option<Environment>,
}

/// The worker on one backend.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Worker {
    pub(super) backend: String,
    pub(super) slots: usize,
    pub(super) rounds: usize,
    pub(super) messages: usize,
    pub(super) bare_per_s: Option<f64>,
    #[serde(rename = "worker_per_s")]
    pub(super) ours_per_s: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) bare_p50_ms: Option<f64>,
    #[serde(rename = "worker_p50_ms")]
    pub(super) ours_p50_ms: Option<f64>,
    /// For example `2 cores, x86_64`.
    pub(super) hardware: String,
}

/// One scenario of another library.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Peer {
    /// The product, with its version.
    #[serde(rename = "peer")]
    pub(super) product: String,
    /// How it was configured, in a word: `defaults`, or what was changed.
    pub(super) settings: String,
    /// What it was configured to do, in a sentence.
    pub(super) configured: String,
    /// What it keeps when a process dies.
    pub(super) guarantee: String,
    pub(super) backend: String,
    pub(super) scenario: String,
    pub(super) per_s: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) verified: Option<bool>,
    pub(super) note: Option<String>,
    pub(super) environment: Option<Environment>,
}

impl Figures {
    /// Reads the committed figures; a backend that was not measured has no file.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut backends = Vec::new();
        let (mut worker, mut peers) = (Vec::new(), Vec::new());
        for path in paths(folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            match name.as_str() {
                WORKER => worker = lines(&path)?,
                PEERS => peers = lines(&path)?,
                _ => backends.push(Backend { name, lines: lines(&path)? }),
            }
        }
        let sqs = folder.join("cost/sqs.jsonl");
        let sqs = if sqs.exists() { lines(&sqs)? } else { Vec::new() };
        Ok(Self { backends, sqs, worker, peers })
    }

    /// Returns this backend's line for this scenario.
    pub(super) fn line(&self, backend: &str, scenario: &str) -> Option<&Line> {
        self.backends.iter().find(|of| of.name == backend)?.line(scenario)
    }
}

impl Backend {
    pub(super) fn line(&self, scenario: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.scenario == scenario)
    }
}

fn paths(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let failed = |error| Error::invalid(format!("{} cannot be read", folder.display())).with_source(error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    // By name, not by path, so that a kind comes after its backend.
    paths.sort_by_key(|path| path.file_stem().map(std::ffi::OsStr::to_owned));
    Ok(paths)
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let failed = |what: &str| format!("{}: {what}", path.display());
    let text = fs::read_to_string(path)
        .map_err(|error| Error::invalid(failed("cannot be read")).with_source(error))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parse = |line| serde_json::from_str(line);
    lines
        .map(parse)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| Error::invalid(failed("a line is no figure")).with_source(error))
}

/// Returns the rate as text; `–` if nothing was measured.
pub(super) fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => "–".to_owned(),
        Some(rate) if rate >= 10_000.0 => format!("{:.0}k/s", rate / 1000.0),
        Some(rate) => format!("{rate:.0}/s"),
    }
}

pub(super) fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
}

pub(super) fn milliseconds(ms: f64) -> String {
    if ms < 0.1 { format!("{ms:.3} ms") } else { format!("{ms:.2} ms") }
}

pub(super) fn percentiles((p50, p99): (f64, f64)) -> String {
    format!("p50 {}, p99 {}", milliseconds(p50), milliseconds(p99))
}

pub(super) fn percent(share: f64) -> String {
    format!("{share:.2} %")
}
