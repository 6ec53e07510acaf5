//! `anyqueue tasks wait`.

use std::time::Duration;

use anyqueue::{MessageId, PartitionId, Queue, TaskState};
use clap::Args;

use super::show::print;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Waits until a task has ended or is dead, and shows it with its result
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks wait mail 0197a3c4-5f2e-7c1a-9d8b-000000000001 --for 30s
  anyqueue tasks wait sums $ID --for 1m --raw

If another process ends the task, that is noticed within half a second.

Exit codes:
  0  it succeeded
  3  it failed, took too long, or was cancelled
  4  nothing is known of it; or with --raw, it succeeded without a result
  5  it has not ended within the time")]
pub(crate) struct Wait {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The id of its message
    id: MessageId,
    /// How long to wait
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    longest: Duration,
    /// Writes its result and nothing else, byte for byte
    #[arg(long)]
    raw: bool,
}

impl Wait {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let found = queue.wait_for(&self.queue, self.id, self.longest).await?;
        let task = found.ok_or(Failure::Nothing)?;
        let has_succeeded = task.state == TaskState::Succeeded;
        if has_succeeded || !self.raw {
            print(&task, self.raw, output)?;
        } else {
            output.note(&format!("{} is {}", task.id, task.state));
        }
        match task.state {
            TaskState::Succeeded => Ok(()),
            state if state.ended().is_some() => Err(Failure::Wrong),
            _ => Err(Failure::Late),
        }
    }
}
