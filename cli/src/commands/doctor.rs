//! `anyqueue doctor`: whether a backend can be relied on, with an exit code for a deploy gate.

mod clock;

use std::time::{Duration, Instant, SystemTime};

use anyqueue::{
    Capabilities, DurabilityLevel, ErrorKind, MessageData, PartitionId, Queue, QueueMessageStatus,
};
use clap::Args;
use serde::Serialize;

use super::stats::all;
use crate::args::{Session, queue_name};
use crate::failure::{Failure, Result, with_causes};
use crate::open::{self, Create};
use crate::output::{Table, duration};

const HELP: &str = "\
Examples:
  anyqueue doctor
  anyqueue doctor postgres://app@host/db --strict --json
  anyqueue doctor --queue mail --max-dead 0 --max-ready 100000
  anyqueue doctor --max-clock-skew 500ms
  anyqueue doctor --probe

Exit code 0: it can be used. 3: it cannot, or a limit is exceeded; with --strict also if there is a warning.

Nothing is created or changed, unless --probe pushes a message into a queue of that purpose (which it makes) and
takes it out again, which shows that the rights suffice.";

/// Checks the backend: reachable, version, clock, rights, durability, wear, limits
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Doctor {
    /// The backend, if it is not the one of --url
    #[arg(value_name = "URL")]
    at: Option<String>,
    /// A warning is as bad as a failure
    #[arg(long)]
    strict: bool,
    /// Pushes, pulls and settles a message in a queue called anyqueue-doctor
    #[arg(long)]
    probe: bool,
    /// The queues that --max-dead and --max-ready are about; all of them unless named
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    queue: Vec<PartitionId>,
    /// The most dead letters that a queue may have
    #[arg(long, value_name = "N")]
    max_dead: Option<u64>,
    /// The most messages that may wait in a queue
    #[arg(long, value_name = "N")]
    max_ready: Option<u64>,
    /// The most by which the server's clock may differ from this machine's; without it, more than a second is a warning
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_clock_skew: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

/// What one check found.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    text: String,
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding { check, verdict, text: text.into() });
    }

    /// Whether the result is there; else it is a failure of this check.
    fn need<T>(&mut self, check: &'static str, result: anyqueue::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(check, Verdict::Failed, with_causes(&error))).ok()
    }

    fn has(&self, verdict: Verdict) -> bool {
        self.0.iter().any(|finding| finding.verdict == verdict)
    }
}

impl Doctor {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let url = session.url(self.at.as_deref())?;
        let mut findings = Findings::default();
        match open::storage(url, Create::Never).await {
            // A URL of the wrong form is the caller's mistake, not the backend's.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error.into()),
            Err(error) => findings.add("open", Verdict::Failed, with_causes(&error)),
            Ok(storage) => {
                let queue = Queue::new(storage)?;
                self.examine(&queue, url, &mut findings).await?;
                // A handle that cannot be closed was found out above.
                let _ = queue.close().await;
            }
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
        let (begin, asked_at) = (Instant::now(), SystemTime::now());
        if let Some(health) = findings.need("health", queue.check().await) {
            let took = duration(begin.elapsed());
            let version = health.server_version.unwrap_or_else(|| "not told".to_owned());
            findings.add("health", Verdict::Ok, format!("version {version}, answered within {took}"));
            let clock = clock::judge(health.server_time, asked_at..=SystemTime::now(), self.max_clock_skew);
            if let Some((verdict, text)) = clock {
                findings.add("clock", verdict, text);
            }
            for warning in health.warnings {
                findings.add("health", Verdict::Warning, warning);
            }
        }
        declared(queue.capabilities(), findings);
        for (verdict, text) in open::wear(url).await {
            findings.add("wear", if verdict { Verdict::Ok } else { Verdict::Failed }, text);
        }
        if self.probe {
            let probed = probe_at(url).await;
            if let Some(text) = findings.need("probe", probed) {
                findings.add("probe", Verdict::Ok, text);
            }
        }
        if self.max_dead.is_some() || self.max_ready.is_some() {
            self.limits(queue, findings).await?;
        }
        Ok(())
    }

