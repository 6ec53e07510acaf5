//! `anyqueue move`: a queue from one backend to another.

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

Each message is copied, the copy confirmed by the target, and only then removed from the source. Interrupted
at any moment, also by kill -9, it is resumed by running it again: what was copied and not yet removed is
recognised by its id where the target's ids are unique, unless it was already worked there, and is doubled
elsewhere. Each run accounts for itself: that of one that was killed is not known. What a killed move held comes
back within some seconds; --wait waits for it. Producers and consumers may go on, on both sides: point the
producers to the new place first, then the consumers, then move what is left.

  kept     id, payload, headers, task and session, priority and order within it, group, deduplication key,
           delay and time to live (what is left of them), max_retries, max_duration, the worker's attempts and errors
  not kept the age and the delivery count, which begin anew; the pause of a queue
  delayed  messages are moved where the source can be browsed; what falls due within two seconds, and all on
           brokers, is left until it does: give --wait, or run it again then
  expired  messages become dead letters of the source

What the target refuses (it has fewer priorities, no groups, a smaller limit) stays at the source and is told;
--without drops such a thing. Before a move within one kind of backend, a message in the queue anyqueue-move shows
whether both URLs lead to one place, which is refused.

Exit code 0: nothing is left, and the source may go. 1: something is, also what consumers hold there or what is delayed:
run it again once they have ended. It is 1 too where the source cannot tell (RabbitMQ, SQS), unless --accept-unknown says
that nothing is delayed or held there.

With producers and consumers at work a move that is killed doubles up to --batch messages where they are worked at the target
before it is run again: their ids are no longer there to be recognised. Interrupt it instead, which doubles nothing.";

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
    /// The queues; all of the source's unless named
    #[arg(value_name = "QUEUE", value_parser = queue_name)]
    queues: Vec<PartitionId>,
    /// The name at the target, for one queue
    #[arg(long = "as", value_name = "NAME", value_parser = queue_name)]
    rename: Option<PartitionId>,
    /// Moves the dead letters too
    #[arg(long)]
    dead: bool,
    /// How long to wait for more once the queue is empty: for what falls due, comes back, or is still pushed
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Moves messages without what the target may not have
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    without: Vec<Without>,
    /// Messages copied at once; they are held in memory, so let it be fewer where they are large
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Ends with 0 also where the source cannot tell whether delayed or held messages are left
    #[arg(long)]
    accept_unknown: bool,
    /// Only says what there is, and what the target could not keep; the target is made if it is missing
    #[arg(long)]
    dry_run: bool,
}

impl Move {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let output = session.output;
        let source = source(&self.from).await?;
        let target = open::queue(&self.to, Create::AsTold).await?;
        let routes = self.routes(&source).await?;
        let keeps_a_name = routes.iter().any(|route| route.from == route.to);
        if !self.dry_run && keeps_a_name && place::is_one_place(&source, &target).await? {
            return Err(same_place());
        }
        for notice in notices(source.capabilities(), target.capabilities()) {
            output.note(&notice);
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
            return Err(Failure::Failed("interrupted: run it again to go on".to_owned()));
        }
        let text = match (complete, known) {
            (true, true) => return Ok(()),
            (true, false) => {
                "the source cannot tell whether delayed messages are left there, or such that consumers hold: run it again when \
                 the longest delay is over and no consumer is left; with --accept-unknown it ends with 0 then"
            }
            (false, _) => "not everything could be moved; what is left is at the source",
        };
        Err(Failure::Failed(text.to_owned()))
    }

    async fn routes(&self, source: &Queue) -> Result<Vec<Route>> {
        let names = if self.queues.is_empty() { all(source).await? } else { self.queues.clone() };
        if self.rename.is_some() && names.len() != 1 {
            return Err(Failure::Usage("--as is for one queue: name it".to_owned()));
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
    let text = "source and target are the same place: another one, or another name with --as, is needed";
    Failure::Usage(text.to_owned())
}

/// The source: a move decides about nothing but the place, so it gives up on no message, and removes none that has expired.
async fn source(url: &str) -> Result<Queue> {
    let storage = open::storage(url, Create::Never).await?;
    let options = PartitionOptions::default().with_max_deliveries(None).with_expired(Expired::DeadLetter);
    let lease = run::LEASE.clamp(storage.capabilities().lease.min, storage.capabilities().lease.max);
    let queue = Queue::builder(storage).defaults(options.with_lease(lease)).build()?;
    queue.init().await?;
    Ok(queue)
}

/// What the target does not have and the source has.
fn notices(source: &Capabilities, target: &Capabilities) -> Vec<String> {
    let mut notices = Vec::new();
    let mut missing = |is: bool, text: &str| notices.extend(is.then(|| format!("the target has {text}")));
    missing(
        target.priority_levels < source.priority_levels,
        "fewer priorities: messages of higher ones stay, unless --without priority",
    );
    missing(source.groups && !target.groups, "no groups: messages of groups stay, unless --without group");
    let keys = |dedup| dedup != Dedup::None;
    missing(
        keys(source.dedup) && !keys(target.dedup),
        "no deduplication: messages with a key stay, unless --without dedup-key",
    );
    missing(!target.unique_ids, "no unique ids: messages are doubled if this is interrupted");
    missing(
        target.limits.message_bytes < source.limits.message_bytes,
        "a smaller limit: larger messages stay",
    );
    notices
}
