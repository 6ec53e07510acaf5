//! `anyqueue doctor`: checks whether a backend can be relied on, with an exit code that can stop a
//! deployment.

mod backend;
mod clock;
mod declared;
mod findings;
mod ledger;
mod limits;
mod probe;

use std::time::{Duration, Instant, SystemTime};

use anyqueue::{ErrorKind, PartitionId, Queue};
use clap::Args;

use self::clock::Clocks;
use self::findings::{Finding, Findings, Verdict};
use crate::failure::{Failure, Result, with_causes};
use crate::open::{self, Create};
use crate::output::{Table, duration};
use crate::session::{Session, queue_name, url_argument};

const HELP: &str = "\
Examples:
  anyqueue doctor
  anyqueue doctor postgres://app@host/db --strict --json
  anyqueue doctor --queue mail --max-dead 0 --max-ready 100000
  anyqueue doctor --max-clock-skew 500ms
  anyqueue doctor --probe

Exit code 0: the backend can be used. 3: it cannot, or a limit is exceeded or cannot be measured; with --strict, also
if there is a warning. What a backend does not tell is `unknown`. That fails only the limits that need it.

No message is touched without --probe. Some rights show only by trying: on RabbitMQ, doctor declares the exchanges
and the empty queue that all queues share, and so creates them if they are missing; on Redis it tries the commands on a
key of its own, and removes it; on SQLite it begins a write transaction, and rolls it back. A URL with create=true
creates what is missing.

With --ledger-url it also checks whether the ends of tasks can be kept there, and for a file, whether there is room.

--probe pushes a message into the queue anyqueue-doctor, which it creates, and pulls one from it. Several probes can run
at once.";

/// Checks a backend: version, rights, durability, bloat, consumer timeout, clock, limits
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// The backend; by default the one of --url
    #[arg(value_name = "URL", value_parser = url_argument)]
    at: Option<String>,
    /// Fails on warnings too
    #[arg(long)]
    strict: bool,
    /// Pushes, pulls and settles a message in the queue anyqueue-doctor, to test the rights for it
    #[arg(long)]
    probe: bool,
    /// A queue that --max-dead and --max-ready apply to; repeatable; all queues by default
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    queue: Vec<PartitionId>,
    /// How many dead letters a queue may have
    #[arg(long, value_name = "N")]
    max_dead: Option<u64>,
    /// How many messages may be ready in a queue
    #[arg(long, value_name = "N")]
    max_ready: Option<u64>,
    /// How far the server's clock may be from this machine's; without it, more than a second is a warning. Fails if the
    /// server does not tell its clock
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_clock_skew: Option<Duration>,
}

impl Doctor {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let url = session.url(self.at.as_deref())?;
        let mut findings = Findings::default();
        match open::storage(url, Create::Never).await {
            // A malformed URL is the caller's mistake, not the backend's. A URL whose file is missing is well-formed.
            Err(error) if error.kind() == ErrorKind::InvalidInput && !open::is_missing(url) => {
                return Err(error.into());
            }
            Err(error) => findings.add("open", Verdict::Failed, with_causes(&error)),
            Ok(storage) => {
                let queue = Queue::new(storage)?;
                self.examine(&queue, url, &mut findings).await?;
                // Anything that keeps it from closing was found above.
                let _ = queue.close().await;
            }
        }
        if let Some(ledger_url) = session.ledger_url() {
            ledger::check(ledger_url, &mut findings).await;
        }
        for finding in &mut findings.0 {
            finding.text = crate::secrets::hide(&finding.text).into_owned();
        }
        self.conclude(session, &findings)
    }

    async fn examine(&self, queue: &Queue, url: &str, findings: &mut Findings) -> Result {
        let begin = Instant::now();
        if findings.need("open", queue.init().await).is_none() {
            return Ok(());
        }
        let opened = format!("{}, ready after {}", queue.storage().name(), duration(begin.elapsed()));
        findings.add("open", Verdict::Ok, opened);
        self.health(queue, url, findings).await;
        declared::check(queue.capabilities(), url, findings);
        findings.extend(backend::bloat(url).await);
        if self.probe {
            let probed = probe::run(url).await;
            if let Some(text) = findings.need("probe", probed) {
                findings.add("probe", Verdict::Ok, text);
            }
        }
        self.limits(queue, findings).await
    }

    /// Records what the server answers: its version, this user's rights, its clock.
    async fn health(&self, queue: &Queue, url: &str, findings: &mut Findings) {
        let (begin, asked_at) = (Instant::now(), SystemTime::now());
        let health = match queue.check().await {
            Ok(health) => health,
            Err(error) => {
                let refused = error.kind() == ErrorKind::AccessDenied;
                let (failed, others) = if refused { ("rights", "health") } else { ("health", "rights") };
                findings.add(failed, Verdict::Failed, with_causes(&error));
                for check in [others, "version", "clock"] {
                    let text = format!("unknown: see {failed}");
                    findings.add(check, Verdict::Unknown, text);
                }
                return;
            }
        };
        let took = duration(begin.elapsed());
        findings.add("health", Verdict::Ok, format!("replied within {took}"));
        for warning in health.warnings {
            findings.add("health", Verdict::Warning, warning);
        }
        match health.server_version {
            Some(version) => findings.add("version", Verdict::Ok, version),
            None => findings.add("version", Verdict::Unknown, "unknown: the server does not tell"),
        }
        findings.extend([backend::rights(url)]);
        let (asked, reach) = (asked_at..=SystemTime::now(), queue.capabilities().reach);
        let clocks = Clocks { server: health.server_time, asked, reach };
        let (verdict, text) = clocks.judge(self.max_clock_skew);
        findings.add("clock", verdict, text);
    }

    fn conclude(&self, session: &Session, findings: &Findings) -> Result {
        if session.output.json {
            findings.0.iter().try_for_each(|finding| session.output.object(finding))?;
        } else {
            let mut table = Table::new(&["", "check", ""]);
            for Finding { check, verdict, text } in &findings.0 {
                let word = match verdict {
                    Verdict::Ok => "ok",
                    Verdict::Unknown => "unknown",
                    Verdict::Warning => "WARNING",
                    Verdict::Failed => "FAILED",
                };
                table.row([word.to_owned(), (*check).to_owned(), text.clone()]);
            }
            table.print(session.output)?;
        }
        let wrong = findings.has(Verdict::Failed) || self.strict && findings.has(Verdict::Warning);
        if wrong { Err(Failure::Wrong) } else { Ok(()) }
    }
}
