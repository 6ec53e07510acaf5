//! The command `anyqueue`: push, process, inspect, repair and move work queues on any backend, chosen by URL.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod escape;
mod exec;
mod failure;
mod line;
mod lines;
mod open;
mod output;
mod progress;
mod say;
mod secrets;
mod server;
mod session;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;

use args::Cli;
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::explain(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::from(error).report(),
    };
    let end = runtime.block_on(cli.run());
    // Background tasks of closed queues, and reads of standard input that cannot be interrupted, may still be
    // running.
    runtime.shutdown_background();
    end.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
