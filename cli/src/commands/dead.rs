//! `anyqueue dead`: lists, shows, redrives and purges dead letters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyqueue::{
    DeadLetter, MAX_PAGE, MessageData, MessageId, Page, PartitionId, Queue, QueueMessageStatus, Redriven,
    SettleOutcome,
};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::json;

use super::peek::find;
use crate::failure::{Failure, Result, or_read_enough};
use crate::line::Line;
use crate::open::Create;
use crate::output::{Output, Table, duration, preview};
use crate::session::{Session, pair, queue_name};

/// Even a purge without a limit ends after this many, so that a fast producer of dead letters cannot keep it running forever.
const PURGED_AT_MOST: u64 = 100_000_000;
/// How long the backend may take for one page of a purge.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists, shows, redrives or deletes dead letters
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
            Self::List(command) => or_read_enough(command.run(&queue, output).await),
            Self::Show(command) => or_read_enough(command.run(&queue, output).await),
            Self::Redrive(command) => command.run(&queue, output).await,
            Self::Purge(command) => command.run(&queue, output).await,
        };
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }
}

/// Which dead letters to take: all conditions must hold.
#[derive(Args, Clone)]
struct Filter {
    /// Only those with this text in the reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only the one with this id; repeatable
    #[arg(long, value_name = "ID")]
    id: Vec<MessageId>,
    /// Only those with this header; repeatable
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

Exit code 4: no dead letter was found.")]
pub(crate) struct List {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to show at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    max: usize,
}

impl List {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let mut table = Table::new(&["id", "died", "tried", "reason", "payload"]);
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
                tried(letter).map_or_else(|| "?".to_owned(), |count| count.to_string()),
                preview(letter.reason.as_deref().unwrap_or("?").as_bytes(), 50),
                preview(letter.message.payload(), 30),
            ]);
            Ok(shown < self.max)
        };
        let end = match self.max {
            0 => Ok(()),
            _ => each(queue, &self.queue, &self.filter, &mut show).await,
        };
        if shown == 0 {
            if end.is_ok() {
                output.note(&format!("{}: no such dead letter", self.queue));
            }
            return end.and(Err(Failure::Nothing));
        }
        // What was found before an error is still worth showing.
        if !output.json {
            table.print(output)?;
        }
        end
    }
}

/// Shows one dead letter in full
#[derive(Args)]
#[command(after_help = "\
Example: anyqueue dead show mail 0197a3c4-5f2e-7c1a-9d8b-000000000001

Exit code 4: there is no dead letter with this id.")]
pub(crate) struct Show {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The id of the message
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
        fact("tried", tried(&letter).map_or_else(|| "?".to_owned(), |count| count.to_string()));
        fact("deliveries", letter.deliveries.map_or_else(|| "?".to_owned(), |count| count.to_string()));
        for (name, value) in [("worker", letter.worker.clone()), ("ran", letter.ran.map(duration))] {
            if let Some(value) = value {
                fact(name, value);
            }
        }
        for (name, value) in letter.message.headers() {
            fact(&format!("header {name}"), value.clone());
        }
        for failure in anyqueue_worker::history(letter.message.headers()) {
            let how = format!("{} at {}: {}", failure.kind, failure.at, failure.error);
            fact(&format!("attempt {}", failure.attempt), how);
        }
        fact("bytes", letter.message.payload().len().to_string());
        table.print(output)?;
        output.bytes(letter.message.payload())
    }
}

/// Puts dead letters back into their queue
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue dead redrive mail --dry-run
  anyqueue dead redrive mail --reason 'connection refused' --limit 100
  anyqueue dead redrive mail --to mail-retries

Their attempts are counted anew. Each is moved once: what dies again meanwhile stays dead. An interrupted redrive can be
repeated.")]
pub(crate) struct Redrive {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to take at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Puts them into this queue instead
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    to: Option<PartitionId>,
    /// Only shows how many it would be
    #[arg(long)]
    dry_run: bool,
}

