//! `anyqueue limits`: how many tasks run at once, and how fast they start, in all workers together.

mod list;
mod none;
mod put;

use anyqueue_control::limits::Limits as Store;
use clap::{Args, Subcommand};
use serde_json::json;

use super::control::ControlArgs;
use crate::failure::{Result, or_read_enough};
use crate::open::Create;
use crate::output::Output;
use crate::session::Session;
use none::none;

/// Limits how many messages all workers together process at once, and how fast they start
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue limits put smtp --queue mail --cap 5
  anyqueue limits put api --queue calls --rate 10/s --burst 20
  anyqueue limits put fair --each customer --cap 3
  anyqueue limits list
  anyqueue limits show smtp
  anyqueue limits delete smtp

`anyqueue work` obeys the limits of its queues within 5 s after they are set. Applications obey them if they ask for it. The
permits of a killed worker end after 15 s; a worker that cannot reach the limits stops what it runs before its permits end.
Lowering a cap interrupts nothing: nothing starts until enough messages have ended.

For RabbitMQ and SQS, --control-url says where limits are kept.")]
pub(crate) struct Limits {
    #[command(flatten)]
    control: ControlArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(list::Show),
    Put(put::Put),
    /// Deletes a limit
    #[command(after_help = "Example: anyqueue limits delete smtp")]
    Delete(Named),
}

#[derive(Args)]
struct Named {
    /// The name of the limit
    #[arg(value_name = "LIMIT")]
    name: String,
}

impl Limits {
    pub(crate) async fn run(self, session: &Session) -> Result {
        // As for a push: a limit can be set before there is anything to limit.
        let create = if matches!(self.command, Command::Put(_)) { Create::AsUrlSays } else { Create::Never };
        let queue = session.queue(create).await?;
        let control = self.control.open(&queue, create).await?;
        let limits = Store::new(control.store.clone());
        let end = self.command.run(&limits, session.output).await;
        let (let_go, closed) = (control.close().await, queue.close().await);
        end?;
        let_go?;
        Ok(closed?)
    }
}

impl Command {
    async fn run(self, limits: &Store, output: Output) -> Result {
        match self {
            Self::List(command) => or_read_enough(command.run(limits, output).await),
            Self::Show(command) => or_read_enough(command.run(limits, output).await),
            Self::Put(command) => command.run(limits, output).await,
            Self::Delete(Named { name }) => {
                if !limits.delete(&name).await? {
                    return Err(none(&name, output));
                }
                output.result(&format!("deleted {name}"), &json!({ "limit": name, "deleted": true }))
            }
        }
    }
}
