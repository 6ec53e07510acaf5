//! `anyqueue tasks count`.

use anyqueue::{PartitionId, Queue, TaskCount, TaskFilter};
use clap::Args;
use serde_json::json;

use super::filter::Filter;
use super::watch::Watch;
use crate::failure::Result;
use crate::output::Output;
use crate::session::queue_name;

/// Counts tasks
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks count mail --state failed --since 1h
  anyqueue tasks count mail --state succeeded --cap 1000000
  anyqueue tasks count mail --state running --watch

It counts up to --cap, and says `at least` if there can be more: so to find out whether there are more than a thousand,
it counts a thousand, however many there are.")]
pub(crate) struct Count {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How far to count
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    cap: u64,
    #[command(flatten)]
    watch: Watch,
}

impl Count {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let filter = self.filter.build(output);
        self.watch.repeat(output, async || self.once(queue, &filter, output).await).await
    }

    async fn once(&self, queue: &Queue, filter: &TaskFilter, output: Output) -> Result {
        let TaskCount { value, exact } = queue.count_tasks(&self.queue, filter, self.cap).await?;
        let text = if exact { value.to_string() } else { format!("at least {value}") };
        output.result(&text, &json!({ "queue": self.queue.name(), "count": value, "exact": exact }))
    }
}
