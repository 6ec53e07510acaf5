//! `anyqueue workers`: the registered workers, and the orders that they are given.

mod list;
mod nodes;

use anyqueue::MessageId;
use anyqueue_control::registry::{Order, Registry};
use clap::{Args, Subcommand};
use serde_json::json;

use super::control::ControlArgs;
use crate::failure::{Failure, Result, or_read_enough};
use crate::open::Create;
use crate::output::Output;
use crate::session::Session;

/// Lists the workers that `anyqueue work` and applications have registered, and gives them orders
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue workers list
  anyqueue workers quiet host-4711
  anyqueue workers list --lost --json

A worker sends a beat every 5 s, and receives its orders then. One that is silent for 15 s is considered dead: the next
worker, or `list`, says what it held. Its messages come back when their leases end.

For RabbitMQ and SQS, --control-url says where workers are registered.")]
pub(crate) struct Workers {
    #[command(flatten)]
    control: ControlArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(list::Show),
    /// Lets a worker finish what it has, and take on nothing new
    #[command(after_help = "Example: anyqueue workers quiet host-4711")]
    Quiet(Named),
    /// Lets a quiet worker take on messages again
    #[command(after_help = "Example: anyqueue workers resume host-4711")]
    Resume(Named),
    /// Shuts a worker down
    #[command(after_help = "Example: anyqueue workers stop host-4711")]
    Stop(Named),
    /// Shuts a worker down, so that whoever started it starts it again
    #[command(after_help = "Example: anyqueue workers recycle host-4711")]
    Recycle(Named),
    Cancel(Cancel),
    /// Removes the entry of a worker; one that is alive comes back with its next beat
    #[command(after_help = "Example: anyqueue workers forget host-4711")]
    Forget(Named),
    /// Lists the machines that are kept for one application
    #[command(after_help = "Example: anyqueue workers nodes")]
    Nodes,
    Dedicate(nodes::Dedicate),
    Release(nodes::Release),
}

#[derive(Args)]
struct Named {
    /// The name of the worker
    #[arg(value_name = "WORKER")]
    name: String,
}

/// Asks a worker to stop a message that it runs
#[derive(Args)]
#[command(after_help = "Example: anyqueue workers cancel host-4711 0197a3c4-5f2e-7c1a-9d8b-000000000001")]
struct Cancel {
    /// The name of the worker
    #[arg(value_name = "WORKER")]
    name: String,
    /// The id of the message
    id: MessageId,
}

impl Workers {
    pub(crate) async fn run(self, session: &Session) -> Result {
        // A machine can be dedicated before any worker runs.
        let create =
            if matches!(self.command, Command::Dedicate(_)) { Create::AsUrlSays } else { Create::Never };
        let queue = session.queue(create).await?;
        let control = self.control.open(&queue, create).await?;
        let registry = Registry::new(control.store.clone());
        let end = self.command.run(&registry, session.output).await;
        let (let_go, closed) = (control.close().await, queue.close().await);
        end?;
        let_go?;
        Ok(closed?)
    }
}

impl Command {
    async fn run(self, registry: &Registry, output: Output) -> Result {
        match self {
            Self::List(command) => or_read_enough(command.run(registry, output).await),
            Self::Show(command) => or_read_enough(command.run(registry, output).await),
            Self::Quiet(named) => named.order(registry, Order::Quiet, "quiet", output).await,
            Self::Resume(named) => named.order(registry, Order::Resume, "resume", output).await,
            Self::Stop(named) => named.order(registry, Order::Stop, "stop", output).await,
            Self::Recycle(named) => named.order(registry, Order::Recycle, "recycle", output).await,
            Self::Cancel(Cancel { name, id }) => {
                let was_told = registry.cancel(&name, id).await?;
                told(&name, "cancel", was_told, output)
            }
            Self::Forget(Named { name }) => {
                let was_there = registry.forget(&name).await?;
                told(&name, "forget", was_there, output)
            }
            Self::Nodes => or_read_enough(nodes::list(registry, output).await),
            Self::Dedicate(command) => command.run(registry, output).await,
            Self::Release(command) => command.run(registry, output).await,
        }
    }
}

impl Named {
    async fn order(self, registry: &Registry, order: Order, word: &str, output: Output) -> Result {
        let was_told = registry.order(&self.name, order).await?;
        told(&self.name, word, was_told, output)
    }
}

fn told(name: &str, word: &str, was_told: bool, output: Output) -> Result {
    if !was_told {
        output.note(&format!("there is no worker {name}: see `anyqueue workers list`"));
        return Err(Failure::Nothing);
    }
    output.result(&format!("{word} {name}"), &json!({ "worker": name, "told": word }))
}
