//! The scenarios of anyqueue's benchmarks on other Rust libraries, each at what its documentation shows and at its best.
//!
//! `anyqueue-peers [--scenario=NAME] [--rounds=N] [--only=TEXT]` prints one JSON object a line. A library is used as its own
//! documentation uses it, on a private server with the settings that anyqueue's bench gives it.

#[path = "../../src/environment.rs"]
mod environment;
mod jobs;
mod measure;
mod omni;
mod peer;

use std::process::ExitCode;

use crate::measure::Options;
use crate::peer::Result;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all that was measured was verified too.
async fn run() -> Result<bool> {
    let options = options(std::env::args().skip(1))?;
    let mut verified = true;
    for peer in omni::peers().into_iter().chain(jobs::peers()) {
        if peer.name().contains(&options.only) {
            verified &= measure::print(&peer, &options).await?;
        }
    }
    Ok(verified)
}

fn options(arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { scenario: "all".to_owned(), rounds: 5, only: String::new() };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("--scenario", name)) => options.scenario = name.to_owned(),
            Some(("--rounds", rounds)) => options.rounds = rounds.parse()?,
            Some(("--only", text)) => options.only = text.to_owned(),
            _ => {
                return Err(
                    format!("{argument}: --scenario=NAME, --rounds=N and --only=TEXT are known").into()
                );
            }
        }
    }
    Ok(options)
}
