//! `anyqueue cron`: what is pushed, and when.

mod beside;
mod line;
mod list;
mod preview;
mod put;

use anyqueue::PushOutcome;
use anyqueue_control::cron::Scheduler;
use clap::{Args, Subcommand};
use serde_json::json;

pub(crate) use beside::with_schedules;

use super::control::ControlArgs;
use crate::failure::{Failure, Result, or_read_enough};
use crate::open::Create;
use crate::output::{Output, preview as shown};
use crate::session::Session;

/// Manages schedules, which push messages while an `anyqueue work --cron` runs
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue cron put report '0 7 * * MON-FRI' --zone Europe/Berlin --queue reports
  anyqueue work reports --exec ./report --cron
  anyqueue cron list
  anyqueue cron preview '30 2 * * *' --zone Europe/Berlin

Any number of workers may run with --cron: each time is run by one of them.

For RabbitMQ and SQS, --control-url says where schedules are kept.")]
pub(crate) struct Cron {
    #[command(flatten)]
    control: ControlArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Put(put::Put),
    /// Deletes a schedule; what it has pushed stays
    #[command(after_help = "Example: anyqueue cron delete report")]
    Delete(Named),
    /// Pauses a schedule: its times pass without a message
    #[command(after_help = "Example: anyqueue cron pause report")]
    Pause(Named),
    /// Resumes a paused schedule, from its next time on
    #[command(after_help = "Example: anyqueue cron resume report")]
    Resume(Named),
    /// Pushes the message of a schedule now, in addition to its times
    #[command(after_help = "Example: anyqueue cron run report")]
    Run(Named),
    Preview(preview::Preview),
}

#[derive(Args)]
struct Named {
    /// The name of the schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,
}

impl Cron {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let command = match self.command {
            // A preview needs no queue.
            Command::Preview(preview) => return or_read_enough(preview.run(session.output)),
            command => command,
        };
        let create = if matches!(command, Command::Put(_)) { Create::AsUrlSays } else { Create::Never };
        let queue = session.queue(create).await?;
        let control = self.control.open(&queue, create).await?;
        let end = match control.scheduler(&queue) {
            Ok(scheduler) => command.run(&scheduler, session.output).await,
            Err(error) => Err(error.into()),
        };
        let (let_go, closed) = (control.close().await, queue.close().await);
        end?;
        let_go?;
        Ok(closed?)
    }
}

impl Command {
    async fn run(self, scheduler: &Scheduler, output: Output) -> Result {
        match self {
            Self::List(command) => or_read_enough(command.run(scheduler, output).await),
            Self::Put(command) => command.run(scheduler, output).await,
            Self::Delete(Named { name }) => done(&name, "deleted", scheduler.delete(&name).await?, output),
            Self::Pause(Named { name }) => done(&name, "paused", scheduler.pause(&name).await?, output),
            Self::Resume(Named { name }) => done(&name, "resumed", scheduler.resume(&name).await?, output),
            Self::Run(Named { name }) => run_now(scheduler, &name, output).await,
            Self::Preview(command) => command.run(output),
        }
    }
}

async fn run_now(scheduler: &Scheduler, name: &str, output: Output) -> Result {
    let (outcome, id) = match scheduler.run_now(name).await? {
        None => return Err(unknown(name, output)),
        Some(PushOutcome::Stored(id)) => ("stored", Some(id)),
        Some(PushOutcome::Duplicate(id)) => ("duplicate", id),
        Some(PushOutcome::Replaced(id)) => ("replaced", Some(id)),
    };
    if outcome == "duplicate" {
        output.note("an earlier message of this schedule is still there");
    }
    let text = id.map_or_else(String::new, |id| format!(" {id}"));
    output.result(
        &format!("{outcome}{text}"),
        &json!({ "schedule": name, "outcome": outcome, "id": id.map(|id| id.to_string()) }),
    )
}

fn done(name: &str, what: &str, was_there: bool, output: Output) -> Result {
    if !was_there {
        return Err(unknown(name, output));
    }
    output.result(
        &format!("{what} {}", shown(name.as_bytes(), 256)),
        &json!({ "schedule": name, "done": what }),
    )
}

fn unknown(name: &str, output: Output) -> Failure {
    let name = shown(name.as_bytes(), 256);
    output.note(&format!("there is no schedule {name}: see `anyqueue cron list`"));
    Failure::Nothing
}
