//! What is printed.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use crate::client::{BoxError, Result};
use crate::environment::Environment;
use crate::scenario::Scenario;

/// One scenario on one backend. What it does not measure is `null`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    backend: &'static str,
    scenario: &'static str,
    /// Messages per second, the median of the rounds.
    ours_per_s: Option<f64>,
    handwritten_per_s: Option<f64>,
    /// Above 1: ours is faster. For `backlog` and `in-flight`: our rate on the deep queue divided by our rate
    /// on the empty one. For `drain-ledger` and `drain-controlled`: our rate with it divided by our rate
    /// without.
    ratio: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Whether every message was accounted for; `null` if the scenario was skipped.
    verified: Option<bool>,
    handwritten_p50_ms: Option<f64>,
    handwritten_p99_ms: Option<f64>,
    /// For `backlog` and `in-flight`: our rate on the empty queue.
    empty_per_s: Option<f64>,
    /// For `drain-ledger` and `drain-controlled`: our rate without.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_min_max: Option<(f64, f64)>,
    /// What keeps the ledger, if that is not the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<String>,
    /// For `idle`: percent of one core.
    ours_cpu_percent: Option<f64>,
    handwritten_cpu_percent: Option<f64>,
    rounds: usize,
    ours_min_max: Option<(f64, f64)>,
    handwritten_min_max: Option<(f64, f64)>,
    /// Why it was skipped or failed.
    note: Option<String>,
    environment: Option<Environment>,
}

impl Report {
    pub(crate) fn new(backend: &'static str, scenario: Scenario) -> Self {
        Self { backend, scenario: scenario.name(), ..Self::default() }
    }

    pub(crate) fn on(self, environment: &Environment) -> Self {
        Self { environment: Some(environment.clone()), ..self }
    }

    pub(crate) fn rates(mut self, ours: &[f64], handwritten: &[f64]) -> Self {
        self.ours_per_s = median(ours);
        self.handwritten_per_s = median(handwritten);
        self.ratio = quotient(self.ours_per_s, self.handwritten_per_s);
        self.spreads(ours, handwritten)
    }

    pub(crate) fn latencies(mut self, ours: &[Duration], handwritten: &[Duration], rounds: usize) -> Self {
        self.p50_ms = percentile_ms(ours, 50);
        self.p99_ms = percentile_ms(ours, 99);
        self.handwritten_p50_ms = percentile_ms(handwritten, 50);
        self.handwritten_p99_ms = percentile_ms(handwritten, 99);
        self.ratio = quotient(self.handwritten_p50_ms, self.p50_ms);
        self.rounds = rounds;
        self.verified = Some(true);
        self
    }

    pub(crate) fn cpu(mut self, ours: &[f64], handwritten: &[f64]) -> Self {
        self.ours_cpu_percent = median(ours);
        self.handwritten_cpu_percent = median(handwritten);
        self.spreads(ours, handwritten)
    }

    pub(crate) fn depth(mut self, empty: &[f64], deep: &[f64]) -> Self {
        self.ours_per_s = median(deep);
        self.empty_per_s = median(empty);
        self.ratio = quotient(self.ours_per_s, self.empty_per_s);
        self.spreads(deep, &[])
    }

    pub(crate) fn added(mut self, with: &[f64], without: &[f64]) -> Self {
        self.ours_per_s = median(with);
        self.without_per_s = median(without);
        self.without_min_max = min_max(without);
        self.ratio = quotient(self.ours_per_s, self.without_per_s);
        self.spreads(with, &[])
    }

    pub(crate) fn beside(mut self, what: String) -> Self {
        self.beside = Some(what);
        self
    }

    pub(crate) fn skipped(mut self, why: &str) -> Self {
        self.note = Some(why.to_owned());
        self
    }

    pub(crate) fn failed(mut self, error: &BoxError) -> Self {
        self.verified = Some(false);
        self.note = Some(error.to_string());
        self
    }

