//! `anyqueue ledger`: the space that ends of tasks take, and the waiting tasks that a separate ledger knows.

use std::time::{Duration, SystemTime};

use anyqueue::{Forget, PartitionId, Queue};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Result;
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};

/// Looks after the ledger: frees the place of ends that have lapsed, forgets what is no longer so
#[derive(Subcommand)]
pub(crate) enum Ledger {
    Purge(Purge),
    Reconcile(Reconcile),
}

/// Frees the place of ends that have been kept for as long as they were to be
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue ledger purge
  anyqueue ledger purge --limit 10000 --json

Nobody is shown them any more, purged or not. Workers do this by themselves about once a minute; it is for backends that no
worker of ours serves. To delete what is still shown, see `anyqueue tasks delete`.")]
pub(crate) struct Purge {
    /// How many to free at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    limit: u64,
}

/// Forgets what the ledger beside a queue was told of tasks that wait, and has not heard of since
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue ledger reconcile mail --older-than 2d --dry-run
  anyqueue ledger reconcile mail --older-than 2d
  anyqueue ledger reconcile mail --older-than 30d --dead --json

For a queue that cannot be browsed, with its ledger at --ledger-url: after the queue was purged, or the ledger restored from a
backup, the ledger shows tasks that are no longer there. Messages are left alone, and the ledger is told of each again with its
next event. Until then nobody is shown what is there all the same: take a time in which each task that lives has an event.

The age is that of the last event, by this machine's clock; of a task that waits for its time it counts from when it is due.
Dead letters have no next event: unless --dead is said, they stay, so that they are listed, and can be retried by their ids.
Say it when they were purged. A queue that can be browsed shows itself what waits.")]
pub(crate) struct Reconcile {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// How long ago the ledger was told last of what is forgotten, or that was due
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
