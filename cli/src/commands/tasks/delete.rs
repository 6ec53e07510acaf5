//! `anyqueue tasks delete`.

use anyqueue::{PartitionId, Queue};
use clap::Args;
use serde_json::json;

use super::filter::Filter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Even a deletion without a limit stops after this many.
const DELETED_AT_MOST: u64 = 100_000_000;

/// Deletes the ends that are kept of tasks
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks delete mail --state succeeded --before 1h --yes
  anyqueue tasks delete mail --kind send_mail --limit 1000 --yes

Tasks that are alive or dead stay: see `anyqueue purge` and `anyqueue dead purge`. Expired ends need no deletion.")]
pub(crate) struct Delete {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to delete at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Confirms the deletion
    #[arg(long)]
    yes: bool,
}

impl Delete {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        if let Some(state) = self.filter.live_state() {
            let text = format!("only ends are deleted, and what is {state} has not ended");
            return Err(Failure::Usage(text));
        }
        if !self.yes {
            let text = "this deletes ends of tasks forever: look first with `anyqueue tasks list`, then add --yes to confirm";
            return Err(Failure::Usage(text.to_owned()));
        }
        let (filter, limit) = (self.filter.build(output), self.limit.unwrap_or(DELETED_AT_MOST));
        let deleted = queue.delete_ended(&self.queue, &filter, limit).await?;
        let more = deleted >= limit;
        let note = if more { "; there may be more" } else { "" };
        output.result(
            &format!("deleted {deleted}{note}"),
            &json!({ "queue": self.queue.name(), "deleted": deleted, "more": more }),
        )
    }
}
