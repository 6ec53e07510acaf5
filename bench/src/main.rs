//! Benchmarks of anyqueue against a hand-written client with the same guarantees on the same backend.
//!
//! Both sides run in one process, through one driver, in turns: ours, theirs, theirs, ours, and so on. What each scenario
//! did is checked message by message before its time counts.

mod client;
mod compare;
mod ended;
mod environment;
mod measure;
mod ours;
mod report;
mod scenario;
mod scratch;
mod service;
mod yardstick;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::client::Result;
use crate::compare::{BACKENDS, Backend, Settings};
use crate::environment::Environment;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::scratch::Scratch;

/// The scenario or backend name that stands for all of them.
const ALL: &str = "all";
/// The name that stands for `drain` with each of its windows.
const DRAIN: &str = "drain";

/// Measures anyqueue against a hand-written client on the same backend.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Which backend. For SQS the price is measured, for every scenario, because an emulator stands in for
    /// it. `service` measures the way over HTTP, `ended-…` what millions of ended tasks cost (`--messages`
    /// says how many); for these every scenario is measured.
    #[arg(long, value_parser = names(BACKENDS.iter().map(|backend| backend.name).chain([yardstick::sqs::NAME, service::NAME]).chain(ended::NAMES)))]
    backend: String,
    /// What to measure.
    #[arg(long, value_parser = names(Scenario::ALL.into_iter().map(Scenario::name).chain([DRAIN])))]
    scenario: String,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Rounds of each side; the medians count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Messages in one round of one side, instead of what suits the backend.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    messages: Option<u32>,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..))]
    payload: u32,
    /// Messages that wait in the scenario `backlog`.
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u32,
    /// Messages that are held in the scenario `in-flight`.
    #[arg(long, default_value_t = 10_000)]
    in_flight: u32,
    /// Where databases go, in a directory that is removed at the end; beside this program by default.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// For the scenario `latency-across`: be the process that pushes to this URL.
    #[arg(long, hide = true)]
    push_to: Option<String>,
    /// With `push_to`: push by the hand-written client.
    #[arg(long, hide = true)]
    by_hand: bool,
}

/// Refuses any name that is not among these, with a list of them.
fn names(names: impl Iterator<Item = &'static str>) -> PossibleValuesParser {
    PossibleValuesParser::new(names.chain([ALL]))
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything that was measured was also verified.
fn run(arguments: &Arguments) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let settings = settings(arguments)?;
    if arguments.backend == yardstick::sqs::NAME {
        runtime.block_on(yardstick::sqs::print_costs(settings.messages, arguments.json))?;
        return Ok(true);
    }
    if arguments.backend == service::NAME {
        runtime.block_on(service::print(&settings, arguments.json))?;
        return Ok(true);
    }
    if let Some(name) = ended::NAMES.into_iter().find(|name| *name == arguments.backend) {
        runtime.block_on(async {
            tokio::select! {
                printed = ended::print(name, &settings, arguments.json) => printed,
                // So that the store is removed too.
                _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            }
        })?;
        return Ok(true);
    }
    let mut backends = BACKENDS.iter().filter(|backend| chosen(&arguments.backend, backend.name));
    if let Some(url) = &arguments.push_to {
        let backend = backends.next().ok_or("no such backend")?;
        runtime.block_on((backend.push_stamped)(url, arguments.by_hand, &settings))?;
        return Ok(true);
    }
    let mut verified = true;
    for backend in backends {
        let environment =
            Environment::here(runtime.block_on((backend.server)(&settings)).unwrap_or_default());
        for scenario in Scenario::ALL {
            let wanted = &arguments.scenario;
            if chosen(wanted, scenario.name()) || wanted == DRAIN && scenario.is_drain() {
                let report = scenario.runtime()?.block_on(async {
                    tokio::select! {
                        report = report_of(backend, scenario, &settings) => Ok(report),
                        // The program ends in an orderly way, so that the scratch directory is removed too.
                        _ = tokio::signal::ctrl_c() => Err("interrupted"),
                    }
                })?;
                let fine = report.is_fine();
                report.on(&environment).print(arguments.json)?;
                verified &= fine;
            }
        }
    }
    Ok(verified)
}

fn chosen(wanted: &str, name: &str) -> bool {
    wanted == ALL || wanted == name
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    Ok(Settings {
        rounds: arguments.rounds.into(),
        messages: arguments.messages.map(usize::try_from).transpose()?,
        payload_bytes: arguments.payload.try_into()?,
        backlog: arguments.backlog.try_into()?,
        in_flight: arguments.in_flight.try_into()?,
        scratch: Scratch::new(arguments.scratch.as_deref())?,
    })
}

/// A failure is a result too: the other scenarios go on.
async fn report_of(backend: &Backend, scenario: Scenario, settings: &Settings) -> Report {
    let measured = tokio::time::timeout(compare::PATIENCE, (backend.compare)(scenario, settings)).await;
    let measured = measured.unwrap_or_else(|_| Err(format!("not done after {:?}", compare::PATIENCE).into()));
    measured.unwrap_or_else(|error| Report::new(backend.name, scenario).failed(&error))
}
