//! `anyqueue pull`: takes messages by hand.

use std::time::Duration;

use anyqueue::{Delivery, Expired, PartitionId, PartitionOptions, QueueMessageStatus, SettleOutcome};
use clap::{Args, ValueEnum};

use super::keep::KeepArgs;
use super::nothing;
use crate::failure::{Failure, Result};
use crate::line::Line;
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};

const EXAMPLES: &str = "\
Examples:
  anyqueue pull mail                            removes one message and writes its payload
  anyqueue pull mail --max 10 --wait 30s --json
  anyqueue pull mail --settle waiting           shows a message and releases it
  anyqueue pull mail --settle postponed --delay 1h
  anyqueue pull mail --dead                     removes a dead letter

A message is settled after it has been written. If the command is killed before that, the message comes back when its
lease ends; if the output cannot be written, the message is released. Expired messages become dead letters.
Exit code 4: no message was found.";

/// Pulls messages, writes their payloads, and settles them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pull {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// How many to take at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    max: u16,
    /// How long to wait for the first message
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// How to settle them
    #[arg(long, value_name = "STATUS", value_enum, default_value = "processed")]
    settle: Status,
    /// With `--settle postponed`: after how long they are delivered again
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    delay: Option<Duration>,
    /// With `--settle poisonous`: why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Pulls dead letters
    #[arg(long)]
    dead: bool,
    #[command(flatten)]
    keep: KeepArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Status {
    /// Removes them as done
    Processed,
    /// Releases them. That is no attempt, except on FIFO queues of SQS, which count it as a delivery
    Waiting,
    /// Releases them as failed attempts
    Failed,
    /// Delivers them again after --delay
    Postponed,
    /// Removes them as no longer wanted
    Cancelled,
    /// Makes them dead letters
    Poisonous,
}

impl Pull {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let status = self.status()?;
        // A pull by hand removes no expired message, and kills no message for too many deliveries.
        let options = PartitionOptions::default().with_max_deliveries(None).with_expired(Expired::DeadLetter);
        let options = self.keep.with_kinds(options);
        let queue = session.queue_with(Create::Never, options, self.keep.keep_on(session)).await?;
        let partition = if self.dead { self.queue.dead_letters() } else { self.queue.clone() };
        let mut held = queue.pull(&partition).max(self.max.into()).wait(self.wait).await?;
        let written = held.iter().try_for_each(|handler| write(session.output, handler));
        let written = written.and_then(|()| session.output.flush());
        // What could not be written has been seen by nobody.
        let status = if written.is_ok() { status } else { QueueMessageStatus::Waiting };
        let mut lost = 0_usize;
        for outcome in queue.settle_many(held.iter_mut().map(|handler| (handler, status.clone()))).await {
            lost += usize::from(outcome? == SettleOutcome::Lost);
        }
        let none =
            if held.is_empty() { Some(nothing(&queue, &partition, session.output).await) } else { None };
        drop(held);
        queue.close().await?;
        written?;
        match (none, lost) {
            (Some(nothing), _) => Err(nothing),
            (None, 0) => Ok(()),
            (None, lost) => Err(Failure::Failed(format!(
                "{lost} leases were lost before their messages were settled: other consumers get them"
            ))),
        }
    }

    fn status(&self) -> Result<QueueMessageStatus> {
        let only = |option: &str, status: &str| Failure::Usage(format!("{option} needs --settle {status}"));
        if self.delay.is_some() && self.settle != Status::Postponed {
            return Err(only("--delay", "postponed"));
        }
        if self.reason.is_some() && self.settle != Status::Poisonous {
            return Err(only("--reason", "poisonous"));
        }
        Ok(match self.settle {
            Status::Processed => QueueMessageStatus::Processed,
            Status::Waiting => QueueMessageStatus::Waiting,
            Status::Failed => QueueMessageStatus::Failed,
            Status::Postponed => QueueMessageStatus::postponed(self.delay.unwrap_or_default()),
            Status::Cancelled => QueueMessageStatus::Cancelled,
            Status::Poisonous => {
                QueueMessageStatus::poisonous(self.reason.as_deref().unwrap_or("by anyqueue pull"))
            }
        })
    }
}

fn write(output: Output, handler: &Delivery) -> Result {
    if !output.json {
        return output.bytes(handler.payload());
    }
    let mut line = Line::of(handler.message()).aged(handler.age());
    line.queue = Some(handler.partition().name().to_owned());
    line.deliveries = handler.delivery_count();
    output.object(&line)
}
