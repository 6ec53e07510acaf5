//! The `main` of an adapter's test target: one test per case, with the arguments and output of `cargo test`.

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::case::{Case, Outcome};
use crate::harness::Harness;
use crate::report::{CaseReport, Report, markdown_matrix};
use crate::run::{Options, PARALLELISM, Tier, run_case};
use crate::{cases, child};

/// More threads than a small machine has cores, so that a case that computes does not hold up one that measures time.
const WORKERS: usize = 8;

/// Runs the suite as a test program. `make` is called once, within a tokio runtime, and not at all where the program
/// only lists its tests or is a child process.
pub fn main<H: Harness>(make: impl FnOnce() -> H) -> ExitCode {
    if let Some(code) = child::run_if_child::<H>() {
        return code;
    }
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(PARALLELISM);
    let options = options(&args);
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("no runtime: {error}");
                return ExitCode::FAILURE;
            }
        };
    let _guard = runtime.enter();
    let harness: Option<Arc<dyn Harness>> = (!args.list).then(|| Arc::new(make()) as Arc<dyn Harness>);
    let done: Arc<Mutex<Vec<CaseReport>>> = Arc::default();
    let trials = cases::all()
        .filter(|case| case.tier <= options.tier)
        .map(|case| trial(case, harness.clone(), &options, runtime.handle().clone(), done.clone()))
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);
    if let Some(harness) = harness {
        let mut cases = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        cases.sort_by_key(|case| case.id);
        finish(&Report::new(harness.name(), &options, cases));
    }
    conclusion.exit_code()
}

fn options(args: &Arguments) -> Options {
    let mut options = Options { children: true, pattern: args.filter.clone(), ..Options::default() };
    if !args.skip.is_empty() || args.ignored {
        options.pattern.get_or_insert_default(); // leaves out tests, so the certificate is partial
    }
    if let Some(seed) = setting("SEED") {
        options.seed = seed;
    }
    if std::env::var("ANYQUEUE_CONFORMANCE_TIER").is_ok_and(|tier| tier == "thorough") {
        options.tier = Tier::Thorough;
    }
    options
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(format!("ANYQUEUE_CONFORMANCE_{name}")).ok()?.parse().ok()
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
    println!("certificate of {}: {} (seed {})", report.backend, report.certificate(), report.seed);
    let Ok(dir) = std::env::var("ANYQUEUE_CONFORMANCE_REPORT") else { return };
    let name: String =
        report.backend.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let write = |ending: &str, text: &str| {
        std::fs::create_dir_all(&dir)?;
        std::fs::write(Path::new(&dir).join(format!("{name}.{ending}")), text)
    };
    let written = write("json", &report.to_json())
        .and_then(|()| write("md", &markdown_matrix(std::slice::from_ref(report))));
    if let Err(error) = written {
        eprintln!("the report could not be written to {dir}: {error}");
    }
}
