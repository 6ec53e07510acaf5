//! `cargo xtask soak`: random work under random faults on real servers, with an exact account at the end.

use std::fs;
use std::process::Stdio;

use clap::Args;
use serde_json::Value;

use crate::workspace::{Result, cargo, line, root};

/// Where reports are kept.
const REPORTS: &str = "docs/conformance/runs";

/// Which backend, how long, which choices.
#[derive(Args)]
pub(crate) struct Options {
    /// The backend, one that has a server: postgres, rabbitmq, redis, sqs, …
    backend: String,
    /// How long faults happen
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Repeats the random choices of an earlier run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Soaks one backend and writes its report among the runs of the suite, a wrong account too.
pub(crate) fn run_soak(options: &Options) -> Result<()> {
    let (backend, minutes) = (&options.backend, options.minutes);
    println!("soak: {backend} for {minutes} minutes");
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "anyqueue-soak", "--", backend]);
    command.arg(minutes.to_string()).args(options.seed.map(|seed| seed.to_string()));
    let ended = command.stderr(Stdio::inherit()).output();
    let ended = ended.map_err(|error| format!("cannot run `{}`: {error}", line(&command)))?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .map_err(|_| format!("`{}` left no report ({})", line(&command), ended.status))?;
    let file = root().join(REPORTS).join(format!("soak-{backend}.json"));
    fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("{}\nsoak: wrote {}", text.trim_end(), file.display());
    if ended.status.success() {
        return Ok(());
    }
    let seed = report.get("seed").and_then(Value::as_u64).unwrap_or_default();
    Err(format!("{backend}, seed {seed}: the account is wrong"))
}
