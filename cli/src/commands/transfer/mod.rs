//! `anyqueue move`: moves queues from one backend to another.

mod account;
mod copies;
mod delayed;
mod place;
mod route;
mod run;

use std::time::Duration;

use anyqueue::adapter::{Capabilities, Dedup};
use anyqueue::{Expired, PartitionId, PartitionOptions, Queue};
use clap::Args;

use super::stats::all;
use crate::failure::{Failure, Result};
use crate::open::{self, Create};
use crate::session::{Session, queue_name, url_argument};
use crate::signals::stop_on_signal;
use account::Account;
use copies::Without;
pub(crate) use place::PROBE;
use route::Route;
use run::Transfer;

const HELP: &str = "\
Examples:
  anyqueue move sqlite:jobs.db postgres://app@host/db mail
  anyqueue move sqlite:jobs.db redis://host/ mail thumbnails --dead --wait 10m
  anyqueue move amqp://old/ amqp://new/ mail --as mail-2

Each message is copied, the target confirms the copy, and only then is it removed from the source. A move that was
interrupted, even by kill -9, resumes when it is run again: where the target keeps ids unique, what was copied and not yet
removed is recognised by its id. Elsewhere, and if it was already processed at the target, it is there twice. Producers
and consumers can keep running on both sides: switch the producers to the target first, then the consumers, then move
what is left.

  kept      id, payload, headers, task and session, priority and the order within it, group, deduplication key,
            what is left of delay and time to live, max_retries, max_duration, the worker's attempts and errors
  not kept  the age and the delivery count, which start anew; the pause of a queue
  delayed   messages are moved if the source can be browsed. Those due within two seconds, and all on RabbitMQ and SQS,
            stay until they are due: give --wait, or run it again then
  expired   messages become dead letters of the source

A message that the target refuses (fewer priorities, no groups, a smaller limit) is reported and stays at the source;
--without drops what it refuses. Between two backends of one kind, a message in the queue anyqueue-move first shows
whether both URLs lead to the same place; such a move is refused.

Exit code 0: nothing is left at the source. 1: something is, or it is delayed or held by a consumer: run it again later.
RabbitMQ and SQS cannot tell whether anything is delayed or held: there it is 1 too, unless --accept-unknown is given.

Each run reports its own counts; those of a killed run are lost, but --json writes progress to standard error meanwhile.
What a killed move held comes back within some seconds; --wait waits for it. If consumers of the target process messages
before a killed move is run again, up to --batch messages are there twice, as their ids are gone: they are among those
that the account calls delivered before. Ctrl-C doubles none.";

/// Moves queues from one backend to another
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Move {
    /// The URL of the source, or env:NAME
    #[arg(value_parser = url_argument)]
    from: String,
    /// The URL of the target, or env:NAME
    #[arg(value_parser = url_argument)]
    to: String,
    /// The queues; all of the source by default
    #[arg(value_name = "QUEUE", value_parser = queue_name)]
    queues: Vec<PartitionId>,
    /// The name at the target, if one queue is moved
    #[arg(long = "as", value_name = "NAME", value_parser = queue_name)]
    rename: Option<PartitionId>,
    /// Moves the dead letters too
    #[arg(long)]
    dead: bool,
    /// How long to wait for more messages once the queue is empty
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Drops what the target may not have
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    without: Vec<Without>,
    /// How many messages are copied at once; they are held in memory, so use fewer if they are large
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Succeeds even if the source cannot tell whether delayed or held messages are left
    #[arg(long)]
    accept_unknown: bool,
    /// Only shows what is there and what the target could not keep; still creates the target if it is missing
    #[arg(long)]
    dry_run: bool,
}

