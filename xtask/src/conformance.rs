//! `cargo xtask conformance`: runs the suite alone, against one backend.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::Value;

use crate::workspace::{Result, cargo, root, run};

/// Which backend, which cases, how often.
#[derive(Args)]
pub(crate) struct Options {
    /// The backend: a folder under `adapters/`, or another suite of one, such as `sqs-fifo`
    backend: String,
    /// Writes the report as JSON to this file; with --runs, an account of all runs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs only the cases whose id contains this text
    #[arg(long, value_name = "PATTERN")]
    case: Option<String>,
    /// Repeats the random choices of the run that had this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs the suite this many times, each time with the next seed, and counts the failures
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Runs the larger sizes and the long cases too
    #[arg(long)]
    thorough: bool,
    /// Runs instead the cases that go on for this long
    #[arg(long, value_name = "MINUTES", conflicts_with = "thorough")]
    soak: Option<u32>,
}

/// Runs the suite and prints its table.
pub(crate) fn run_conformance(options: &Options) -> Result<()> {
    known(&options.backend, &backends()?)?;
    // A run whose seed is unknown could not be repeated.
    let first = options.seed.unwrap_or_else(time_seed);
    let mut runs = Vec::new();
    for index in 0..options.runs {
        let seed = first.wrapping_add(u64::from(index));
        println!("conformance: {}, run {} of {}, seed {seed}", options.backend, index + 1, options.runs);
        let folder = root().join("target/conformance").join(&options.backend);
        let result = run_once(options, seed, &folder);
        runs.push(Run { report: report(&folder, "json").and_then(|path| read(&path)), result });
    }
    if let Some(wanted) = &options.json {
        write_report(wanted, &runs)?;
    }
    verdict(&runs)
}

/// One run of the suite.
struct Run {
    report: Result<String>,
    result: Result<()>,
}

fn verdict(runs: &[Run]) -> Result<()> {
    let failed: Vec<&str> =
        runs.iter().filter_map(|run| run.result.as_ref().err()).map(String::as_str).collect();
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(format!("{} of {} runs failed: {}", failed.len(), runs.len(), failed.join("; "))),
    }
}

fn write_report(wanted: &Path, runs: &[Run]) -> Result<()> {
    let text = match runs {
        [run] => run.report.clone()?,
        runs => account(runs)?,
    };
    fs::write(wanted, text).map_err(|error| format!("cannot write {}: {error}", wanted.display()))?;
    println!("conformance: wrote {}", wanted.display());
    Ok(())
}

/// Returns the account of many runs: what the first one says of itself, then a line for each. No run is left
/// out.
fn account(runs: &[Run]) -> Result<String> {
    let mut lines = Vec::new();
    let mut facts = Value::Null;
    for run in runs {
        let mut report = parse(&run.report.clone()?)?;
        let cases = report.as_object_mut().and_then(|report| report.remove("cases")).unwrap_or_default();
        lines.push(line(&report, cases.as_array().map_or(&[], Vec::as_slice)));
        if facts.is_null() {
            facts = report;
        }
    }
    if let Some(facts) = facts.as_object_mut() {
        for of_one_run in PER_RUN {
            facts.remove(of_one_run);
        }
        facts.insert("runs".to_owned(), lines.into());
    }
    serde_json::to_string_pretty(&facts).map_err(|error| error.to_string())
}

/// The fields that differ from run to run.
const PER_RUN: [&str; 3] = ["seed", "certificate", "took_ms"];

fn line(report: &Value, cases: &[Value]) -> Value {
    let outcome = |case: &Value| case.get("outcome").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let mut counts = std::collections::BTreeMap::new();
    for case in cases {
        *counts.entry(outcome(case)).or_insert(0_u32) += 1;
    }
    let bad = |case: &&Value| !["pass", "not_applicable"].contains(&outcome(case).as_str());
    let bad: Vec<_> = cases.iter().filter(bad).filter_map(|case| case.get("id").cloned()).collect();
    let mut line: serde_json::Map<_, _> =
        PER_RUN.iter().filter_map(|key| Some(((*key).to_owned(), report.get(*key)?.clone()))).collect();
    line.insert("outcomes".to_owned(), serde_json::json!(counts));
    line.insert("not_passed".to_owned(), bad.into());
    let again = cases.iter().filter_map(|case| {
        let attempts = case.get("attempts").and_then(Value::as_u64).filter(|attempts| *attempts > 1)?;
        Some((case.get("id")?.as_str()?.to_owned(), attempts.into()))
    });
    line.insert("attempts".to_owned(), again.collect::<serde_json::Map<_, _>>().into());
    line.into()
}

/// Runs the suite of every backend that has one, this many times.
pub(crate) fn run_all(runs: u32) -> Result<()> {
    for backend in backends()? {
        let options =
            Options { backend, json: None, case: None, seed: None, runs, thorough: false, soak: None };
        run_conformance(&options)?;
    }
    Ok(())
}