    fn spreads(mut self, ours: &[f64], handwritten: &[f64]) -> Self {
        self.rounds = ours.len();
        self.ours_min_max = min_max(ours);
        self.handwritten_min_max = min_max(handwritten);
        self.verified = Some(true);
        self
    }

    /// Returns whether the scenario was verified, or rightly skipped.
    pub(crate) fn is_fine(&self) -> bool {
        self.verified != Some(false)
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
        } else {
            writeln!(out, "{:<8} {:<18} {}", self.backend, self.scenario, self.line())?;
        }
        Ok(out.flush()?)
    }

    fn line(&self) -> String {
        if let Some(note) = &self.note {
            return format!("{}: {note}", if self.is_fine() { "skipped" } else { "FAILED" });
        }
        let ratio = self.ratio.map(|ratio| format!("  ratio {ratio:.2}")).unwrap_or_default();
        let numbers = if let Some(p50) = self.p50_ms {
            format!(
                "ours p50 {p50:>8.3} p99 {:>8.3} ms   hand-written p50 {:>8.3} p99 {:>8.3} ms",
                self.p99_ms.unwrap_or_default(),
                self.handwritten_p50_ms.unwrap_or_default(),
                self.handwritten_p99_ms.unwrap_or_default()
            )
        } else if let Some(cpu) = self.ours_cpu_percent {
            format!(
                "ours {cpu:>7.3} % CPU   hand-written {:>7.3} % CPU",
                self.handwritten_cpu_percent.unwrap_or_default()
            )
        } else if let Some(empty) = self.empty_per_s {
            format!("ours {:>12}/s   when empty {:>12}/s", self.spread(), whole(empty))
        } else if self.without_per_s.is_some() {
            let without = spread(self.without_per_s, self.without_min_max);
            format!("with it {}   without {without}", self.spread())
        } else {
            format!("ours {}   hand-written {}", self.spread(), self.handwritten_spread())
        };
        format!("{numbers}{ratio}  ({} rounds, verified)", self.rounds)
    }

    fn spread(&self) -> String {
        spread(self.ours_per_s, self.ours_min_max)
    }

    fn handwritten_spread(&self) -> String {
        spread(self.handwritten_per_s, self.handwritten_min_max)
    }
}

fn spread(median: Option<f64>, min_max: Option<(f64, f64)>) -> String {
    let (min, max) = min_max.unwrap_or_default();
    let range = format!("[{} to {}]", whole(min), whole(max));
    format!("{:>9}/s {range:<20}", whole(median.unwrap_or_default()))
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

/// Returns the middle value; of an even number of values, the lower of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(values.len().saturating_sub(1) / 2).copied()
}

fn min_max(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    let max = values.iter().copied().max_by(f64::total_cmp)?;
    Some((min, max))
}

/// Returns the smallest value that at least `percent` of all values do not exceed (the nearest rank).
pub(crate) fn percentile_ms(values: &[Duration], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|value| value.as_secs_f64() * 1000.0)
}

fn quotient(of: Option<f64>, by: Option<f64>) -> Option<f64> {
    Some(of? / by.filter(|by| *by > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_values_that_occurred() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
        let values: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile_ms(&values, 50), Some(100.0));
        assert_eq!(percentile_ms(&values, 99), Some(198.0));
        assert_eq!(percentile_ms(&values[..1], 99), Some(200.0));
        assert_eq!(percentile_ms(&[], 50), None);
    }

    #[test]
    fn a_report_has_the_promised_fields_whatever_it_measured() {
        let report = Report::new("memory", Scenario::Drain64).rates(&[50.0, 40.0, 60.0], &[100.0]);
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["scenario"], "drain-64");
        assert_eq!((&json["ours_per_s"], &json["ratio"]), (&50.0.into(), &0.5.into()));
        for field in ["backend", "handwritten_per_s", "p50_ms", "p99_ms", "verified"] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert!(!Report::new("memory", Scenario::Idle).failed(&"broken".into()).is_fine());
    }
}
