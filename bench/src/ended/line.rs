//! What is printed for each figure.

use std::time::Duration;

use serde::Serialize;

use crate::client::Result;
use crate::environment::Environment;
use crate::report::percentile_ms;

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Line {
    pub(super) backend: &'static str,
    pub(super) scenario: &'static str,
    /// How many tasks have ended.
    pub(super) ended: usize,
    /// `library` or `http`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) over: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<&'static str>,
    /// Whether the filter asks for something that no index covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scans: Option<bool>,
    /// How many tasks were found; `unfinished` says whether the time for a look was over before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unfinished: Option<bool>,
    pub(super) rounds: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worst_ms: Option<f64>,
    /// Bytes of the store's files, or of its memory, for each end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_each: Option<u64>,
    /// The largest increase of resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) added_kib: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) environment: Option<Environment>,
}

impl Line {
    pub(super) fn times(mut self, all: &[Duration]) -> Self {
        self.rounds = all.len();
        self.p50_ms = percentile_ms(all, 50);
        self.worst_ms = percentile_ms(all, 100);
        self
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let what = [self.over, self.filter].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let times =
            self.p50_ms.map(|p50| format!(" {p50:.2} ms, at worst {:.2} ms", self.worst_ms.unwrap_or(p50)));
        let found = self.found.map(|found| format!(", {found} found"));
        let cut = self.unfinished.filter(|cut| *cut).map(|_| ", out of time".to_owned());
        let bytes = self.bytes_each.map(|bytes| format!(" {bytes} bytes each"));
        let added = self.added_kib.map(|kib| format!(" {kib} KiB added"));
        let took = self.seconds.map(|seconds| format!(" in {seconds:.1} s"));
        let all = [times, found, cut, bytes, added, took].into_iter().flatten().collect::<String>();
        println!("{}, {} of {}: {what}{all}", self.backend, self.scenario, self.ended);
        Ok(())
    }
}
