//! `anyqueue tasks count`.

use std::time::Duration;

use anyqueue::{PartitionId, Queue, TaskCount, TaskFilter};
use clap::Args;
use serde_json::json;

use super::filter::Filter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Counts tasks
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks count mail --state failed --since 1h
  anyqueue tasks count mail --state succeeded --cap 1000000
  anyqueue tasks count mail --state running --watch

It counts up to --cap, and says `at least` if there can be more: so the question whether there are more than a thousand
costs a thousand, however many there are.")]
pub(crate) struct Count {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How far to count
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    cap: u64,
    /// Repeats the count at this interval
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s",
        value_parser = humantime::parse_duration
    )]
    watch: Option<Duration>,
    /// Stops --watch after this many rounds
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

impl Count {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let filter = self.filter.build(output);
        let mut rounds = 0;
        loop {
            match self.once(queue, &filter, output).await {
                // Keep watching: the end of an outage is interesting too.
                Err(Failure::Failed(why)) if rounds > 0 => output.warn(&why),
                end => end?,
            }
            output.flush()?;
            rounds += 1;
            match self.watch {
                Some(pause) if self.rounds.is_none_or(|most| rounds < most) => {
                    tokio::time::sleep(pause).await;
                }
                _ => return Ok(()),
            }
        }
    }

    async fn once(&self, queue: &Queue, filter: &TaskFilter, output: Output) -> Result {
        let TaskCount { value, exact } = queue.count_tasks(&self.queue, filter, self.cap).await?;
        let text = if exact { value.to_string() } else { format!("at least {value}") };
        output.result(&text, &json!({ "queue": self.queue.name(), "count": value, "exact": exact }))
    }
}
