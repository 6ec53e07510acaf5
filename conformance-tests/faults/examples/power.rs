//! Measures the random cases: how often each finds each of the faulty adapters, alone.
//!
//! `cargo run -p anyqueue-faults --example power [runs]`

use std::sync::Arc;

use anyqueue_conformance::{Case, Fault, Options, Outcome, cases, run_case};
use anyqueue_faults::FaultyHarness;
use futures_util::{StreamExt as _, stream};

const AT_ONCE: usize = 24;
const RUNS: u64 = 20;

#[tokio::main]
async fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    for case in cases::all().filter(|case| case.group() == "random") {
        let found: Vec<(Fault, u64)> =
            stream::iter(Fault::ALL).map(|fault| found(case, *fault, runs)).buffered(AT_ONCE).collect().await;
        let named = |least: u64| {
            let named = found.iter().filter(|(_, times)| *times >= least).map(|(fault, _)| fault);
            named.map(|fault| format!("Fault::{fault:?}")).collect::<Vec<_>>()
        };
        let (always, ever) = (named(runs), named(1));
        println!(
            "{}: of {} faults {} are found in each of {runs} runs:",
            case.id,
            Fault::ALL.len(),
            always.len()
        );
        println!("  {}", always.join(", "));
        println!("  {} are found at least once:", ever.len());
        for (fault, times) in found.iter().filter(|(_, times)| (1..runs).contains(times)) {
            println!("  {fault:?}: {times}");
        }
    }
}

async fn found(case: &'static Case, fault: Fault, runs: u64) -> (Fault, u64) {
    let mut times = 0;
    for seed in 0..runs {
        let options = Options::new().with_seed(seed << 32);
        let report = run_case(Arc::new(FaultyHarness::new(fault)), case, &options).await;
        times += u64::from(matches!(report.outcome, Outcome::Fail(_)));
    }
    (fault, times)
}
