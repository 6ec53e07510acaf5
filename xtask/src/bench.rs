//! `cargo xtask bench`: measures each backend against its hand-written client, and writes figures, page and
//! charts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::workspace::{self, Result, cargo, line, root};

/// Where figures are kept.
const FIGURES: &str = "docs/benchmarks";
/// The backends that have a hand-written client to be measured against.
const BACKENDS: &[&str] = &[
    "memory",
    "sqlite",
    "postgres",
    "redis",
    "rabbitmq",
    "rabbitmq-prefetch",
    "rabbitmq-classic",
    "rabbitmq-classic-prefetch",
];
/// For this one, the price is counted and not the speed.
const SQS: &str = "sqs";
/// The worker runtime against the bare queue.
const WORKER: &str = "worker";
/// The backends on which the worker is measured.
const WORKER_BACKENDS: &[&str] = &["memory", "sqlite", "postgres", "redis", "rabbitmq"];
/// Other Rust libraries.
const PEERS: &str = "peers";
/// Every scenario of the bench.
const ALL: &str = "all";
/// The scenarios in which it matters whether the server sends messages ahead.
const DRAIN: &str = "drain";
/// The suffix of the kinds of a backend in which the server sends ahead.
const AHEAD: &str = "-prefetch";

/// What to measure, how often.
#[derive(Args)]
pub(crate) struct Options {
    /// Backends, `sqs` (its price), `worker` (against the bare queue) and `peers` (other libraries); all of them by default
    #[arg(value_parser = names())]
    what: Vec<String>,
    /// Only this scenario; its lines replace those of the committed file, the others stay
    #[arg(long, value_name = "NAME", default_value = ALL)]
    scenario: String,
    /// Rounds of each side, in turns; the medians count
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u16,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(everything())
}

fn everything() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().copied().chain([SQS, WORKER, PEERS])
}

/// Measures, writes the results (failures too), and brings the documents up to date.
pub(crate) fn run_bench(options: &Options) -> Result<()> {
    let chosen: Vec<&str> = if options.what.is_empty() {
        everything().collect()
    } else {
        options.what.iter().map(String::as_str).collect()
    };
    let mut failures = Vec::new();
    for what in chosen {
        println!("bench: {what}");
        if let Err(failure) = measure(what, options) {
            println!("bench: {what}: {failure}");
            failures.push(format!("{what}: {failure}"));
        }
    }
    workspace::run(&mut cargo(&["run", "--quiet", "--package", "xtask-tables"]))?;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Measures one thing. What was printed before a failure is kept.
fn measure(what: &str, options: &Options) -> Result<()> {
    let mut lines = Vec::new();
    let outcome = programs(what, options).iter_mut().try_for_each(|program| printed(program, &mut lines));
    if lines.is_empty() {
        return outcome;
    }
    let file = root().join(file_of(what));
    if options.scenario != ALL {
        let old = fs::read_to_string(&file).unwrap_or_default();
        lines = merged(&old, lines);
    }
    fs::write(&file, lines.concat()).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("bench: wrote {}", file.display());
    outcome
}

fn file_of(what: &str) -> String {
    let folder = if what == SQS { "/cost" } else { "" };
    format!("{FIGURES}{folder}/{what}.jsonl")
}

/// Returns the programs that print the figures, one JSON object a line.
fn programs(what: &str, options: &Options) -> Vec<Command> {
    let rounds = format!("--rounds={}", options.rounds);
    let scenario = match options.scenario.as_str() {
        ALL if what.ends_with(AHEAD) => DRAIN,
        scenario => scenario,
    };
    let scenario = format!("--scenario={scenario}");
    match what {
        WORKER => {
            let one = |backend: &&str| {
                cargo(&["run", "--release", "--package=anyqueue-worker", "--example=speed", "--", backend])
            };
            WORKER_BACKENDS.iter().map(one).collect()
        }
        PEERS => vec![cargo(&[
            "run",
            "--release",
            "--manifest-path=bench/peers/Cargo.toml",
            "--",
            &scenario,
            &rounds,
        ])],
        backend => vec![cargo(&[
            "run",
            "--release",
            "--package=anyqueue-bench",
            "--",
            "--backend",
            backend,
            &scenario,
            &rounds,
            "--json",
        ])],
    }
}

/// Runs the program and collects its lines. A word of each is shown, because it takes minutes.
fn printed(program: &mut Command, lines: &mut Vec<String>) -> Result<()> {
    let name = line(program);
    let fault = |error: std::io::Error| format!("cannot run `{name}`: {error}");
    let mut running = program.stdout(Stdio::piped()).spawn().map_err(fault)?;
    let output = running.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    for text in output {
        let text = text.map_err(fault)?;
        let figures: Value =
            serde_json::from_str(&text).map_err(|_| format!("`{name}` printed no JSON: {text}"))?;
        println!("bench:   {}", summary(&figures));
        lines.push(text + "\n");
    }
    let status = running.wait().map_err(fault)?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` failed ({status})")) }
}

fn summary(figures: &Value) -> String {
    let words = ["peer", "backend", "scenario", "way", "note"];
    let words = words.iter().filter_map(|name| figures.get(name)?.as_str().map(str::to_owned));
    let ratio = figures.get("ratio").and_then(Value::as_f64).map(|ratio| format!("ratio {ratio:.2}"));
    words.chain(ratio).collect::<Vec<_>>().join(", ")
}

/// Returns the old lines, with those of the same scenarios replaced by the new ones.
fn merged(old: &str, mut new: Vec<String>) -> Vec<String> {
    let key = |line: &str| {
        let figures: Value = serde_json::from_str(line).unwrap_or_default();
        ["peer", "settings", "backend", "scenario"].map(|name| figures.get(name).cloned())
    };
    let mut lines = Vec::new();
    for line in old.lines().filter(|line| !line.trim().is_empty()) {
        match new.iter().position(|new| key(new) == key(line)) {
            Some(index) => lines.push(new.remove(index)),
            None => lines.push(format!("{line}\n")),
        }
    }
    lines.extend(new);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: &str = r#"{"backend":"b","scenario":"push","ratio":0.5}"#;
    const CYCLE: &str = r#"{"backend":"b","scenario":"cycle","ratio":0.6}"#;

    #[test]
    fn new_lines_replace_those_of_their_scenario_where_they_stand() {
        let new = PUSH.replace("0.5", "0.9") + "\n";
        let idle = PUSH.replace("push", "idle") + "\n";
        let lines = merged(&format!("{PUSH}\n{CYCLE}\n"), vec![idle.clone(), new.clone()]);
        assert_eq!(lines, [new, format!("{CYCLE}\n"), idle]);
    }

    #[test]
    fn a_program_that_fails_leaves_what_it_printed() {
        let mut lines = Vec::new();
        let mut program = Command::new("sh");
        let failure = printed(program.args(["-c", "echo '{\"backend\":\"b\"}'; exit 3"]), &mut lines);
        assert!(failure.unwrap_err().contains("failed"));
        assert_eq!(lines, ["{\"backend\":\"b\"}\n"]);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        let mut program = Command::new("echo");
        let failure = printed(program.arg("hello"), &mut Vec::new()).unwrap_err();
        assert!(failure.contains("no JSON: hello"), "{failure}");
    }
}
