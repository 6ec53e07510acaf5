//! `anyqueue audit`: shows who managed what through a service.

use anyqueue::Page;
use anyqueue_control::audit::{Audit as Trail, AuditEntry, MAX_ENTRIES};
use clap::Args;
use serde_json::{Map, Value, json};

use super::control::ControlArgs;
use crate::failure::{Failure, Result, with_causes};
use crate::open::Create;
use crate::output::{Output, Table, preview};
use crate::session::Session;

/// The most entries that the store returns at once.
const PAGE: u64 = 100;

/// Shows who managed what through `anyqueue serve`, the newest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue audit
  anyqueue audit --limit 10000 --json

Each request to a service that changes something by the right manage or admin has an entry, and so has each login with a
token. Pushes, pulls and settlements have none, and neither has what other commands do. `operator` is a client that needs
no token, or has one of --token-file; `begun` means that the request is under way, or that the service ended meanwhile; 499
means that the client left before the answer. The last 10000 entries are kept, for 90 days.

For services on RabbitMQ and SQS, --control-url says where the trail is. Exit code 4: there is no entry.")]
pub(crate) struct Audit {
    #[command(flatten)]
    control: ControlArgs,
    /// How many to show at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=MAX_ENTRIES))]
    limit: u64,
}

impl Audit {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let control = self.control.open(&queue, Create::Never).await?;
        let end = show(&Trail::new(control.store.clone()), self.limit, session.output).await;
        let (let_go, closed) = (control.close().await, queue.close().await);
        end?;
        let_go?;
        Ok(closed?)
    }
}

async fn show(trail: &Trail, limit: u64, output: Output) -> Result {
    let mut table = Table::new(&["at", "who", "from", "status", "what", "queue", "details"]);
    let (mut left, mut before, mut any) = (limit, None, false);
    while left > 0 {
        let size = usize::try_from(left.min(PAGE)).unwrap_or(usize::MAX);
        let page = trail.list(Page::of(size).after(before)).await?;
        for (key, error) in &page.unreadable {
            output.warn(&format!("{key}: {}", with_causes(error)));
        }
        for entry in &page.entries {
            any = true;
            if output.json {
                output.object(&line(entry))?;
            } else {
                table.row(row(entry));
            }
        }
        left = left.saturating_sub(PAGE);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    if !any {
        output.note("there is no entry");
        return Err(Failure::Nothing);
    }
    if output.json { Ok(()) } else { table.print(output) }
}

fn line(entry: &AuditEntry) -> Value {
    let outcome = entry.outcome.clone().unwrap_or_default();
    let details: Map<_, _> = outcome.details.into_iter().map(|(name, value)| (name, json!(value))).collect();
    json!({
        "number": entry.number,
        "at": humantime::format_rfc3339_millis(entry.at).to_string(),
        "token": entry.token,
        "from": entry.from,
        "method": entry.method,
        "path": entry.path,
        "status": entry.outcome.as_ref().map(|outcome| outcome.status),
        "partitions": outcome.queues,
        "details": details,
    })
}

fn row(entry: &AuditEntry) -> [String; 7] {
    let outcome = entry.outcome.clone().unwrap_or_default();
    let details = outcome.details.iter().map(|(name, value)| format!("{name} {value}"));
    [
        humantime::format_rfc3339_seconds(entry.at).to_string(),
        entry.token.clone().unwrap_or_else(|| "operator".to_owned()),
        entry.from.clone().unwrap_or_else(|| "-".to_owned()),
        entry.outcome.as_ref().map_or_else(|| "begun".to_owned(), |outcome| outcome.status.to_string()),
        preview(format!("{} {}", entry.method, entry.path).as_bytes(), 80),
        preview(outcome.queues.join(" ").as_bytes(), 40),
        preview(details.collect::<Vec<_>>().join(", ").as_bytes(), 60),
    ]
}
