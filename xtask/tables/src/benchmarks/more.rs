//! What is not a scenario of the bench: the price of SQS, the worker, other libraries.

use std::fmt::Write as _;

use super::environment::measured_on;
use super::figures::{Cost, Figures, Peer, Worker, percentiles, rate, ratio};
use crate::reports::row;

/// The maximum number of requests for each message when work is done one at a time.
const REQUESTS: f64 = 0.35;
/// The maximum time between a bare pull and the start of a handler.
const WORKER_LATENCY_MS: f64 = 0.3;

pub(super) fn sqs(costs: &[Cost]) -> String {
    if costs.is_empty() {
        return not_run("sqs: requests, not speed");
    }
    let mut text =
        "\n## sqs: requests, not speed\n\nCounted on an emulator, whose speed says nothing.\n\n".to_owned();
    text.push_str(&measured_on(
        costs.iter().map(|cost| (cost.way.as_str(), cost.environment.as_ref())).collect(),
    ));
    let heads = [
        "requests a message",
        "hand-written",
        "that find nothing",
        "$ a million messages",
        "goal",
        "reached",
    ];
    text.push_str(&row("way, levels, in use", heads.map(str::to_owned).into_iter()));
    let rule = ["---:", "---:", "---:", "---:", "---", "---"];
    text.push_str(&row("---", rule.map(str::to_owned).into_iter()));
    for cost in costs {
        let cells = [
            format!("{:.3}", cost.requests_per_message),
            format!("{:.1}", cost.by_hand),
            format!("{:.3}", cost.found_nothing_per_message),
            format!("{:.3}", cost.dollars_per_million_messages),
            format!("≤ {REQUESTS}"),
            yes(cost.requests_per_message <= REQUESTS),
        ];
        text.push_str(&row(&format!("{}, {}, {}", cost.way, cost.levels, cost.used), cells.into_iter()));
    }
    text
}

pub(super) fn worker(lines: &[Worker]) -> String {
    const TITLE: &str = "The worker beside the bare queue";
    let Some(first) = lines.first() else { return not_run(TITLE) };
    let mut text = format!(
        "\n## {TITLE}\n\nHandlers that do nothing, {} slots, rounds of each side in turns. Measured on {}.\n\n",
        first.slots, first.hardware
    );
    let heads = [
        "rounds",
        "bare queue",
        "worker",
        "ratio",
        "goal",
        "reached",
        "p50 bare",
        "p50 worker",
        "goal",
        "reached",
    ];
    text.push_str(&row("backend", heads.map(str::to_owned).into_iter()));
    let rule = ["---:", "---:", "---:", "---:", "---", "---", "---:", "---:", "---", "---"];
    text.push_str(&row("---", rule.map(str::to_owned).into_iter()));
    for line in lines {
        text.push_str(&row(&line.backend, worker_cells(line).into_iter()));
    }
    text
}

fn worker_cells(line: &Worker) -> [String; 10] {
    let (goal, reached) = match line.backend.as_str() {
        "memory" => ("≥ 300k/s".to_owned(), line.ours_per_s.map(|rate| rate >= 300e3)),
        backend => {
            let least = if backend == "redis" { 0.7 } else { 0.9 };
            (format!("ratio ≥ {least}"), line.ratio.map(|ratio| ratio >= least))
        }
    };
    let later = line.ours_p50_ms.zip(line.bare_p50_ms).map(|(worker, bare)| worker - bare);
    let verdict = |reached: Option<bool>| reached.map_or("not measured".to_owned(), yes);
    let ms = |ms: Option<f64>| ms.map_or("–".to_owned(), |ms| format!("{ms:.3} ms"));
    [
        line.rounds.to_string(),
        rate(line.bare_per_s),
        rate(line.ours_per_s),
        ratio(line.ratio),
        goal,
        verdict(reached),
        ms(line.bare_p50_ms),
        ms(line.ours_p50_ms),
        format!("≤ {WORKER_LATENCY_MS} ms later"),
        verdict(later.map(|later| later <= WORKER_LATENCY_MS)),
    ]
}