impl Move {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let output = session.output;
        let source = source(&self.from).await?;
        let target = open::queue(&self.to, Create::AsUrlSays).await?;
        let routes = self.routes(&source).await?;
        let keeps_a_name = routes.iter().any(|route| route.from == route.to);
        if !self.dry_run && keeps_a_name && place::is_one_place(&source, &target).await? {
            return Err(same_place());
        }
        for limitation in limitations(source.capabilities(), target.capabilities()) {
            output.note(&limitation);
        }
        let stop = stop_on_signal();
        let (mut complete, mut known) = (true, true);
        let mut end = Ok(());
        for route in routes {
            let mut account = Account::new(&route);
            let transfer = Transfer {
                source: &source,
                target: &target,
                without: &self.without,
                batch: self.batch.into(),
                wait: self.wait,
                output,
                stop: stop.clone(),
            };
            if !self.dry_run {
                end = transfer.run(&route, &mut account).await;
            }
            account.count_left(&source, &route).await;
            account.show(output)?;
            complete &= self.dry_run || account.is_complete(&source);
            known &= self.dry_run || self.accept_unknown || account.is_known();
            if end.is_err() || *stop.borrow() {
                break;
            }
        }
        let _ = (source.close().await, target.close().await);
        end?;
        if *stop.borrow() {
            return Err(Failure::Failed("interrupted: run it again to resume".to_owned()));
        }
        let text = match (complete, known) {
            (true, true) => return Ok(()),
            (true, false) => {
                "the source cannot tell whether delayed messages are left there, or messages that consumers hold: run it again \
                 after the longest delay and without consumers; with --accept-unknown it then ends with 0"
            }
            (false, _) => "not everything was moved; the rest is at the source",
        };
        Err(Failure::Failed(text.to_owned()))
    }

    async fn routes(&self, source: &Queue) -> Result<Vec<Route>> {
        let names = if self.queues.is_empty() { all(source).await? } else { self.queues.clone() };
        if self.rename.is_some() && names.len() != 1 {
            return Err(Failure::Usage("--as is for a single queue: name it".to_owned()));
        }
        if self.from == self.to && self.rename.as_ref().is_none_or(|name| names.contains(name)) {
            return Err(same_place());
        }
        let mut routes = Vec::new();
        for from in names {
            let to = self.rename.clone().unwrap_or_else(|| from.clone());
            let dead = self.dead.then(|| Route { from: from.dead_letters(), to: to.dead_letters() });
            routes.push(Route { from, to });
            routes.extend(dead);
        }
        Ok(routes)
    }
}

fn same_place() -> Failure {
    let text = "source and target are the same place: give another one, or another name with --as";
    Failure::Usage(text.to_owned())
}

/// Opens the source. A move only changes the place: it kills no message for too many deliveries, and removes
/// none that has expired.
async fn source(url: &str) -> Result<Queue> {
    let storage = open::storage(url, Create::Never).await?;
    let options = PartitionOptions::default().with_max_deliveries(None).with_expired(Expired::DeadLetter);
    let lease = run::LEASE.clamp(storage.capabilities().lease.min, storage.capabilities().lease.max);
    let queue = Queue::builder(storage).defaults(options.with_lease(lease)).build()?;
    queue.init().await?;
    Ok(queue)
}

/// What the source offers and the target does not.
fn limitations(source: &Capabilities, target: &Capabilities) -> Vec<String> {
    let mut limitations = Vec::new();
    let mut missing = |is: bool, text: &str| limitations.extend(is.then(|| format!("the target has {text}")));
    missing(
        target.priority_levels < source.priority_levels,
        "fewer priorities: messages with higher ones stay, unless --without priority",
    );
    missing(source.groups && !target.groups, "no groups: messages in groups stay, unless --without group");
    missing(
        source.dedup != Dedup::None && target.dedup != Dedup::WhileLive,
        "no deduplication while a message lives: messages with a key stay, unless --without dedup-key",
    );
    missing(!target.unique_ids, "no unique ids: if the move is killed, messages can be there twice");
    missing(
        target.limits.message_bytes < source.limits.message_bytes,
        "a smaller limit: larger messages stay",
    );
    limitations
}
