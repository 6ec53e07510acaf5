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
    /// The backend: postgres, rabbitmq, redis, sqlite, sqs
    backend: String,
    /// How long faults happen
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Repeats the random choices of an earlier run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keeps the ends of tasks, and accounts for each
    #[arg(long)]
    ledger: bool,
    /// Also runs worker processes that register, share a limit and run a schedule, and kills and freezes them
    #[arg(long)]
    control: bool,
    /// What keeps ends and control entries for RabbitMQ and SQS: postgres, redis, sqlite
    #[arg(long, value_name = "STORE", default_value = "postgres")]
    store: String,
}

impl Options {
    /// Returns the name of the report of such a run.
    fn name(&self) -> String {
        let mut words = vec!["soak", &self.backend];
        let needs_store = ["rabbitmq", "sqs"].contains(&self.backend.as_str());
        if needs_store && (self.ledger || self.control) {
            words.extend(["beside", &self.store]);
        }
        words.extend(self.ledger.then_some("ledger"));
        words.extend(self.control.then_some("control"));
        words.join("-")
    }

    /// Returns the soak's arguments, except for backend, time and seed.
    fn flags(&self) -> Vec<&str> {
        let mut flags = vec!["--store", &self.store];
        flags.extend(self.ledger.then_some("--ledger"));
        flags.extend(self.control.then_some("--control"));
        flags
    }
}

/// Soaks one backend and writes its report among the runs of the suite, even if the account is wrong.
pub(crate) fn run_soak(options: &Options) -> Result<()> {
    let (backend, minutes) = (&options.backend, options.minutes);
    println!("soak: {backend} for {minutes} minutes");
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "anyqueue-soak", "--", backend]);
    command.arg(minutes.to_string()).args(options.seed.map(|seed| seed.to_string())).args(options.flags());
    let ended = command.stderr(Stdio::inherit()).output();
    let ended = ended.map_err(|error| format!("cannot run `{}`: {error}", line(&command)))?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .map_err(|_| format!("`{}` left no report ({})", line(&command), ended.status))?;
    let file = root().join(REPORTS).join(format!("{}.json", options.name()));
    fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("{}\nsoak: wrote {}", text.trim_end(), file.display());
    if ended.status.success() {
        return Ok(());
    }
    let seed = report.get("seed").and_then(Value::as_u64).unwrap_or_default();
    Err(format!("{backend}, seed {seed}: the account is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_run_has_a_report_of_its_own() {
        let options = |backend: &str, ledger, control| Options {
            backend: backend.to_owned(),
            minutes: 10,
            seed: None,
            ledger,
            control,
            store: "sqlite".to_owned(),
        };
        assert_eq!(options("redis", false, false).name(), "soak-redis");
        assert_eq!(options("redis", true, true).name(), "soak-redis-ledger-control");
        assert_eq!(options("sqs", true, false).name(), "soak-sqs-beside-sqlite-ledger");
        assert_eq!(options("sqs", false, false).name(), "soak-sqs");
        assert_eq!(options("sqs", true, true).flags(), ["--store", "sqlite", "--ledger", "--control"]);
    }
}
