//! The suite judged: it passes a right backend, finds every fault, and gives a hollow backend no certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use anyqueue_conformance::{
    Case, Certificate, Fault, Harness, Offer, Options, Outcome, cases, run, run_case,
};
use anyqueue_faults::{FaultyHarness, HollowHarness, is_subtle};
use futures_util::{StreamExt as _, stream};

const PARALLELISM: usize = 16;

/// The cases that can run here. Those with child processes meet their faults in `faulty_children.rs` of SQLite's tests: memory
/// cannot be shared with a child.
fn here() -> impl Iterator<Item = &'static Case> {
    cases::all().filter(|case| !case.needs.iter().any(|need| need.offer() == Some(Offer::Children)))
}

/// Pairs of a case and a fault that are under way, by number.
static UNDER_WAY: Mutex<BTreeMap<usize, (&'static str, Fault, Instant)>> = Mutex::new(BTreeMap::new());

/// Longer than all of them take on a slow machine, and shorter than a runner waits.
const TOO_LONG: Duration = Duration::from_mins(15);

/// One pair, for as long as it is under way.
struct Pair(usize);

impl Pair {
    fn begins(case: &'static str, fault: Fault) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        static WATCH: Once = Once::new();
        WATCH.call_once(|| drop(std::thread::spawn(watch)));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        under_way().insert(number, (case, fault, Instant::now()));
        Self(number)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

fn under_way() -> MutexGuard<'static, BTreeMap<usize, (&'static str, Fault, Instant)>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process when it takes too long, and says what it was at. Past the test's capture, which would be lost with it.
fn watch() {
    std::thread::sleep(TOO_LONG);
    let mut told = format!("\nstill under way after {TOO_LONG:?}:\n");
    for (case, fault, begun) in under_way().values() {
        let _ = writeln!(told, "  {case} on {fault:?}, since {:?}", begun.elapsed());
    }
    for thread in threads() {
        let _ = writeln!(told, "  thread {thread}");
    }
    let _ = std::io::stderr().write_all(told.as_bytes());
    std::process::abort();
}

/// What Linux says of each thread of this process: number, name, state, and more. One that runs (R) spins; one that waits (S) is blocked,
/// or has nothing to do.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok()).collect()
}

/// How often a case is run on a fault if it proves nothing.
const ATTEMPTS: usize = 4;

/// Why the case does not find the fault; `None` if it does. What is late once is found: a fault that makes everything late need not be
/// waited for as often as it takes to believe that of a backend.
async fn survives(case: &'static Case, fault: Fault) -> Option<String> {
    let _pair = Pair::begins(case.id, fault);
    let harness: Arc<dyn Harness> = Arc::new(FaultyHarness::new(fault));
    let once = Options::new().with_attempts(1);
    let mut outcome = run_case(harness.clone(), case, &once).await.outcome;
    for _ in 1..ATTEMPTS {
        if !matches!(outcome, Outcome::Inconclusive { .. }) {
            break;
        }
        outcome = run_case(harness.clone(), case, &once).await.outcome;
    }
    match &outcome {
        Outcome::Fail(failure) if failure.seen.contains("hung") => {
            Some(format!("{} hangs on {fault:?}: {failure}", case.id))
        }
        Outcome::Fail(failure) => {
            let named = failure.to_string().contains(failure.clause.title());
            (!named).then(|| format!("{} fails on {fault:?} without naming a clause: {failure}", case.id))
        }
        other => Some(format!("{} does not find {fault:?} ({}): {other:?}", case.id, fault.what())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn each_case_finds_the_faults_that_it_names() {
    let pairs = here().flat_map(|case| case.kills.iter().map(move |fault| survives(case, *fault)));
    let survivors: Vec<String> = stream::iter(pairs)
        .buffer_unordered(PARALLELISM)
        .filter_map(|survivor| async { survivor })
        .collect()
        .await;
    assert!(survivors.is_empty(), "{} survive:\n{}", survivors.len(), survivors.join("\n"));
}

/// Runs of each subtle fault, and how many of them may miss it.
const RUNS: usize = 20;
const MISSES: usize = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn each_subtle_fault_is_found_in_nineteen_of_twenty_runs() {
    let first_to_name =
        |fault: Fault| here().find(|case| case.kills.contains(&fault)).map(|case| (case, fault));
    let subtle = Fault::ALL.iter().copied().filter(|fault| is_subtle(*fault)).filter_map(first_to_name);
    let runs = subtle.flat_map(|(case, fault)| (0..RUNS).map(move |_| survives(case, fault)));
    let survivors: Vec<String> = stream::iter(runs)
        .buffer_unordered(3 * PARALLELISM)
        .filter_map(|survivor| async { survivor })
        .collect()
        .await;
    let mut misses = BTreeMap::new();
    for told in &survivors {
        *misses.entry(told).or_insert(0) += 1;
    }
    misses.retain(|_, count| *count > MISSES);
    assert!(misses.is_empty(), "missed in more than {MISSES} of {RUNS} runs: {misses:#?}");
}

#[test]
fn every_fault_is_named_by_a_case() {
    let named: BTreeSet<Fault> = cases::all().flat_map(|case| case.kills.iter().copied()).collect();
    let unnamed: Vec<_> = Fault::ALL.iter().filter(|fault| !named.contains(fault)).collect();
    assert!(unnamed.is_empty(), "no case names {unnamed:?}");
}

#[test]
fn every_case_names_a_fault() {
    let harmless: Vec<_> = cases::all().filter(|c| c.kills.is_empty()).map(|c| c.id).collect();
    assert!(harmless.is_empty(), "these cases are not proved able to fail: {harmless:?}");
}

#[test]
fn ids_are_unique_and_clauses_are_named() {
    let mut ids = BTreeSet::new();
    for case in cases::all() {
        assert!(ids.insert(case.id), "{} occurs twice", case.id);
        assert!(case.id.split_once('.').is_some_and(|(group, name)| !group.is_empty() && !name.is_empty()));
        assert!(!case.clauses.is_empty(), "{} proves no clause", case.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn the_wrapper_without_a_fault_gets_a_full_certificate() {
    let report = run(Arc::new(FaultyHarness::faultless()), &Options::new()).await;
    assert_eq!(report.certificate(), Certificate::Full, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn the_model_of_a_server_without_a_fault_passes_every_fault_case() {
    let report = run(Arc::new(FaultyHarness::faultless()), &Options::new().with_pattern("fault.")).await;
    assert_eq!(report.tally().passed, report.cases.len(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_declares_to_forget_settlements_may_forget_them() {
    let report =
        run(Arc::new(FaultyHarness::forgetful()), &Options::new().with_pattern("fault.killed")).await;
    assert_eq!(report.tally().passed, report.cases.len(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_declares_to_give_a_message_to_two_may_do_so() {
    for pattern in ["queue_push.", "push.", "queue_settle.dropped_in_batches"] {
        let report = run(Arc::new(FaultyHarness::repeating()), &Options::new().with_pattern(pattern)).await;
        let tally = report.tally();
        assert!(tally.passed > 0 && tally.failed + tally.inconclusive == 0, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_server_that_declares_to_remember_keys_for_a_time_passes() {
    for pattern in ["window.", "dedup.", "random.", "push."] {
        let report = run(Arc::new(FaultyHarness::windowed()), &Options::new().with_pattern(pattern)).await;
        let tally = report.tally();
        assert!(tally.passed > 0 && tally.failed + tally.inconclusive == 0, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_backend_that_agrees_to_everything_and_does_nothing_gets_no_certificate() {
    let report = run(Arc::new(HollowHarness::agreeing()), &Options::new()).await;
    assert_eq!(report.certificate(), Certificate::Failed);
    let passed: Vec<_> =
        report.cases.iter().filter(|case| case.outcome == Outcome::Pass).map(|case| case.id).collect();
    assert!(
        passed.len() * 20 <= report.cases.len(),
        "{} of {} pass: {passed:?}",
        passed.len(),
        report.cases.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_backend_that_refuses_everything_gets_no_certificate() {
    let report = run(Arc::new(HollowHarness::refusing()), &Options::new()).await;
    assert_eq!(report.certificate(), Certificate::Failed);
    let passed: Vec<_> =
        report.cases.iter().filter(|case| case.outcome == Outcome::Pass).map(|case| case.id).collect();
    assert!(passed.is_empty(), "{passed:?}");
}
