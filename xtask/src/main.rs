//! `cargo xtask`: the project's own helpers.

mod api;
mod bench;
mod ci;
mod conformance;
mod fresh;
mod package;
mod programs;
mod setup;
mod soak;
mod steps;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own helpers.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Installs what building and testing need
    Setup,
    /// Sets up, then runs every check and every test
    Test {
        /// Runs only what finds most mistakes in three minutes: the quick checks, the unit tests, and the suites of the backends
        /// without a server
        #[arg(long)]
        quick: bool,
        /// Runs only the test programs whose name, PACKAGE/TARGET, contains this, and no checks
        #[arg(long, value_name = "TEXT", conflicts_with = "quick")]
        only: Option<String>,
    },
    /// Runs every check and every test, and checks licences and advisories where cargo-deny is installed
    Ci {
        /// Also checks the packages, runs every backend's conformance suite 20 times with different seeds, and runs the README's
        /// commands on a new clone
        #[arg(long)]
        full: bool,
    },
    /// Clones the commit into an empty folder and runs the README's commands there, timed
    Fresh,
    /// Checks what is released: dependencies, each feature alone, the lowest allowed versions, each crate from its package
    Packages,
    /// Checks the project's own rules: layers, modules, roles, file headers, sizes, forbidden words
    Tidy,
    /// Writes the generated parts of the documents
    Tables,
    /// Writes the public items of each published library to docs/api
    Api(api::Options),
    /// Measures backends against hand-written clients, the worker, and other libraries, and writes the page of benchmarks
    Bench(bench::Options),
    /// Runs the conformance suite alone against one backend
    Conformance(conformance::Options),
    /// Runs random work on a real server under random faults, and checks an exact account
    Soak(soak::Options),
    /// Notes a test program instead of running it: what cargo is given as its runner
    #[command(hide = true)]
    NoteProgram {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup => setup::run_setup(),
        Command::Test { only: Some(text), .. } => programs::run_only(&text),
        Command::Test { quick: true, .. } => ci::quick(),
        Command::Test { .. } => ci::test(),
        Command::Ci { full } => ci::ci(full),
        Command::Fresh => fresh::run_fresh(),
        Command::Packages => package::run_packages(),
        Command::Tidy => tidy::run_tidy(),
        Command::Tables => {
            workspace::run(&mut workspace::cargo(&["run", "--quiet", "--package", "xtask-tables"]))
        }
        Command::Api(options) => api::run_api(&options),
        Command::Bench(options) => bench::run_bench(&options),
        Command::Conformance(options) => conformance::run_conformance(&options),
        Command::Soak(options) => soak::run_soak(&options),
        Command::NoteProgram { words } => programs::note(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
