//! Random work on a private server under random faults, with an exact account at the end. Prints a report as
//! one JSON object.
//!
//! `cargo run --release -p anyqueue-soak -- postgres 10 42` runs for ten minutes, with seed 42. The seed
//! repeats the choices, but not when they are made. `cargo xtask soak postgres` does the same, and saves the
//! report.

mod account;
mod actors;
mod backends;
mod chaos;
mod control;
mod open;
mod run;
mod site;
mod survey;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Soaks one backend.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(flatten)]
    soak: Option<run::Arguments>,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Subcommand)]
enum Child {
    /// Runs as one of the worker processes of a soak
    #[command(hide = true)]
    Worker(control::WorkerArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Cli::parse() {
        Cli { child: Some(Child::Worker(arguments)), .. } => control::work(&arguments).await.map(|()| true),
        Cli { soak: Some(arguments), .. } => Box::pin(run::soak(&arguments)).await,
        Cli { .. } => Err("say which backend".into()),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the soak could not be carried out: {error}");
            ExitCode::FAILURE
        }
    }
}
