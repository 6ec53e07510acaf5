//! What a worker promises, proven on every backend: through the portable `Queue`, with real servers and processes that are killed.
//!
//! A further backend joins with a line in `grounds.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

mod account;
mod actor;
mod actors;
mod child;
mod ends;
mod facts;
mod grounds;
mod kills;
mod load;
mod restarts;
mod say;
mod sets;
mod steps;
mod tapped;
mod time;

use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};

use grounds::{Ground, Needs};

/// No proof takes as long, and a second for each kill; one that does has hung.
const PATIENCE: Duration = Duration::from_mins(3);

/// One promise, on any ground that has what it needs.
struct Proof {
    name: &'static str,
    needs: Needs,
    run: fn(Ground) -> BoxFuture<'static, ()>,
}

macro_rules! proof {
    ($module:ident::$name:ident, $needs:expr) => {
        Proof { name: stringify!($name), needs: $needs, run: |ground| $module::$name(ground).boxed() }
    };
}

fn proofs() -> Vec<Proof> {
    vec![
        proof!(load::two_workers_do_each_task_once, Needs::Nothing),
        proof!(load::a_shutdown_under_load_loses_nothing_and_burns_no_attempt, Needs::Nothing),
        proof!(load::retries_and_deaths_carry_their_history, Needs::Nothing),
        proof!(load::a_hundred_kinds_in_fifty_partitions, Needs::Nothing),
        proof!(load::a_running_task_is_cancelled_by_its_id, Needs::Ids),
        proof!(time::a_handler_that_outlives_its_lease_runs_once, Needs::Nothing),
        proof!(time::a_blocked_executor_loses_no_lease, Needs::Nothing),
        proof!(kills::killed_workers_lose_nothing, Needs::Processes),
        proof!(sets::killed_workers_skip_nothing_of_a_set, Needs::Processes),
        proof!(ends::killed_at_each_step_each_task_is_in_one_place, Needs::LedgerOnServers),
        proof!(facts::a_ledger_beside_knows_each_task_in_whatever_order_it_is_told, Needs::LedgerBeside),
        proof!(restarts::a_worker_outlives_the_server, Needs::Server),
        proof!(restarts::a_worker_outlives_a_frozen_server, Needs::Server),
        proof!(restarts::a_worker_outlives_cut_and_stalled_connections, Needs::Server),
    ]
}

fn main() -> ExitCode {
    if let Some(code) = child::run_if_child() {
        return code;
    }
    let args = Arguments::from_args();
    let trials = proofs().into_iter().flat_map(|proof| {
        grounds::names(proof.needs).into_iter().map(move |ground| {
            let run = proof.run;
            Trial::test(format!("{}::{ground}", proof.name), move || prove(ground, proof.needs, run))
        })
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Each on a runtime of its own, as separate programs would be.
fn prove(ground: &str, needs: Needs, run: fn(Ground) -> BoxFuture<'static, ()>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // `None` was said where it was found out.
        let Some(ground) = Ground::prepare(ground, needs).await else { return };
        let patience = PATIENCE + Duration::from_secs(grounds::kills().into());
        tokio::time::timeout(patience, run(ground)).await.expect("the proof has hung");
    });
    Ok(())
}
