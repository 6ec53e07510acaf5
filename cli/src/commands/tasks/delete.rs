//! `anyqueue tasks delete`.

use anyqueue::{DeletedTasks, PartitionId, Queue};
use clap::Args;
use serde_json::json;

use super::filter::Filter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Even a deletion without a limit stops after this many.
const DELETED_AT_MOST: u64 = 100_000_000;

/// Deletes tasks: the messages of those that wait or are dead, and what is kept of those that have ended
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks delete mail --state succeeded --before 1h --yes
  anyqueue tasks delete mail --state failed --kind send_mail --limit 1000 --yes
  anyqueue tasks delete mail --state queued --state scheduled --kind reminder --yes

Without --state it deletes in all states: also messages that wait, which come first, and dead letters. To see what a filter finds, use
`anyqueue tasks count` with the same filter. A task that a worker holds stays, and is counted. On RabbitMQ and SQS only ends can be
deleted: see `anyqueue purge` and `anyqueue dead purge` there. Expired ends need no deletion.")]
pub(crate) struct Delete {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to delete at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Confirms the deletion
    #[arg(long)]
    yes: bool,
}

impl Delete {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        if !self.yes {
            let text = "this deletes tasks forever, without --state also those that wait and dead letters: look first with `anyqueue tasks count` and the same filter, then add --yes to confirm";
            return Err(Failure::Usage(text.to_owned()));
        }
        let (filter, limit) = (self.filter.build(output), self.limit.unwrap_or(DELETED_AT_MOST));
        let done = queue.delete_tasks(&self.queue, &filter, limit).await?;
        let DeletedTasks { live, dead, ended, held, more, .. } = done;
        let json = json!({
            "queue": self.queue.name(), "deleted": done.total(),
            "live": live, "dead": dead, "ended": ended, "held": held, "more": more
        });
        output.result(&sentence(&done), &json)
    }
}

fn sentence(done: &DeletedTasks) -> String {
    let sides = [("that waited", done.live), ("dead", done.dead), ("ended", done.ended)];
    let sides = sides.into_iter().filter(|(_, count)| *count > 0);
    let sides: Vec<_> = sides.map(|(what, count)| format!("{count} {what}")).collect();
    let sides = if sides.is_empty() { String::new() } else { format!(": {}", sides.join(", ")) };
    let held = if done.held > 0 { format!("; {} held by a worker stay", done.held) } else { String::new() };
    let more = if done.more { "; there may be more" } else { "" };
    format!("deleted {}{sides}{held}{more}", done.total())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_was_deleted_and_what_stays() {
        let mut done = DeletedTasks::default();
        assert_eq!(sentence(&done), "deleted 0");
        (done.live, done.ended) = (2, 1);
        assert_eq!(sentence(&done), "deleted 3: 2 that waited, 1 ended");
        (done.dead, done.held, done.more) = (4, 5, true);
        let all = "deleted 7: 2 that waited, 4 dead, 1 ended; 5 held by a worker stay; there may be more";
        assert_eq!(sentence(&done), all);
    }
}