fn run_once(options: &Options, seed: u64, folder: &Path) -> Result<()> {
    // What an earlier run left must not be mistaken for this one's.
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("cannot clear {}: {error}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let (folder_name, test) = target(&options.backend);
    let package = format!("anyqueue-{folder_name}");
    let mut command = cargo(&["test", "--quiet", "--package", &package, "--test", test, "--"]);
    command.args(&options.case);
    command.env("ANYQUEUE_CONFORMANCE_SEED", seed.to_string());
    command.env("ANYQUEUE_CONFORMANCE_REPORT", folder);
    if options.thorough {
        command.env("ANYQUEUE_CONFORMANCE_TIER", "thorough");
    }
    if let Some(minutes) = options.soak {
        command.env("ANYQUEUE_CONFORMANCE_TIER", "soak");
        command.env("ANYQUEUE_CONFORMANCE_MINUTES", minutes.to_string());
    }
    let result = run(&mut command);
    // The report matters most after a failure; but if the suite did not even build, there is none.
    let shown = show_report(folder);
    result.map_err(|error| format!("seed {seed}: {error}")).and(shown)
}

fn show_report(folder: &Path) -> Result<()> {
    let table = report(folder, "md")?;
    println!("{}", read(&table)?.trim_end());
    let json = report(folder, "json")?;
    let text = read(&json)?;
    if cases_run(&text)? == 0 {
        return Err("no case was run: is the pattern of --case right?".to_owned());
    }
    Ok(())
}

/// Returns the path of the report with this extension. The harness chose its name.
fn report(folder: &Path, extension: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|found| found == extension))
        .ok_or_else(|| format!("the suite left no .{extension} report in {}", folder.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn cases_run(report: &str) -> Result<usize> {
    let report = parse(report)?;
    let cases = report.get("cases").and_then(Value::as_array);
    Ok(cases.ok_or("the report lists no cases")?.len())
}

fn parse(report: &str) -> Result<Value> {
    serde_json::from_str(report).map_err(|error| format!("the report is no JSON: {error}"))
}

/// Returns the adapters that have a conformance test, and the other suites of the same adapter, for another
/// kind of queue or server, each a file of its own among the adapter's tests.
fn backends() -> Result<Vec<String>> {
    let mut backends = Vec::new();
    for adapter in names(&root().join("adapters"))? {
        let tests = root().join("adapters").join(&adapter).join("tests");
        if !tests.join("conformance.rs").exists() {
            continue;
        }
        let files = names(&tests)?;
        let others = files.iter().filter_map(|file| file.strip_suffix(".rs")).filter(|test| *test != SUITE);
        backends.extend(others.map(|test| format!("{adapter}-{test}")));
        backends.push(adapter);
    }
    backends.sort_unstable();
    Ok(backends)
}

/// An adapter's first suite.
const SUITE: &str = "conformance";

/// Returns the adapter's folder and the name of the test.
fn target(backend: &str) -> (&str, &str) {
    backend.split_once('-').unwrap_or((backend, SUITE))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn known(backend: &str, backends: &[String]) -> Result<()> {
    if backends.iter().any(|known| known == backend) {
        Ok(())
    } else {
        Err(format!("no backend {backend:?} has a conformance test: these have: {}", backends.join(", ")))
    }
}

/// Returns another seed each time, small enough to retype.
fn time_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_backend_is_told_which_are_known() {
        let backends = ["memory".to_owned(), "other".to_owned()];
        assert_eq!(known("memory", &backends), Ok(()));
        assert!(known("pigeon", &backends).unwrap_err().contains("memory, other"));
        assert!(known("../memory", &backends).is_err());
    }

    #[test]
    fn another_suite_of_an_adapter_is_named_after_both() {
        assert_eq!(target("sqs"), ("sqs", "conformance"));
        assert_eq!(target("sqs-fifo"), ("sqs", "fifo"));
        let backends = backends().unwrap();
        for wanted in ["memory", "sqs", "sqs-fifo"] {
            assert!(backends.iter().any(|backend| backend == wanted), "{wanted}: {backends:?}");
        }
    }

    #[test]
    fn a_report_without_cases_is_seen() {
        assert_eq!(cases_run(r#"{"cases": []}"#), Ok(0));
        assert_eq!(cases_run(r#"{"cases": [{"id": "push.single"}]}"#), Ok(1));
        assert!(cases_run("{}").is_err());
        assert!(cases_run("").is_err());
    }

    #[test]
    fn an_account_has_a_line_for_each_run_with_what_did_not_pass() {
        let report = |outcome: &str| {
            let cases = format!(r#"[{{"id":"a.b","outcome":"pass"}},{{"id":"c.d","outcome":"{outcome}"}}]"#);
            Ok(format!(r#"{{"backend":"x","seed":1,"certificate":"full","took_ms":2,"cases":{cases}}}"#))
        };
        let run = |outcome| Run { report: report(outcome), result: Ok(()) };
        let account = parse(&account(&[run("not_applicable"), run("fail")]).unwrap()).unwrap();
        assert_eq!(account["runs"].as_array().unwrap().len(), 2);
        assert_eq!(account["runs"][0]["not_passed"], serde_json::json!([]));
        assert_eq!(account["runs"][1]["not_passed"], serde_json::json!(["c.d"]));
        assert_eq!(account["runs"][1]["outcomes"]["fail"], 1);
        assert!(account.get("seed").is_none() && account["backend"] == "x");
    }
}
