//! `cargo xtask soak`: random work under random faults on real servers, and an exact account at the end.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use clap::Args;
use serde_json::Value;

use crate::workspace::{Result, cargo, line, root};

/// Which backend, how long, which choices.
#[derive(Args)]
pub(crate) struct Options {
    /// The backend: a folder under `adapters/` with an example `soak`; each of them if none is named
    backend: Option<String>,
    /// How long the faults go on, for each backend
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Repeats the random choices of the run that had this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Soaks one backend or all, and leaves a report of each in `target/soak/`.
pub(crate) fn run_soak(options: &Options) -> Result<()> {
    let backends = backends()?;
    let chosen: Vec<_> = match &options.backend {
        Some(backend) if backends.contains(backend) => vec![backend.clone()],
        Some(backend) => {
            return Err(format!("no backend {backend:?} can be soaked: these can: {}", backends.join(", ")));
        }
        None => backends,
    };
    chosen.iter().try_for_each(|backend| soak(backend, options))
}

/// The adapters that have a soak.
fn backends() -> Result<Vec<String>> {
    let folder = root().join("adapters");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let has_soak = |path: &Path| path.join("examples/soak/main.rs").exists();
    let folders = entries.flatten().filter(|entry| has_soak(&entry.path()));
    let mut backends: Vec<_> =
        folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    backends.sort_unstable();
    Ok(backends)
}

fn soak(backend: &str, options: &Options) -> Result<()> {
    println!("soak: {backend} for {} minutes", options.minutes);
    let package = format!("anyqueue-{backend}");
    let mut command =
        cargo(&["run", "--quiet", "--release", "--package", &package, "--example", "soak", "--"]);
    command.arg(options.minutes.to_string()).args(options.seed.map(|seed| seed.to_string()));
    let ended = command.stderr(Stdio::inherit()).output();
    let ended = ended.map_err(|error| format!("cannot run `{}`: {error}", line(&command)))?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .map_err(|_| format!("`{}` left no report ({})", line(&command), ended.status))?;
    let file = root().join("target/soak").join(format!("{backend}.json"));
    let folder = file.parent().unwrap_or(&file);
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("{}", text.trim_end());
    println!("soak: wrote {}", file.display());
    if ended.status.success() {
        return Ok(());
    }
    let seed = report.get("seed").and_then(Value::as_u64).unwrap_or_default();
    Err(format!("{backend}, seed {seed}: the account is wrong"))
}
