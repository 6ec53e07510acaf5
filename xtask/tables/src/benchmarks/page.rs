//! The tables of `docs/benchmarks.md`.

use std::fmt::Write as _;

use super::environment::measured_on;
use super::figures::{Backend, Figures, Line, percent, percentiles, rate, ratio};
use super::goal::Goal;
use super::more;
use crate::reports::row;

/// Returns everything on the page below its introduction.
pub(super) fn page(figures: &Figures) -> String {
    let mut text = goals(figures);
    for backend in &figures.backends {
        text.push_str(&section(backend));
    }
    text.push_str(&more::sqs(&figures.sqs));
    text.push_str(&more::worker(&figures.worker));
    text.push_str(&more::peers(figures));
    text
}

/// Returns how many goals were reached, and each that was not.
fn goals(figures: &Figures) -> String {
    let mut judged = Vec::new();
    for backend in &figures.backends {
        let lines = backend.lines.iter();
        judged
            .extend(lines.filter_map(|line| Some((backend, line, Goal::of(&backend.name, &line.scenario)?))));
    }
    let verdicts: Vec<_> = judged.iter().map(|(backend, line, goal)| goal.reached(line, backend)).collect();
    let count = |verdict| verdicts.iter().filter(|of| **of == verdict).count();
    let mut text = format!(
        "## Goals\n\n{} of {} are reached, each against what its row names. Set before anything was measured, but for the kind of \
         drain that one is for: that in which the hand-written client was fastest.\n",
        count(Some(true)),
        judged.len()
    );
    let missed = judged.iter().zip(&verdicts).filter(|(_, verdict)| **verdict == Some(false));
    let told: Vec<_> = missed
        .map(|((backend, line, goal), _)| {
            format!(
                "- {}, `{}`: {} (goal: {})\n",
                backend.name,
                line.scenario,
                judged_by(line, goal),
                goal.text()
            )
        })
        .collect();
    if !told.is_empty() {
        let _ = write!(text, "\nMissed:\n\n{}", told.concat()); // writing to a string does not fail
    }
    text
}

/// Returns what the goal is about.
fn judged_by(line: &Line, goal: &Goal) -> String {
    match goal {
        Goal::Ratio(_) if line.verified != Some(false) => format!("ratio {}", ratio(line.ratio)),
        _ => own(line),
    }
}

/// Returns a backend's chart, what it was measured on, and its table.
fn section(backend: &Backend) -> String {
    let name = &backend.name;
    let mut text = format!("\n## {name}\n\n![Ratios of {name} by scenario](benchmarks/{name}.svg)\n\n");
    let environments =
        backend.lines.iter().map(|line| (line.scenario.as_str(), line.environment.as_ref())).collect();
    text.push_str(&measured_on(environments));
    let heads = ["anyqueue", "hand-written", "ratio", "goal", "reached"];
    text.push_str(&row("scenario", heads.map(str::to_owned).into_iter()));
    text.push_str(&row("---", ["---:", "---:", "---:", "---", "---"].map(str::to_owned).into_iter()));
    for line in &backend.lines {
        text.push_str(&row(&format!("`{}`", line.scenario), cells(line, backend).into_iter()));
    }
    let notes = backend.lines.iter().filter_map(|line| Some((line, line.note.as_ref()?)));
    for (line, note) in notes {
        let outcome = if line.verified.is_some() { "failed" } else { "does not apply" };
        let _ = write!(text, "\n`{}` {outcome}: {}.\n", line.scenario, note.trim_end_matches('.'));
    }
    text
}

fn cells(line: &Line, backend: &Backend) -> [String; 5] {
    let goal = Goal::of(&backend.name, &line.scenario);
    let reached = match goal.map(|goal| goal.reached(line, backend)) {
        None => "–",
        Some(None) => "not measured",
        Some(Some(true)) => "yes",
        Some(Some(false)) => "**no**",
    };
    let goal = goal.map_or("–".to_owned(), |goal| goal.text());
    [own(line), handwritten(line), ratio(line.ratio), goal, reached.to_owned()]
}

