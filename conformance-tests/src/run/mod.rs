//! Runs cases against a harness, in parallel, each with a deadline and an account.

mod one_thread;
mod thread;
mod verdict;

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream;

use self::verdict::{ACCOUNT_DEADLINE, verdict};
use crate::case::Case;
use crate::cases;
use crate::harness::Harness;
use crate::options::Options;
use crate::report::{About, CaseReport, Report};
pub(crate) use thread::on_a_thread;

/// Runs the selected cases. Must be called within a tokio runtime with several threads.
pub async fn run(harness: Arc<dyn Harness>, options: &Options) -> Report {
    let start = Instant::now();
    let selected: Vec<&Case> = cases::all().filter(|case| case.is_selected(options)).collect();
    let running = selected.into_iter().map(|case| run_case(harness.clone(), case, options));
    let mut cases: Vec<CaseReport> =
        stream::iter(running).buffer_unordered(options.parallelism.max(1)).collect().await;
    cases.sort_by_key(|case| case.id);
    let about = About::of(&*harness, &cases).await;
    Report::new(about, options, start.elapsed(), cases)
}

/// Runs one case until it has a verdict. Never hangs, never panics.
pub async fn run_case(harness: Arc<dyn Harness>, case: &'static Case, options: &Options) -> CaseReport {
    let start = Instant::now();
    let (outcome, attempts) = if case.one_thread {
        // At most two of its attempts are long.
        let patience = (case.time_limit(options) + ACCOUNT_DEADLINE) * 2;
        one_thread::run(harness, case, options, patience).await
    } else {
        verdict(harness, case, options).await
    };
    CaseReport::new(case, outcome, attempts, start.elapsed())
}