impl Redrive {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let limit = self.limit.unwrap_or(u64::MAX);
        if self.dry_run {
            let (would, end) = counted(queue, &self.queue, &self.filter, limit).await;
            let least = if end.is_err() { "at least " } else { "" };
            output.result(&format!("would put back {least}{would}"), &json!({ "would_move": would }))?;
            return end;
        }
        let bar = output.progress("scanned", None);
        let chosen = Arc::new(AtomicU64::new(0));
        let done = Arc::new(Mutex::new(Redriven::default()));
        let end = self.put_back(queue, limit, &done, &bar, &chosen).await;
        bar.finish_and_clear();
        let failed = match end {
            Ok(Redriven { moved, scanned, more, .. }) => {
                let note = if more { "; there may be more" } else { "" };
                return output.result(
                    &format!("put back {moved} of {scanned}{note}"),
                    &json!({ "moved": moved, "scanned": scanned, "more": more }),
                );
            }
            Err(failed) => failed,
        };
        let moved = done.lock().unwrap_or_else(PoisonError::into_inner).moved;
        let scanned = bar.position();
        let most = moved + chosen.load(Ordering::Relaxed);
        let moved_text = if most == moved { format!("{moved}") } else { format!("{moved} to {most}") };
        output.result(
            &format!("put back {moved_text} of {scanned}; there may be more"),
            &json!({ "moved": moved, "moved_at_most": most, "scanned": scanned, "more": true }),
        )?;
        Err(failed)
    }

    /// Puts the dead letters back. `done` has the result of the finished pages, even if the backend fails
    /// later; `chosen` counts what the last page was about to put back.
    async fn put_back(
        &self,
        queue: &Queue,
        limit: u64,
        done: &Arc<Mutex<Redriven>>,
        bar: &ProgressBar,
        chosen: &Arc<AtomicU64>,
    ) -> Result<Redriven> {
        let (seen, accepted, filter) = (bar.clone(), Arc::clone(chosen), self.filter.clone());
        let (page, finished) = (Arc::clone(chosen), Arc::clone(done));
        let mut redrive = queue
            .dead_letters(&self.queue)?
            .redrive()
            .limit(usize::try_from(limit).unwrap_or(usize::MAX))
            .filter(move |message| {
                seen.inc(1);
                let accepts = filter.accepts(message);
                accepted.fetch_add(accepts.into(), Ordering::Relaxed);
                accepts
            })
            .progress(move |so_far| {
                page.store(0, Ordering::Relaxed);
                *finished.lock().unwrap_or_else(PoisonError::into_inner) = so_far;
            });
        if let Some(to) = &self.to {
            redrive = redrive.to(to);
        }
        Ok(redrive.await?)
    }
}

/// Deletes dead letters
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue dead purge mail --older-than 30d --dry-run
  anyqueue dead purge mail --older-than 30d --yes
  anyqueue dead purge mail --reason 'no such user' --limit 100 --yes
  anyqueue dead purge mail --yes

A filter needs a backend that can be browsed: RabbitMQ and SQS cannot.")]
pub(crate) struct Purge {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    #[command(flatten)]
    filter: Filter,
    /// How many to take at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Confirms the deletion
    #[arg(long)]
    yes: bool,
    /// Only shows how many it would be
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Purge {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let limit = self.limit.unwrap_or(PURGED_AT_MOST);
        if self.dry_run {
            let (would, end) = counted(queue, &self.queue, &self.filter, limit).await;
            let least = if end.is_err() { "at least " } else { "" };
            output.result(&format!("would delete {least}{would}"), &json!({ "would_delete": would }))?;
            return end;
        }
        if !self.yes {
            let text =
                "this deletes dead letters forever: look first with --dry-run, then add --yes to confirm";
            return Err(Failure::Usage(text.to_owned()));
        }
        let bar = output.progress("scanned", None);
        let mut deleted = 0;
        let end = self.delete(queue, limit, &mut deleted, &bar).await;
        bar.finish_and_clear();
        let least = if end.is_err() { "at least " } else { "" };
        let more = *end.as_ref().unwrap_or(&true);
        let note = if more { "; there may be more" } else { "" };
        output.result(
            &format!("deleted {least}{deleted}{note}"),
            &json!({ "deleted": deleted, "more": more }),
        )?;
        end.map(drop)
    }

