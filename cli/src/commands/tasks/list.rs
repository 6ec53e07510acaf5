//! `anyqueue tasks list`.

use std::time::SystemTime;

use anyqueue::{PartitionId, Queue, Task, TaskFilter};
use clap::Args;

use super::filter::Filter;
use super::line::TaskLine;
use super::watch::Watch;
use crate::failure::{Failure, Result};
use crate::output::{Output, Table, duration, preview};
use crate::session::queue_name;

/// Lists tasks: those that are alive, then the dead, then those that ended, the newest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks list mail
  anyqueue tasks list mail --state failed --state timed_out --since 2h
  anyqueue tasks list mail --state succeeded --limit 1000000 --json > done.ndjson
  anyqueue tasks list mail --kind send_mail --error 'connection refused'
  anyqueue tasks list mail --state running --watch

States and times are found by an index; for other conditions, every task in these states and times is read, a page at a
time. A task that changes its state meanwhile may be listed twice, or not at all. Times are those of the server's clock.

Tasks that have ended are listed if their worker keeps ends: see `anyqueue work --ledger`. Results are shown by
`anyqueue tasks show`.

Exit code 4: no task was found.")]
pub(crate) struct List {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to show at most
    #[arg(long, short = 'n', visible_alias = "max", value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    watch: Watch,
}

impl List {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let filter = self.filter.build(output);
        self.watch.repeat(output, async || self.once(queue, filter.clone(), output).await).await
    }

    async fn once(&self, queue: &Queue, filter: TaskFilter, output: Output) -> Result {
        let mut table = Table::new(&["id", "state", "kind", "attempt", "ended", "ran", "worker", "reason"]);
        let mut tasks = queue.tasks(&self.queue, filter)?;
        let mut shown = 0;
        let end = loop {
            if shown == self.limit {
                break Ok(());
            }
            match tasks.next().await {
                None => break Ok(()),
                Some(Err(error)) => break Err(error.into()),
                Some(Ok(task)) if output.json => output.object(&TaskLine::of(&task))?,
                Some(Ok(task)) => table.row(row(&task)),
            }
            shown += 1;
        };
        if shown == 0 {
            if end.is_ok() {
                output.note(&format!("{}: no such task", self.queue));
            }
            return end.and(Err(Failure::Nothing));
        }
        // What was found before an error is still worth showing.
        if !output.json {
            table.print(output)?;
        }
        end
    }
}

fn row(task: &Task) -> [String; 8] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let ago = task.ended_at.and_then(|at| SystemTime::now().duration_since(at).ok());
    let short = |text: Option<&str>, longest| or_dash(text.map(|text| preview(text.as_bytes(), longest)));
    [
        task.id.to_string(),
        task.state.as_str().to_owned(),
        short(task.kind.as_deref(), 30),
        task.attempt.to_string(),
        or_dash(ago.map(|ago| format!("{} ago", duration(ago)))),
        or_dash(task.ran.map(duration)),
        short(task.worker.as_deref(), 30),
        short(task.reason.as_deref(), 50),
    ]
}
