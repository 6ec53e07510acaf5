//! `anyqueue amend`, `disable` and `enable`: changes waiting messages.

use std::time::Duration;

use anyqueue::{
    Amend as Change, AmendOutcome, Error, ErrorKind, MessageId, PartitionId, Queue, Result as QueueResult,
};
use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Result, with_causes};
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};

/// Changes waiting messages: their priority, due time or group
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue amend mail 019a2f6e-8c1b-7d3e-9f00-0123456789ab --priority 9
  anyqueue amend mail $ID --due now
  anyqueue amend mail $ID --due 2h --group nightly
  anyqueue peek mail --json | jq -r .id | xargs anyqueue amend mail --priority 0

Messages that are being processed, and dead letters, stay as they are: the command names them and exits with 1.
RabbitMQ and SQS cannot change waiting messages.")]
pub(crate) struct Amend {
    #[command(flatten)]
    messages: Messages,
    #[command(flatten)]
    change: Changes,
}

/// At least one of them.
#[derive(Args)]
#[group(id = "change", required = true, multiple = true)]
struct Changes {
    /// The new priority, higher is more urgent
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// When they are due: `now`, or how long from now, such as 30s or 2h
    #[arg(long, value_name = "TIME", value_parser = due)]
    due: Option<Duration>,
    /// The group that they join, at the end
    #[arg(long, value_name = "NAME", conflicts_with = "no_group")]
    group: Option<String>,
    /// Takes them out of their groups
    #[arg(long)]
    no_group: bool,
}

/// Sets messages aside: nobody gets them until they are enabled
#[derive(Args)]
#[command(after_help = "\
Example: anyqueue disable mail 019a2f6e-8c1b-7d3e-9f00-0123456789ab

They keep their deduplication keys, and later members of their groups overtake them. `anyqueue stats` counts them
separately.")]
pub(crate) struct Disable {
    #[command(flatten)]
    messages: Messages,
}

/// Lets disabled messages be delivered again, in their old places
#[derive(Args)]
#[command(after_help = "Example: anyqueue enable mail 019a2f6e-8c1b-7d3e-9f00-0123456789ab")]
pub(crate) struct Enable {
    #[command(flatten)]
    messages: Messages,
}

#[derive(Args)]
struct Messages {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The ids of the messages, as push prints them and peek shows them
    #[arg(value_name = "ID", required = true, value_parser = id)]
    ids: Vec<MessageId>,
}

fn id(text: &str) -> std::result::Result<MessageId, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

fn due(text: &str) -> std::result::Result<Duration, String> {
    if text == "now" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; or write now"))
}

impl Amend {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let Changes { priority, due, group, no_group } = self.change;
        let mut change = Change::new();
        change.priority = priority;
        if let Some(due) = due {
            change = change.due_in(due);
        }
        if let Some(group) = group {
            change = change.with_group(group);
        }
        if no_group {
            change = change.without_group();
        }
        self.messages.amend(session, change, "amended").await
    }
}

impl Disable {
    pub(crate) async fn run(self, session: &Session) -> Result {
        self.messages.amend(session, Change::new().disable(), "disabled").await
    }
}

impl Enable {
    pub(crate) async fn run(self, session: &Session) -> Result {
        self.messages.amend(session, Change::new().enable(), "enabled").await
    }
}

impl Messages {
    async fn amend(&self, session: &Session, change: Change, done: &str) -> Result {
        let queue = session.queue(Create::Never).await?;
        let end = self.amend_in(&queue, change, done, session.output).await;
        queue.close().await?;
        end
    }

    async fn amend_in(&self, queue: &Queue, change: Change, done: &str, output: Output) -> Result {
        let outcomes = queue.amend(&self.queue, &self.ids, change).await?;
        let (mut amended, mut unknown) = (0, 0);
        for (id, outcome) in self.ids.iter().zip(outcomes) {
            amended += usize::from(matches!(outcome, Ok(AmendOutcome::Amended)));
            unknown += usize::from(matches!(outcome, Ok(AmendOutcome::NotFound)));
            let (word, text) = told(&outcome, done);
            output.result(
                &format!("{id} {text}"),
                &json!({ "queue": self.queue.name(), "id": id.to_string(), "outcome": word }),
            )?;
        }
        match self.ids.len() {
            all if amended == all => Ok(()),
            all if unknown == all => Err(Failure::Nothing),
            all => Err(Failure::Failed(format!("{} of {all} messages were not {done}", all - amended))),
        }
    }
}

/// The outcome: a word for programs, and a text for people.
fn told(outcome: &QueueResult<AmendOutcome>, done: &str) -> (&'static str, String) {
    match outcome {
        Ok(AmendOutcome::Amended) => ("amended", done.to_owned()),
        Ok(AmendOutcome::Leased) => ("leased", "is being processed: left as it is".to_owned()),
        Ok(AmendOutcome::Dead) => ("dead", "is a dead letter: see `anyqueue dead redrive`".to_owned()),
        Ok(AmendOutcome::NotFound) => ("not_found", "was not found".to_owned()),
        Err(error) if error.kind() == ErrorKind::Corrupt => ("corrupt", with_causes(error)),
        Err(error) => ("failed", with_causes(error)),
    }
}