    /// Deletes page by page, and returns whether it stopped at the limit.
    async fn delete(&self, queue: &Queue, limit: u64, deleted: &mut u64, bar: &ProgressBar) -> Result<bool> {
        let dead = self.queue.dead_letters();
        if !self.filter.is_empty() {
            return self.delete_chosen(queue, &dead, limit, deleted, bar).await;
        }
        while *deleted < limit {
            let page = usize::try_from(limit - *deleted).unwrap_or(MAX_PAGE).min(MAX_PAGE);
            let last = if queue.capabilities().inspect.purge {
                let purged = purge_page(queue, &dead, page).await?;
                *deleted += purged as u64;
                bar.inc(purged as u64);
                purged < page
            } else {
                let taken = take_page(queue, &dead, page, deleted).await?;
                bar.inc(taken as u64);
                taken == 0
            };
            if last {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does the same with a filter.
    async fn delete_chosen(
        &self,
        queue: &Queue,
        dead: &PartitionId,
        limit: u64,
        deleted: &mut u64,
        bar: &ProgressBar,
    ) -> Result<bool> {
        let mut after = None;
        while *deleted < limit {
            let (room, mut chosen) = (limit - *deleted, 0);
            let page = queue.delete_where(dead, Page::of(MAX_PAGE).after(after), |browsed| {
                let chooses = chosen < room && self.filter.accepts(&browsed.message);
                chosen += u64::from(chooses);
                chooses
            });
            let page = page.await?;
            *deleted += page.deleted;
            bar.inc(page.scanned);
            after = page.next;
            // Some of the chosen messages may be held, and others were then skipped.
            if after.is_none() || chosen == room {
                return Ok(chosen == room);
            }
        }
        Ok(true)
    }
}

/// Deletes up to a page of messages, and returns how many.
async fn purge_page(queue: &Queue, dead: &PartitionId, page: usize) -> Result<usize> {
    let Some(inspect) = queue.storage().inspect() else { return Ok(0) };
    let purge = tokio::time::timeout(PAGE_TIMEOUT, inspect.purge(dead, page));
    let late = |_| Failure::Failed(format!("no reply within {}", duration(PAGE_TIMEOUT)));
    Ok(purge.await.map_err(late)??)
}

/// Does the same by pulling, where the backend has no purge. Returns how many were pulled, and counts those
/// that are gone.
async fn take_page(queue: &Queue, dead: &PartitionId, page: usize, deleted: &mut u64) -> Result<usize> {
    let mut held = queue.pull(dead).max(page).await?;
    let all = held.iter_mut().map(|handler| (handler, QueueMessageStatus::Processed));
    let mut end = Ok(());
    for outcome in queue.settle_many(all).await {
        match outcome {
            Ok(outcome) => *deleted += u64::from(outcome == SettleOutcome::Settled),
            Err(error) => end = Err(error),
        }
    }
    end?;
    Ok(held.len())
}

/// Returns how many the filter accepts, and whether all could be examined.
async fn counted(queue: &Queue, name: &PartitionId, filter: &Filter, limit: u64) -> (u64, Result) {
    let mut count = 0;
    let mut tally = |_: &DeadLetter| {
        count += 1;
        Ok(count < limit)
    };
    if limit == 0 {
        return (0, Ok(()));
    }
    let end = each(queue, name, filter, &mut tally).await;
    (count, end)
}

/// Passes the dead letters that the filter accepts to `look` until that returns false. Without browsing, only
/// the first page is seen.
async fn each(
    queue: &Queue,
    name: &PartitionId,
    filter: &Filter,
    look: &mut impl FnMut(&DeadLetter) -> Result<bool>,
) -> Result {
    let dead = queue.dead_letters(name)?;
    let mut after = None;
    loop {
        let page = dead.list(Page::of(MAX_PAGE).after(after)).await?;
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
            let text = format!(
                "only the first {MAX_PAGE} dead letters were looked at: this backend cannot be browsed"
            );
            return Err(Failure::Failed(text));
        }
    }
}

/// How often the task was tried. A worker returns a failed task without counting a delivery, and a delivery
/// that killed its worker is an attempt that nobody recorded: so the greater count is taken.
fn tried(letter: &DeadLetter) -> Option<u32> {
    letter.deliveries.max(letter.attempts)
}

fn line(letter: &DeadLetter, queue: &PartitionId) -> Line {
    let mut line = Line::of(&letter.message);
    line.queue = Some(queue.name().to_owned());
    line.deliveries = letter.deliveries;
    line.tried = tried(letter);
    line.dead_reason.clone_from(&letter.reason);
    line.died_at = letter.died_at.map(|at| humantime::format_rfc3339_millis(at).to_string());
    line
}
