//! The tables of `docs/scaling.md`: what one server can carry, computed from the figures, and what SQS costs.

use super::figures::{Backend, Figures, Line, rate};
use crate::reports::row;

/// The backends of the model, and their settings.
const BACKENDS: [(&str, &str); 4] = [
    ("sqlite", "SQLite, `synchronous=full`"),
    ("postgres", "PostgreSQL, `synchronous_commit=on`"),
    ("redis", "Redis, `appendfsync everysec`"),
    ("rabbitmq", "RabbitMQ, quorum queues"),
];
/// Messages a day.
const DAYS: [(&str, f64); 4] =
    [("1 million", 1e6), ("10 million", 1e7), ("100 million", 1e8), ("1 billion", 1e9)];
/// The ratio of the peak rate to the mean rate.
const PEAK: f64 = 3.0;
/// The share of a server's capacity that one is willing to use.
const USE: f64 = 0.5;
/// How many seconds a task takes.
const TASK: f64 = 0.1;
/// The share of slots that should be occupied.
const OCCUPIED: f64 = 0.7;
const SECONDS_A_DAY: f64 = 86_400.0;
/// `cycle` with these payload sizes, in bytes; the plain scenario has 256.
const PAYLOADS: [(&str, &str); 5] = [
    ("100", "payload-100"),
    ("256", "cycle"),
    ("1000", "payload-1000"),
    ("4000", "payload-4000"),
    ("16,000", "payload-16000"),
];

/// Returns P, D and C of each backend, and what they were measured on.
pub(super) fn inputs(figures: &Figures) -> String {
    let mut text = table("backend", &["P", "D", "C (computed)", "measured on"]);
    for (name, title, backend) in modelled(figures) {
        let [push, drain] = ["push-concurrent", "drain-tasks"].map(|scenario| backend.line(scenario));
        let processor = drain.and_then(|line| line.environment.as_ref()).map_or_else(String::new, |on| {
            format!("{}, {}", on.processor.as_deref().unwrap_or("?"), on.date)
        });
        let rates = [speed(push), speed(drain), carried(backend)].map(rate);
        let cells = rates.into_iter().chain([format!("[{processor}](benchmarks/{name}.jsonl)")]);
        text.push_str(&row(title, cells));
    }
    text
}

/// Returns how many servers it takes.
pub(super) fn days(figures: &Figures) -> String {
    let names = modelled(figures).map(|(_, title, _)| title.split_once(',').map_or(title, |(name, _)| name));
    let mut heads = vec!["mean/s", "peak/s"];
    heads.extend(names);
    heads.push("slots at t = 0.1 s");
    let mut text = table("messages a day", &heads);
    for (day, messages) in DAYS {
        let (mean, peak) = (messages / SECONDS_A_DAY, messages / SECONDS_A_DAY * PEAK);
        let servers = modelled(figures)
            .map(|(_, _, backend)| carried(backend).map_or("–".to_owned(), |c| servers(peak, c)));
        let slots = (peak * TASK / OCCUPIED).ceil();
        let cells = [format!("{mean:.0}"), format!("{peak:.0}")].into_iter().chain(servers);
        text.push_str(&row(day, cells.chain([format!("{slots:.0}")])));
    }
    text
}

/// Returns the rate of `cycle` by payload size.
pub(super) fn payloads(figures: &Figures) -> String {
    let mut text = table("backend", &PAYLOADS.map(|(bytes, _)| bytes));
    for (_, title, backend) in modelled(figures) {
        let rates = PAYLOADS.map(|(_, scenario)| speed(backend.line(scenario)));
        let small = speed(backend.line("cycle"));
        let told = rates.map(|per_s| {
            let share = per_s.zip(small).map(|(per_s, small)| format!(" ({:.2})", per_s / small));
            format!("{}{}", rate(per_s), share.unwrap_or_default())
        });
        text.push_str(&row(title, told.into_iter()));
    }
    text
}

/// Returns what a billion messages a day cost on SQS.
pub(super) fn sqs(figures: &Figures) -> String {
    let heads = [
        "levels, in use",
        "requests a message",
        "that find nothing",
        "$ a million messages",
        "$ a day at a billion (computed)",
    ];
    let mut text = table("way of working", &heads);
    for cost in &figures.sqs {
        let way = match cost.way.as_str() {
            "one-at-a-time" => "pushed and settled one at a time, pulled by the hundred",
            "stream" => "the same with a stream",
            "worker" => "pushed in batches, run by a worker with 8 slots",
            other => other,
        };
        let cells = [
            format!("{}, {}", cost.levels, cost.used),
            format!("{:.3}", cost.requests_per_message),
            format!("{:.3}", cost.found_nothing_per_message),
            format!("{:.2}", cost.dollars_per_million_messages),
            format!("{:.0}", cost.dollars_per_million_messages * 1000.0),
        ];
        text.push_str(&row(way, cells.into_iter()));
    }
    text
}

fn modelled(figures: &Figures) -> impl Iterator<Item = (&'static str, &'static str, &Backend)> {
    BACKENDS.into_iter().filter_map(|(name, title)| {
        Some((name, title, figures.backends.iter().find(|backend| backend.name == name)?))
    })
}

fn speed(line: Option<&Line>) -> Option<f64> {
    line.filter(|line| line.verified == Some(true))?.ours_per_s
}

/// Returns how many messages a second can each be pushed once and drained once.
fn carried(backend: &Backend) -> Option<f64> {
    let (push, drain) = (speed(backend.line("push-concurrent"))?, speed(backend.line("drain-tasks"))?);
    Some(1.0 / (1.0 / push + 1.0 / drain))
}

/// Returns the number of servers; if it is one, with the share of it that is used.
fn servers(peak: f64, carried: f64) -> String {
    let share = peak / (carried * USE);
    if share > 1.0 { format!("{:.0}", share.ceil()) } else { format!("1 ({:.1} %)", share * 100.0) }
}

fn table(first: &str, heads: &[&str]) -> String {
    let head = row(first, heads.iter().map(|head| (*head).to_owned()));
    head + &row("---", heads.iter().map(|_| "---:".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_rounded_up_and_one_tells_how_much_of_it_is_used() {
        assert_eq!(servers(3_500.0, 14_000.0), "1 (50.0 %)");
        assert_eq!(servers(34_722.0, 30_000.0), "3");
    }

    #[test]
    fn what_a_server_carries_is_less_than_what_it_is_pushed_or_drained() {
        let line = |scenario: &str, per_s| Line {
            scenario: scenario.to_owned(),
            ours_per_s: Some(per_s),
            verified: Some(true),
            ..Line::default()
        };
        let lines = vec![line("push-concurrent", 60_000.0), line("drain-tasks", 30_000.0)];
        let backend = Backend { name: "redis".to_owned(), lines };
        assert!((carried(&backend).unwrap() - 20_000.0).abs() < 1.0);
        let figures =
            Figures { backends: vec![backend], sqs: Vec::new(), worker: Vec::new(), peers: Vec::new() };
        assert!(days(&figures).contains("| 1 billion | 11574 | 34722 | 4 | 4961 |"), "{}", days(&figures));
    }
}