    async fn limits(&self, queue: &Queue, findings: &mut Findings) -> Result {
        let names = if self.queue.is_empty() { all(queue).await? } else { self.queue.clone() };
        for name in names {
            let Some(counts) = findings.need("limits", queue.counts(&name).await) else { continue };
            let pairs =
                [("dead letters", counts.dead, self.max_dead), ("ready", counts.ready, self.max_ready)];
            for (what, count, most) in pairs {
                let Some(most) = most else { continue };
                let (verdict, text) = match count {
                    None => (Verdict::Warning, format!("{name}: {what} are not counted by this backend")),
                    Some(count) if count > most => {
                        (Verdict::Failed, format!("{name}: {count} {what}, more than {most}"))
                    }
                    Some(count) => (Verdict::Ok, format!("{name}: {count} {what}")),
                };
                findings.add("limits", verdict, text);
            }
        }
        Ok(())
    }

    fn conclude(&self, session: &Session, findings: &Findings) -> Result {
        if session.output.json {
            findings.0.iter().try_for_each(|finding| session.output.object(finding))?;
        } else {
            let mut table = Table::new(&["", "check", ""]);
            for Finding { check, verdict, text } in &findings.0 {
                let word = match verdict {
                    Verdict::Ok => "ok",
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

/// What the backend says of itself, as far as an operator must know it.
fn declared(capabilities: &Capabilities, findings: &mut Findings) {
    let (verdict, text) = match capabilities.durability.push {
        DurabilityLevel::None => (
            Verdict::Warning,
            "acknowledged messages are lost if the server crashes: make it write to disk in time",
        ),
        DurabilityLevel::ProcessCrash => {
            (Verdict::Warning, "acknowledged messages survive the crash of a process, not the loss of power")
        }
        DurabilityLevel::PowerLoss => (Verdict::Ok, "acknowledged messages survive the loss of power"),
        DurabilityLevel::MachineLoss => (Verdict::Ok, "acknowledged messages survive the loss of a machine"),
    };
    findings.add("durability", verdict, text);
    if let Some(most) = capabilities.lease.max_hold {
        findings.add("limits", Verdict::Ok, format!("a message can be held for {} at most", duration(most)));
    }
    if let Some(kept) = capabilities.retention {
        findings.add(
            "limits",
            Verdict::Ok,
            format!("a message that waits is dropped after {}", duration(kept)),
        );
    }
}

/// Through a handle of its own: the one that only looks does not make the probe's queue where each queue is made by itself.
async fn probe_at(url: &str) -> anyqueue::Result<String> {
    let queue = Queue::new(open::storage(url, Create::AsTold).await?)?;
    queue.init().await?;
    let probed = probe(&queue).await;
    queue.close().await?;
    probed
}

/// How long the probe waits for its own message.
const PROBE_WAIT: Duration = Duration::from_secs(10);

/// A message there and back.
async fn probe(queue: &Queue) -> anyqueue::Result<String> {
    let begin = Instant::now();
    let message = MessageData::new("a probe of anyqueue doctor").with_time_to_live(Duration::from_mins(1));
    let id = message.id();
    queue.push("anyqueue-doctor", message).await?;
    let stored = begin.elapsed();
    let until = begin + PROBE_WAIT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // What an earlier probe left behind is cleared away with it.
        let held = queue.pull("anyqueue-doctor").max(10).wait(left).await?;
        if held.is_empty() {
            let text = "the message that was pushed did not come back: is the queue anyqueue-doctor paused?";
            return Err(anyqueue::Error::new(ErrorKind::TimedOut, text));
        }
        let mut found = false;
        for mut handler in held {
            found |= handler.id() == id;
            handler.settle(QueueMessageStatus::Processed).await?;
        }
        if found {
            let all = duration(begin.elapsed());
            return Ok(format!("pushed within {}, pulled and settled within {all}", duration(stored)));
        }
    }
}
