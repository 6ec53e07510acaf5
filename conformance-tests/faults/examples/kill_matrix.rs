//! Which cases find which faulty adapters: a line `fault<TAB>clauses broken<TAB>case:clause case:clause …` for each fault.
//!
//! `cargo run --package anyqueue-faults --example kill_matrix [cases=PATTERN] [FAULT]…` runs every case, or those that the pattern
//! picks, on the faults whose names contain one of the arguments, or on all. For whoever writes a fault or a case; the gate is
//! `tests/kills.rs`.

use std::sync::Arc;

use anyqueue_conformance::{CaseReport, Fault, Options, Outcome, run};
use anyqueue_faults::{FaultyHarness, breaks};

/// Cases mostly wait, and nothing here measures their time.
const PARALLELISM: usize = 64;

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() {
    let (cases, wanted): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|word| word.starts_with("cases="));
    let named = |fault: &&Fault| {
        let name = format!("{fault:?}");
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part))
    };
    let (mut found, mut all) = (0, 0);
    for fault in Fault::ALL.iter().filter(named) {
        let options = Options::new().with_parallelism(PARALLELISM);
        let options =
            cases.iter().filter_map(|word| word.strip_prefix("cases=")).fold(options, Options::with_pattern);
        let report = run(Arc::new(FaultyHarness::new(*fault)), &options).await;
        let killers: Vec<String> = report.cases.iter().filter_map(killer).collect();
        let broken: Vec<_> = breaks(*fault).iter().map(|clause| clause.number()).collect();
        println!("{fault:?}\t{broken:?}\t{}", killers.join(" "));
        found += usize::from(!killers.is_empty());
        all += 1;
    }
    println!("{found} of {all} found");
}

fn killer(case: &CaseReport) -> Option<String> {
    match &case.outcome {
        Outcome::Fail(failure) => Some(format!("{}:{}", case.id, failure.clause)),
        _ => None,
    }
}