/// Returns the table of other libraries, with ours beside them where it was measured on the same backend.
pub(super) fn peers(figures: &Figures) -> String {
    const TITLE: &str = "Other Rust libraries";
    let peers = &figures.peers;
    if peers.is_empty() {
        return not_run(TITLE);
    }
    let mut text = format!(
        "\n## {TITLE}\n\nOn private servers with the same settings, one after the other; anyqueue's figures are those above. \
         They do not promise the same: see what each gives.\n\n"
    );
    let environments = peers.iter().map(|line| (line.backend.as_str(), line.environment.as_ref())).collect();
    text.push_str(&measured_on(merged(environments)));
    let heads = ["library", "settings", "it", "anyqueue"];
    text.push_str(&row("backend, scenario", heads.map(str::to_owned).into_iter()));
    text.push_str(&row("---", ["---", "---", "---:", "---:"].map(str::to_owned).into_iter()));
    for line in peers {
        let ours = figures.line(&line.backend, &line.scenario);
        let ours = ours.filter(|ours| ours.verified == Some(true));
        let cells = [
            line.product.clone(),
            line.settings.clone(),
            peer_did(line),
            ours.map_or("–".to_owned(), |ours| did(ours.p50_ms.zip(ours.p99_ms), ours.ours_per_s)),
        ];
        text.push_str(&row(&format!("{}, `{}`", line.backend, line.scenario), cells.into_iter()));
    }
    text.push_str("\nWhat they were configured to do, and what that gives:\n\n");
    let mut told: Vec<String> = Vec::new();
    for line in peers {
        let Peer { product, settings, backend, configured, guarantee, .. } = line;
        let sentence = format!("- {product} on {backend}, {settings}: {configured} {guarantee}\n");
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    text.push_str(&told.concat());
    for line in peers {
        if let Some(note) = &line.note {
            let Peer { product, settings, backend, scenario, .. } = line;
            let _ = writeln!(text, "- {product} on {backend}, {settings}, `{scenario}`: {note}");
        }
    }
    text
}

/// Returns each name once for each machine.
fn merged<T: PartialEq + Copy>(lines: Vec<(&str, T)>) -> Vec<(&str, T)> {
    let mut once = Vec::new();
    for line in lines {
        if !once.contains(&line) {
            once.push(line);
        }
    }
    once
}

fn peer_did(line: &Peer) -> String {
    match line.verified {
        Some(true) => did(line.p50_ms.zip(line.p99_ms), line.per_s),
        Some(false) => "failed".to_owned(),
        None => "not run".to_owned(),
    }
}

fn did(times: Option<(f64, f64)>, per_s: Option<f64>) -> String {
    times.map_or_else(|| rate(per_s), percentiles)
}

fn yes(reached: bool) -> String {
    if reached { "yes".to_owned() } else { "**no**".to_owned() }
}

fn not_run(title: &str) -> String {
    format!("\n## {title}\n\nNot measured yet.\n")
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Backend, Line};
    use super::*;

    #[test]
    fn a_worker_is_judged_by_its_share_and_by_what_it_adds() {
        let line = Worker {
            backend: "postgres".to_owned(),
            ratio: Some(0.89),
            bare_p50_ms: Some(1.0),
            ours_p50_ms: Some(1.31),
            ..Worker::default()
        };
        let text = worker(std::slice::from_ref(&line));
        assert!(text.contains("| 0.89 | ratio ≥ 0.9 | **no** |"), "{text}");
        assert!(text.contains("| ≤ 0.3 ms later | **no** |"), "{text}");
        let redis = Worker { backend: "redis".to_owned(), ours_p50_ms: Some(1.29), ..line };
        let text = worker(&[redis]);
        assert!(
            text.contains("| ratio ≥ 0.7 | yes |") && text.contains("| ≤ 0.3 ms later | yes |"),
            "{text}"
        );
        assert!(worker(&[]).contains("Not measured"));
    }

    #[test]
    fn a_price_above_the_goal_is_a_miss() {
        let cost = |requests| Cost { requests_per_message: requests, ..Cost::default() };
        let text = sqs(&[cost(0.35), cost(0.351)]);
        assert_eq!((text.matches("| yes |").count(), text.matches("| **no** |").count()), (1, 1), "{text}");
    }

    #[test]
    fn a_peer_stands_beside_ours_with_what_it_gives() {
        let ours = Line {
            scenario: "cycle".to_owned(),
            ours_per_s: Some(9000.0),
            verified: Some(true),
            ..Line::default()
        };
        let peer = Peer {
            product: "other 1.0".to_owned(),
            settings: "defaults".to_owned(),
            configured: "It polls.".to_owned(),
            guarantee: "It may lose.".to_owned(),
            backend: "redis".to_owned(),
            scenario: "cycle".to_owned(),
            per_s: Some(800.0),
            verified: Some(true),
            ..Peer::default()
        };
        let backends = vec![Backend { name: "redis".to_owned(), lines: vec![ours] }];
        let (sqs, worker) = (Vec::new(), Vec::new());
        let text = peers(&Figures { backends, sqs, worker, peers: vec![peer.clone(), peer] });
        assert!(text.contains("| redis, `cycle` | other 1.0 | defaults | 800/s | 9000/s |"), "{text}");
        assert_eq!(text.matches("It polls. It may lose.").count(), 1, "{text}");
    }
}
