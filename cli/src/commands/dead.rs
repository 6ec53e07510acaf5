//! `anyqueue dead`: what has died, and what becomes of it.

use std::time::{Duration, SystemTime};

use anyqueue::{DeadLetter, MAX_PAGE, MessageData, MessageId, PartitionId, Queue};
use clap::{Args, Subcommand};
use serde_json::json;

use super::peek::find;
use crate::args::{Session, pair, queue_name};
use crate::failure::{Failure, Result};
use crate::line::Line;
use crate::open::Create;
use crate::output::{Output, Table, duration, preview};

/// Lists, shows, puts back or deletes dead letters
#[derive(Subcommand)]
pub(crate) enum Dead {
    List(List),
    Show(Show),
    Redrive(Redrive),
    Purge(Purge),
}

impl Dead {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let output = session.output;
        let end = match self {
            Self::List(command) => command.run(&queue, output).await,
            Self::Show(command) => command.run(&queue, output).await,
            Self::Redrive(command) => command.run(&queue, output).await,
            Self::Purge(command) => command.run(&queue, output).await,
        };
        queue.close().await?;
        end
    }
}

/// Which dead letters are meant: all conditions must hold.
#[derive(Args, Clone)]
struct Filter {
    /// Only with this text in the reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only with this id; can be given several times
    #[arg(long, value_name = "ID")]
    id: Vec<MessageId>,
    /// Only with this header; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// Only those that died this long ago or earlier
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        self.reason.is_none() && self.id.is_empty() && self.header.is_empty() && self.older_than.is_none()
    }

    fn accepts(&self, message: &MessageData) -> bool {
        let letter = DeadLetter::from(message.clone());
        let old = |least| {
            let died = letter.died_at.and_then(|at| SystemTime::now().duration_since(at).ok());
            died.is_some_and(|ago| ago >= least)
        };
        self.reason.as_ref().is_none_or(|part| letter.reason.as_ref().is_some_and(|text| text.contains(part)))
            && (self.id.is_empty() || self.id.contains(&message.id()))
            && self.header.iter().all(|(name, value)| message.headers().get(name) == Some(value))
            && self.older_than.is_none_or(old)
    }
}

/// Lists dead letters
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue dead list mail
  anyqueue dead list mail --reason timed_out --older-than 1d --json
Exit code 4: there was none.")]
pub(crate) struct List {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// At most this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    max: usize,
}

impl List {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let mut table = Table::new(&["id", "died", "deliveries", "reason", "payload"]);
        let mut shown = 0;
        let mut show = |letter: &DeadLetter| {
            shown += 1;
            if output.json {
                return output.object(&line(letter, &self.queue)).map(|()| shown < self.max);
            }
            let ago = letter.died_at.and_then(|at| SystemTime::now().duration_since(at).ok());
            table.row([
                letter.message.id().to_string(),
                ago.map_or_else(|| "?".to_owned(), |ago| format!("{} ago", duration(ago))),
                letter.deliveries.map_or_else(|| "?".to_owned(), |count| count.to_string()),
                preview(letter.reason.as_deref().unwrap_or("?").as_bytes(), 50),
                preview(letter.message.payload(), 30),
            ]);
            Ok(shown < self.max)
        };
        if self.max > 0 {
            each(queue, &self.queue, &self.filter, &mut show).await?;
        }
        match shown {
            0 => Err(Failure::Nothing),
            _ if output.json => Ok(()),
            _ => table.print(output),
        }
    }
}

/// Shows one dead letter with all that is known of it
#[derive(Args)]
#[command(after_help = "\
Example: anyqueue dead show mail 0197a3c4-5f2e-7c1a-9d8b-000000000001
Exit code 4: there is none with this id.")]
pub(crate) struct Show {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The message's id
    id: MessageId,
}

impl Show {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let found = find(queue, &self.queue.dead_letters(), self.id).await?.ok_or(Failure::Nothing)?;
        let letter = DeadLetter::from(found.message);
        if output.json {
            return output.object(&line(&letter, &self.queue));
        }
        let mut table = Table::new(&["", ""]);
        let mut fact = |name: &str, value: String| table.row([name.to_owned(), value]);
        fact("id", letter.message.id().to_string());
        fact("reason", letter.reason.clone().unwrap_or_default());
        let died = letter.died_at.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        fact("died", died.unwrap_or_else(|| "?".to_owned()));
        fact("deliveries", letter.deliveries.map_or_else(|| "?".to_owned(), |count| count.to_string()));
        for (name, value) in letter.message.headers() {
            fact(&format!("header {name}"), value.clone());
        }
        for failure in anyqueue_worker::history(letter.message.headers()) {
            let how = format!("{} at {}: {}", failure.kind.as_str(), failure.at, failure.error);
            fact(&format!("attempt {}", failure.attempt), how);
        }
        fact("bytes", letter.message.payload().len().to_string());
        table.print(output)?;
        output.bytes(letter.message.payload())
    }
}

