//! The project's goals, set before anything was measured.

use super::figures::{Backend, Line};

/// The minimum that one scenario on one backend should reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// A ratio to what it is compared with: the hand-written client, an empty queue, or a drain without a
    /// ledger or without the control plane.
    Ratio(f64),
    /// Messages a second.
    Rate(f64),
    /// From push to handler, at most.
    Latency { p50_ms: Option<f64>, p99_ms: f64 },
    /// Percent of a core, at most.
    Processor(f64),
    /// A multiple of what anyqueue does in another scenario.
    TimesOurs(f64, &'static str),
    /// A multiple of what the hand-written client does in another scenario.
    TimesHandwritten(f64, &'static str),
}

impl Goal {
    /// Returns the goal of this scenario on this backend, if it has one. The goal of a drain is for the kind
    /// in which the hand-written client is fastest.
    pub(super) fn of(backend: &str, scenario: &str) -> Option<Self> {
        let kind = if backend.starts_with("rabbitmq") { "rabbitmq" } else { backend };
        #[allow(clippy::match_same_arms, reason = "in the order in which they were set")]
        let goal = match (kind, scenario) {
            ("memory", "cycle") => Self::Rate(1e6),
            ("memory", "settle-concurrent") => Self::Rate(300e3),
            ("memory" | "sqlite", "latency") => Self::Latency { p50_ms: None, p99_ms: 5.0 },
            ("memory" | "sqlite", "idle") => Self::Processor(1.0),
            ("sqlite" | "postgres" | "redis", "settle-then") => Self::Ratio(0.7),
            ("postgres" | "redis", "drain-ledger") => Self::Ratio(0.8),
            ("sqlite", "drain-ledger") => Self::Ratio(0.7),
            ("rabbitmq", "drain-ledger") => Self::Ratio(0.75),
            ("sqlite" | "postgres" | "redis", "drain-controlled") => Self::Ratio(0.95),
            ("sqlite", "latency-across") => Self::Latency { p50_ms: None, p99_ms: 20.0 },
            ("sqlite", "push-batch" | "cycle") => Self::Ratio(0.7),
            ("sqlite", "push-concurrent") => Self::TimesOurs(20.0, "push-one"),
            ("sqlite", "drain-64" | "drain-512") => Self::TimesHandwritten(0.6, "cycle"),
            ("sqlite", "backlog" | "in-flight") => Self::Ratio(0.8),
            ("postgres" | "rabbitmq", "latency") => Self::Latency { p50_ms: Some(1.5), p99_ms: 5.0 },
            ("redis", "latency") => Self::Latency { p50_ms: Some(0.6), p99_ms: 2.0 },
            ("postgres" | "redis" | "rabbitmq", "push-batch") => Self::Ratio(0.8),
            ("postgres" | "rabbitmq", "push-8") => Self::Ratio(0.9),
            ("postgres" | "redis", "backlog" | "in-flight") => Self::Ratio(0.9),
            ("postgres", "drain-64" | "drain-512") => Self::Ratio(0.8),
            ("redis", "drain-64" | "drain-512") => Self::Ratio(0.75),
            ("rabbitmq", "drain-tasks") if backend.ends_with("prefetch") => Self::Ratio(0.75),
            ("rabbitmq", "drain-tasks") => Self::Ratio(0.8),
            _ => return None,
        };
        Some(goal)
    }

    /// Returns the goal as the tables show it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Ratio(ratio) => format!("ratio ≥ {ratio}"),
            Self::Rate(per_s) => format!("≥ {:.0}k/s", per_s / 1000.0),
            Self::Latency { p50_ms: Some(p50), p99_ms } => format!("p50 ≤ {p50}, p99 ≤ {p99_ms} ms"),
            Self::Latency { p50_ms: None, p99_ms } => format!("p99 ≤ {p99_ms} ms"),
            Self::Processor(percent) => format!("≤ {percent} % of a core"),
            Self::TimesOurs(times, scenario) => format!("≥ {times} × `{scenario}`"),
            Self::TimesHandwritten(times, scenario) => format!("≥ {times} × hand-written `{scenario}`"),
        }
    }

    /// Returns whether the goal is reached; `None` if what it needs was not measured.
    pub(super) fn reached(&self, line: &Line, backend: &Backend) -> Option<bool> {
        if line.verified == Some(false) {
            return Some(false);
        }
        let times = |times: f64, other: Option<f64>| Some(line.ours_per_s? >= times * other?);
        match *self {
            Self::Ratio(least) => Some(line.ratio? >= least),
            Self::Rate(least) => Some(line.ours_per_s? >= least),
            Self::Latency { p50_ms, p99_ms } => {
                let median = p50_ms.is_none_or(|most| line.p50_ms.is_some_and(|p50| p50 <= most));
                Some(median && line.p99_ms? <= p99_ms)
            }
            Self::Processor(most) => Some(line.ours_cpu_percent? <= most),
            Self::TimesOurs(factor, other) => times(factor, backend.line(other)?.ours_per_s),
            Self::TimesHandwritten(factor, other) => times(factor, backend.line(other)?.handwritten_per_s),
        }
    }

    /// Returns the ratio that a chart can mark.
    pub(super) fn least_ratio(&self) -> Option<f64> {
        if let Self::Ratio(ratio) = self { Some(*ratio) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(backend: &str, scenario: &str, line: &Line) -> Option<bool> {
        let other = Line { scenario: "push-one".to_owned(), ours_per_s: Some(1000.0), ..Line::default() };
        let backend = Backend { name: backend.to_owned(), lines: vec![other] };
        Goal::of(&backend.name, scenario).unwrap().reached(line, &backend)
    }

    #[test]
    fn a_goal_is_reached_missed_or_not_measured() {
        let rate = |ratio| Line { ratio, ..Line::default() };
        assert_eq!(judged("redis", "backlog", &rate(Some(0.9))), Some(true));
        assert_eq!(judged("redis", "backlog", &rate(Some(0.899))), Some(false));
        assert_eq!(judged("redis", "backlog", &rate(None)), None);
        let failed = Line { verified: Some(false), ..rate(Some(1.0)) };
        assert_eq!(judged("redis", "backlog", &failed), Some(false), "what was not verified does not count");
    }

    #[test]
    fn both_percentiles_bind() {
        let latency = |p50, p99| Line { p50_ms: Some(p50), p99_ms: Some(p99), ..Line::default() };
        assert_eq!(judged("postgres", "latency", &latency(1.5, 5.0)), Some(true));
        assert_eq!(judged("postgres", "latency", &latency(1.6, 2.0)), Some(false));
        assert_eq!(judged("postgres", "latency", &latency(1.0, 5.1)), Some(false));
        assert_eq!(judged("sqlite", "latency", &latency(4.0, 4.9)), Some(true));
    }

    #[test]
    fn a_goal_can_be_a_multiple_of_another_scenario() {
        let rate = |per_s| Line { ours_per_s: Some(per_s), ..Line::default() };
        assert_eq!(judged("sqlite", "push-concurrent", &rate(20_000.0)), Some(true));
        assert_eq!(judged("sqlite", "push-concurrent", &rate(19_999.0)), Some(false));
        assert_eq!(judged("sqlite", "drain-64", &rate(1.0)), None, "`cycle` was not measured");
    }

    #[test]
    fn every_mode_of_rabbitmq_has_its_goals() {
        assert_eq!(Goal::of("rabbitmq-classic", "drain-tasks"), Some(Goal::Ratio(0.8)));
        assert_eq!(Goal::of("rabbitmq-classic-prefetch", "drain-tasks"), Some(Goal::Ratio(0.75)));
        assert_eq!(Goal::of("rabbitmq", "drain-64"), None);
        assert_eq!(Goal::of("rabbitmq-classic", "drain-ledger"), Some(Goal::Ratio(0.75)));
    }
}
