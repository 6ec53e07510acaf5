//! `anyqueue conformance`: runs the suite against a backend at a URL.

mod places;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyqueue_conformance::{Certificate, Clause, Options, Outcome, Report, Tier, run};
use clap::{Args, ValueEnum};

use crate::failure::{Failure, Result};
use crate::session::{Session, url_argument};
use places::Places;

const HELP: &str = "\
Examples:
  anyqueue conformance sqlite:/tmp/try.db
  anyqueue conformance postgres://user:password@127.0.0.1/try --junit report.xml --certificate report.md
  anyqueue conformance redis://127.0.0.1/ --case push. --seed 7

The suite checks whether the backend keeps the contract. Cases that kill servers or consumers cannot be run on a server
that this command did not start: they are reported as skipped, and the certificate is partial. In the repository,
`cargo xtask conformance` runs them on servers of its own.

Use a test server. Each case works in a place of its own: an SQLite file next to the given one, a PostgreSQL schema,
elsewhere a prefix. Files and schemas are removed afterwards; empty queues on other backends are left.

Exit code 0: nothing failed. 3: the backend breaks the contract, or nothing could be observed.";

/// Runs the conformance suite against a backend
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Conformance {
    /// The backend; by default the one of --url
    #[arg(value_name = "URL", value_parser = url_argument)]
    at: Option<String>,
    /// Runs only the cases whose id contains this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Runs only the cases that prove this clause of the contract
    #[arg(long, value_name = "N")]
    clause: Option<Clause>,
    /// Repeats the random choices of an earlier run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How much to run
    #[arg(long, value_enum, default_value = "quick")]
    tier: Amount,
    /// How long each case of the soak tier runs
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    soak: Duration,
    /// How many cases run at once; use fewer on a slow server
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    parallel: Option<u8>,
    /// Writes a JUnit XML report for build servers
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Writes the certificate, in Markdown
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Amount {
    /// Every case, in small sizes
    Quick,
    /// Larger sizes, and cases that take minutes
    Thorough,
    /// Only the cases that run for as long as --soak says
    Soak,
}

impl Conformance {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let url = session.url(self.at.as_deref())?;
        let places = Places::at(url)?;
        // Otherwise a backend that cannot be reached would fail every case with the same words.
        places.probe().await?;
        let bar = session.output.progress("cases", None);
        let report = run(Arc::new(places.counting(bar.clone())), &self.options()).await;
        bar.finish_and_clear();
        if report.cases.is_empty() {
            return Err(Failure::Usage("no case is selected: see --case and --clause".to_owned()));
        }
        write(self.junit.as_deref(), &report.to_junit())?;
        write(self.certificate.as_deref(), &report.to_markdown())?;
        if session.output.json {
            // One line, like the JSON of all commands.
            session.output.object(&serde_json::from_str::<serde_json::Value>(&report.to_json())?)?;
        } else {
            session.output.text(&report.to_string())?;
            session.output.text(&skipped(&report))?;
        }
        if report.certificate() == Certificate::Failed { Err(Failure::Wrong) } else { Ok(()) }
    }

    fn options(&self) -> Options {
        let mut options = Options::new().with_soak(self.soak).with_tier(match self.tier {
            Amount::Quick => Tier::Quick,
            Amount::Thorough => Tier::Thorough,
            Amount::Soak => Tier::Soak,
        });
        if let Some(case) = &self.case {
            options = options.with_pattern(case);
        }
        if let Some(clause) = self.clause {
            options = options.with_clause(clause);
        }
        if let Some(seed) = self.seed {
            options = options.with_seed(seed);
        }
        if let Some(parallel) = self.parallel {
            options = options.with_parallelism(parallel.into());
        }
        options
    }
}

fn write(file: Option<&Path>, text: &str) -> Result {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, text).map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))
}

/// Says how many cases this run could not observe.
fn skipped(report: &Report) -> String {
    let not_offered = |outcome: &Outcome| matches!(outcome, Outcome::NotApplicable { declared: false, .. });
    let unseen = report.cases.iter().filter(|case| not_offered(&case.outcome)).count();
    format!("skipped: {unseen} cases that need a server to kill, processes to kill, or a clock to turn")
}
