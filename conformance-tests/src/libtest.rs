//! The `main` of an adapter's test target: one test per case, with the arguments and output of `cargo test`.

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::case::Case;
use crate::harness::Harness;
use crate::options::{Options, PARALLELISM};
use crate::report::{About, CaseReport, Report};
use crate::run::run_case;
use crate::verdict::Outcome;
use crate::{cases, child};

/// More threads than a small machine has cores, so that a case that computes does not hold up one that
/// measures time.
const WORKERS: usize = 8;

/// Runs the suite as a test program. `make` is called once, within a tokio runtime, or not at all if the
/// program only lists its tests or is a child process.
pub fn main<H: Harness>(make: impl FnOnce() -> H) -> ExitCode {
    if let Some(code) = child::run_if_child::<H>() {
        return code;
    }
    let mut args = Arguments::from_args();
    let started = options(&args).and_then(|options| Ok((options, runtime()?)));
    let (options, runtime) = match started {
        Ok(started) => started,
        Err(why) => {
            eprintln!("the conformance suite cannot start: {why}");
            return ExitCode::FAILURE;
        }
    };
    let _guard = runtime.enter();
    let harness: Option<Arc<dyn Harness>> = (!args.list).then(|| Arc::new(make()) as Arc<dyn Harness>);
    args.test_threads.get_or_insert(harness.as_ref().map_or(PARALLELISM, |harness| harness.parallelism()));
    let done: Arc<Mutex<Vec<CaseReport>>> = Arc::default();
    // The pattern is left to the arguments of `cargo test`, which match names in their own way.
    let in_scope = Options { pattern: None, ..options.clone() };
    let mut selected: Vec<_> = cases::all().filter(|case| case.is_selected(&in_scope)).collect();
    // They begin in this order. A long case that begins among the last is waited for alone.
    selected.sort_by_key(|case| Reverse(case.deadline));
    let trials = selected
        .into_iter()
        .map(|case| trial(case, harness.clone(), &options, runtime.handle().clone(), done.clone()))
        .collect();
    let start = Instant::now();
    let conclusion = libtest_mimic::run(&args, trials);
    if let Some(harness) = harness {
        let mut cases = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        cases.sort_by_key(|case| case.id);
        let about = runtime.block_on(About::of(&*harness, &cases));
        finish(&Report::new(about, &options, start.elapsed(), cases));
    }
    conclusion.exit_code()
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    built.map_err(|error| error.to_string())
}

/// Reads the options from the arguments and the environment. Anything that cannot be understood is an error:
/// a run must not do less than was intended.
fn options(args: &Arguments) -> Result<Options, String> {
    let mut options = Options { children: true, pattern: args.filter.clone(), ..Options::default() };
    if !args.skip.is_empty() || args.ignored {
        options.pattern.get_or_insert_default(); // leaves out tests, so the certificate is partial
    }
    if let Some(seed) = setting("SEED")? {
        options.seed = seed;
    }
    if let Some(tier) = setting("TIER")? {
        options.tier = tier;
    }
    if let Some(minutes) = setting::<u32>("MINUTES")? {
        options.soak = Duration::from_mins(minutes.into());
    }
    setting::<u32>("SCHEDULING")?; // It is read again where it is needed.
    options.clause = setting("CLAUSE")?;
    options.capability = setting("CAPABILITY")?;
    Ok(options)
}

fn setting<T: FromStr<Err: fmt::Display>>(name: &str) -> Result<Option<T>, String> {
    let name = format!("ANYQUEUE_CONFORMANCE_{name}");
    let Ok(text) = std::env::var(&name) else { return Ok(None) };
    text.parse().map(Some).map_err(|error| format!("{name} is {text:?}: {error}"))
}

fn trial(
    case: &'static Case,
    harness: Option<Arc<dyn Harness>>,
    options: &Options,
    runtime: tokio::runtime::Handle,
    done: Arc<Mutex<Vec<CaseReport>>>,
) -> Trial {
    let options = options.clone();
    Trial::ignorable_test(case.id, move || {
        let harness = harness.ok_or("listing only")?;
        let report = runtime.block_on(run_case(harness, case, &options));
        let verdict = verdict(&report.outcome);
        done.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        verdict
    })
}

fn verdict(outcome: &Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Pass => Ok(Completion::Completed),
        Outcome::NotApplicable { needs, .. } => Ok(Completion::ignored_with(format!("needs {needs}"))),
        Outcome::Fail(failure) => Err(failure.to_string().into()),
        Outcome::Inconclusive { why } => Err(format!("inconclusive: {why}").into()),
    }
}

fn finish(report: &Report) {
    println!("certificate of {}: {} (seed {})", report.about.backend, report.certificate(), report.seed);
    report.beyond().iter().for_each(|line| println!("  {line}"));
    let Ok(dir) = std::env::var("ANYQUEUE_CONFORMANCE_REPORT") else { return };
    let name: String =
        report.about.backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let write = |ending: &str, text: &str| {
        std::fs::create_dir_all(&dir)?;
        std::fs::write(Path::new(&dir).join(format!("{name}.{ending}")), text)
    };
    let written = write("json", &report.to_json())
        .and_then(|()| write("md", &report.to_markdown()))
        .and_then(|()| write("xml", &report.to_junit()));
    if let Err(error) = written {
        eprintln!("the report could not be written to {dir}: {error}");
    }
}