/// Returns what anyqueue did.
fn own(line: &Line) -> String {
    if line.verified == Some(false) {
        return "failed".to_owned();
    }
    match (line.p50_ms.zip(line.p99_ms), line.ours_cpu_percent) {
        (Some(times), _) => percentiles(times),
        (None, Some(share)) => percent(share),
        (None, None) => rate(line.ours_per_s),
    }
}

fn handwritten(line: &Line) -> String {
    let times = line.handwritten_p50_ms.zip(line.handwritten_p99_ms);
    if let Some(without) = line.without_per_s {
        let beside = line.beside.as_ref().map(|beside| format!(", ends kept by {beside}"));
        return format!("{}, anyqueue without{}", rate(Some(without)), beside.unwrap_or_default());
    }
    match (times, line.handwritten_cpu_percent, line.empty_per_s) {
        (Some(times), ..) => percentiles(times),
        (None, Some(share), _) => percent(share),
        (None, None, Some(empty)) => format!("{}, anyqueue on an empty queue", rate(Some(empty))),
        (None, None, None) => rate(line.handwritten_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Environment;
    use super::*;

    fn figures(lines: Vec<Line>) -> Figures {
        let backends = vec![Backend { name: "redis".to_owned(), lines }];
        Figures { backends, sqs: Vec::new(), worker: Vec::new(), peers: Vec::new() }
    }

    fn line(scenario: &str, ratio: f64) -> Line {
        let (ratio, rate) = (Some(ratio), Some(77_000.0));
        let scenario = scenario.to_owned();
        Line { scenario, ours_per_s: rate, ratio, verified: Some(true), ..Line::default() }
    }

    #[test]
    fn a_missed_goal_is_said_at_the_top_and_in_its_row() {
        let page = page(&figures(vec![line("backlog", 0.81), line("in-flight", 0.98)]));
        assert!(page.contains("1 of 2 are reached"), "{page}");
        assert!(page.contains("- redis, `backlog`: ratio 0.81 (goal: ratio ≥ 0.9)"), "{page}");
        assert!(page.contains("| `backlog` | 77k/s | – | 0.81 | ratio ≥ 0.9 | **no** |"), "{page}");
        assert!(page.contains("| `in-flight` | 77k/s | – | 0.98 | ratio ≥ 0.9 | yes |"), "{page}");
    }

    #[test]
    fn what_was_left_out_stands_where_the_hand_written_client_does() {
        let without = Line { without_per_s: Some(90_000.0), ..line("drain-ledger", 0.86) };
        let text = page(&figures(vec![without.clone()]));
        let row = "| `drain-ledger` | 77k/s | 90k/s, anyqueue without | 0.86 | ratio ≥ 0.8 | yes |";
        assert!(text.contains(row), "{text}");
        let beside = Line { beside: Some("postgres 15".to_owned()), ..without };
        let text = page(&figures(vec![beside]));
        assert!(text.contains("| 90k/s, anyqueue without, ends kept by postgres 15 |"), "{text}");
    }

    #[test]
    fn a_failure_is_told_with_its_reason() {
        let failed =
            Line { verified: Some(false), note: Some("lost one".to_owned()), ..line("backlog", 2.0) };
        let page = page(&figures(vec![failed]));
        assert!(page.contains("`backlog` failed: lost one."), "{page}");
        assert!(page.contains("| `backlog` | failed |"), "{page}");
    }

    #[test]
    fn figures_from_several_machines_say_which_is_whose() {
        let on = |system: &str| Some(Environment { system: system.to_owned(), ..Environment::default() });
        let mut lines = vec![line("push-one", 1.0), line("cycle", 1.0), line("backlog", 1.0)];
        for (line, system) in lines.iter_mut().zip(["A", "B", "A"]) {
            line.environment = on(system);
        }
        let page = page(&figures(lines));
        assert!(page.contains("`push-one`, `backlog`: Measured on"), "{page}");
        assert!(page.contains("`cycle`: Measured on"), "{page}");
        assert!(page.contains("Not optimized"), "{page}");
    }

    #[test]
    fn lines_without_a_machine_say_so() {
        assert!(page(&figures(vec![line("cycle", 1.0)])).contains("not recorded"));
    }
}
