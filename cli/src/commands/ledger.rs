//! `anyqueue ledger`: the space that ends of tasks take, and the waiting tasks that a separate ledger knows.

use std::time::{Duration, SystemTime};

use anyqueue::{Forget, PartitionId, Queue};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Result;
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};

/// Maintains the ledger: frees the space of expired ends, forgets outdated tasks
#[derive(Subcommand)]
pub(crate) enum Ledger {
    Purge(Purge),
    Reconcile(Reconcile),
}

/// Frees the space of ends that have expired
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue ledger purge
  anyqueue ledger purge --limit 10000 --json

Expired ends are not shown, whether purged or not. Workers purge them by themselves about once a minute; this command is
for backends that no worker of ours serves. To delete ends that are still shown, see `anyqueue tasks delete`
and name their states with --state.")]
pub(crate) struct Purge {
    /// How many to free at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    limit: u64,
}

/// Forgets waiting tasks in the ledger beside a queue that had no event for a long time
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue ledger reconcile mail --older-than 2d --dry-run
  anyqueue ledger reconcile mail --older-than 2d
  anyqueue ledger reconcile mail --older-than 30d --dead --json

For a queue that cannot be browsed, with its ledger at --ledger-url: after the queue was purged, or the ledger restored
from a backup, the ledger shows tasks that are no longer there. Messages are left alone. If a forgotten task is still
there, its next event makes it known again; until then it is not shown. So choose an age within which every task that is
alive has an event.

The age counts from the last event, by this machine's clock; for a delayed task, from the time at which it is due. Dead
letters have no next event, so they are kept, and can be listed and retried by id, unless --dead is given. Use it if they
were purged. A queue that can be browsed shows by itself what waits.")]
pub(crate) struct Reconcile {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// How long ago the last event of a task, or its due time, must have been
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// Also forgets dead letters
    #[arg(long)]
    dead: bool,
    /// How many to forget at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    limit: u64,
    /// Only shows how many it would be
    #[arg(long)]
    dry_run: bool,
}

impl Ledger {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let end = match self {
            Self::Purge(purge) => purge.run(&queue, session.output).await,
            Self::Reconcile(reconcile) => reconcile.run(&queue, session.output).await,
        };
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }
}

impl Purge {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let freed = queue.purge_ended(self.limit).await?;
        let more = freed >= self.limit;
        let note = if more { "; there may be more" } else { "" };
        output.result(&format!("freed {freed}{note}"), &json!({ "freed": freed, "more": more }))
    }
}

impl Reconcile {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let before = SystemTime::now().checked_sub(self.older_than).unwrap_or(SystemTime::UNIX_EPOCH);
        let forget = Forget::before(before).with_dead(self.dead).with_limit(self.limit);
        let count = queue.forget_waiting(&self.queue, &forget.with_dry_run(self.dry_run)).await?;
        let more = count >= self.limit;
        let note = if more { "; there may be more" } else { "" };
        let (done, field) =
            if self.dry_run { ("would forget", "would_forget") } else { ("forgot", "forgotten") };
        output.result(
            &format!("{}: {done} {count}{note}", self.queue),
            &json!({ "queue": self.queue.name(), field: count, "more": more }),
        )
    }
}