/// Puts dead letters back, to be tried anew
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue dead redrive mail --dry-run
  anyqueue dead redrive mail --reason 'connection refused' --limit 100
  anyqueue dead redrive mail --to mail-retries

Each is moved on its own. An interrupted redrive can be repeated.")]
pub(crate) struct Redrive {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Into another queue than the one they died in
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    to: Option<PartitionId>,
    /// Only says how many it would be
    #[arg(long)]
    dry_run: bool,
}

impl Redrive {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.dry_run {
            let would = counted(queue, &self.queue, &self.filter, limit).await?;
            return output.result(&format!("would put back {would}"), &json!({ "would_move": would }));
        }
        let bar = output.progress("looked at", None);
        let seen = bar.clone();
        let filter = self.filter.clone();
        let mut redrive = queue.dead_letters(&self.queue)?.redrive().limit(limit).filter(move |message| {
            seen.inc(1);
            filter.accepts(message)
        });
        if let Some(to) = &self.to {
            redrive = redrive.to(to);
        }
        let done = redrive.await;
        bar.finish_and_clear();
        let done = done?;
        let more = if done.more { "; there may be more" } else { "" };
        output.result(
            &format!("put back {} of {} looked at{more}", done.moved, done.scanned),
            &json!({ "moved": done.moved, "scanned": done.scanned, "more": done.more }),
        )
    }
}

/// Deletes dead letters for ever
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue dead purge mail --older-than 30d --dry-run
  anyqueue dead purge mail --older-than 30d --yes
  anyqueue dead purge mail --yes")]
pub(crate) struct Purge {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// Really does it
    #[arg(long)]
    yes: bool,
    /// Only says how many it would be
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Purge {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        if self.dry_run {
            let would = counted(queue, &self.queue, &self.filter, usize::MAX).await?;
            return output.result(&format!("would delete {would}"), &json!({ "would_delete": would }));
        }
        if !self.yes {
            let text = "this deletes dead letters for ever: see what with --dry-run, then add --yes";
            return Err(Failure::Usage(text.to_owned()));
        }
        let deleted = if self.filter.is_empty() {
            queue.dead_letters(&self.queue)?.purge().await?
        } else {
            let dead = self.queue.dead_letters();
            queue.delete_where(&dead, None, u64::MAX, |b| self.filter.accepts(&b.message)).await?.deleted
        };
        output.result(&format!("deleted {deleted}"), &json!({ "deleted": deleted }))
    }
}

async fn counted(queue: &Queue, name: &PartitionId, filter: &Filter, limit: usize) -> Result<usize> {
    let mut count = 0;
    let mut tally = |_: &DeadLetter| {
        count += 1;
        Ok(count < limit)
    };
    if limit > 0 {
        each(queue, name, filter, &mut tally).await?;
    }
    Ok(count)
}

/// Shows the filter's dead letters to `look` until it has seen enough. Where the backend cannot browse, only the first page is seen.
async fn each(
    queue: &Queue,
    name: &PartitionId,
    filter: &Filter,
    look: &mut impl FnMut(&DeadLetter) -> Result<bool>,
) -> Result {
    let dead = queue.dead_letters(name)?;
    let mut after = None;
    loop {
        let page = dead.list(after, MAX_PAGE).await?;
        for letter in page.iter().filter(|letter| filter.accepts(&letter.message)) {
            if !look(letter)? {
                return Ok(());
            }
        }
        after = page.last().map(|letter| letter.message.id());
        if page.len() < MAX_PAGE {
            return Ok(());
        }
        if !queue.capabilities().inspect.browse {
            let text =
                format!("only the first {MAX_PAGE} dead letters were looked at: this backend cannot browse");
            return Err(Failure::Failed(text));
        }
    }
}

fn line(letter: &DeadLetter, queue: &PartitionId) -> Line {
    let mut line = Line::of(&letter.message);
    line.queue = Some(queue.name().to_owned());
    line.deliveries = letter.deliveries;
    line.dead_reason.clone_from(&letter.reason);
    line.died_at = letter.died_at.map(|at| humantime::format_rfc3339_millis(at).to_string());
    line
}
