//! `anyqueue tasks retry`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::{Amend, AmendOutcome, MessageId, PartitionId, Queue, Task, TaskState};
use clap::Args;
use serde_json::json;

use super::filter::Filter;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::session::queue_name;

/// Retries dead tasks, and lets those that wait for their next attempt run now
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks retry mail 0197a3c4-5f2e-7c1a-9d8b-000000000001
  anyqueue tasks retry mail --state failed --kind send_mail --error 'connection refused' --yes
  anyqueue tasks retry mail --state scheduled --yes

A dead task is put back with its id, and its attempts are counted from zero, as after `anyqueue dead redrive`. A delayed
task runs now. Tasks that are queued, running or disabled are left alone. Of a task that has ended, only the end is kept,
not its message: push it again.

Exit codes:
  0  each task that was named runs again, or all that the filter found and that can
  3  some of those that were named cannot run again
  4  no task was found")]
pub(crate) struct Retry {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The ids of their messages; if none is given, the filter chooses
    ids: Vec<MessageId>,
    #[command(flatten)]
    filter: Filter,
    /// How many to retry at most, of those that the filter finds
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Confirms the choice of the filter
    #[arg(long)]
    yes: bool,
}

/// What happened to one task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    PutBack,
    Due,
    Left(&'static str),
}

impl Retry {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        if self.ids.is_empty() && !self.yes {
            let text = "this retries all that the filter finds: look first with `anyqueue tasks list`, then add --yes to confirm";
            return Err(Failure::Usage(text.to_owned()));
        }
        let tasks =
            if self.ids.is_empty() { self.found(queue, output).await? } else { self.named(queue).await? };
        if tasks.is_empty() {
            output.note(&format!("{}: no such task", self.queue));
            return Err(Failure::Nothing);
        }
        let mut all = true;
        for (id, outcome) in self.retry(queue, &tasks).await? {
            let (word, why) = match outcome {
                Outcome::PutBack => ("put back", None),
                Outcome::Due => ("due now", None),
                Outcome::Left(why) => ("left", Some(why)),
            };
            all &= why.is_none();
            let because = why.map_or(String::new(), |why| format!(": {why}"));
            output.result(
                &format!("{id} {word}{because}"),
                &json!({ "queue": self.queue.name(), "id": id.to_string(), "outcome": word.replace(' ', "_"), "why": why }),
            )?;
        }
        if all || self.ids.is_empty() { Ok(()) } else { Err(Failure::Wrong) }
    }

    /// Returns the tasks with the given ids, if they are known.
    async fn named(&self, queue: &Queue) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        let mut seen = HashSet::new();
        for id in self.ids.iter().filter(|id| seen.insert(**id)) {
            tasks.extend(queue.task(&self.queue, *id).await?);
        }
        Ok(tasks)
    }

    /// Returns the tasks that the filter finds and that can run again.
    async fn found(&self, queue: &Queue, output: Output) -> Result<Vec<Task>> {
        let mut found = queue.tasks(&self.queue, self.filter.build(output))?;
        let mut tasks = Vec::new();
        while tasks.len() < usize::from(self.limit) {
            let Some(task) = found.next().await else { break };
            let task = task?;
            if task.is_dead() || task.state == TaskState::Scheduled {
                tasks.push(task);
            }
        }
        Ok(tasks)
    }

    async fn retry(&self, queue: &Queue, tasks: &[Task]) -> Result<Vec<(MessageId, Outcome)>> {
        let dead: HashSet<_> = tasks.iter().filter(|task| task.is_dead()).map(|task| task.id).collect();
        let put_back = self.put_back(queue, dead).await?;
        let delayed = tasks.iter().filter(|task| task.state == TaskState::Scheduled).map(|task| task.id);
        let due = self.make_due(queue, delayed.collect()).await?;
        let outcome = |task: &Task| match task.state {
            TaskState::Scheduled if due.contains(&task.id) => Outcome::Due,
            TaskState::Scheduled => Outcome::Left("it is no longer waiting"),
            _ if put_back.contains(&task.id) => Outcome::PutBack,
            _ if task.is_dead() => Outcome::Left("it is no longer dead"),
            TaskState::Queued => Outcome::Left("it already waits for a worker"),
            TaskState::Running => Outcome::Left("a worker has it"),
            TaskState::Disabled => Outcome::Left("it is disabled: see `anyqueue enable`"),
            _ => Outcome::Left("it has ended, and its message is gone: push it again"),
        };
        Ok(tasks.iter().map(|task| (task.id, outcome(task))).collect())
    }

    async fn put_back(&self, queue: &Queue, ids: HashSet<MessageId>) -> Result<HashSet<MessageId>> {
        if ids.is_empty() {
            return Ok(ids);
        }
        let chosen = Arc::new(Mutex::new(HashSet::new()));
        let (choice, limit) = (Arc::clone(&chosen), ids.len());
        let filter = move |message: &anyqueue::MessageData| {
            let is_one = ids.contains(&message.id());
            if is_one {
                choice.lock().unwrap_or_else(PoisonError::into_inner).insert(message.id());
            }
            is_one
        };
        queue.dead_letters(&self.queue)?.redrive().filter(filter).limit(limit).await?;
        let chosen = chosen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(chosen.clone())
    }

    async fn make_due(&self, queue: &Queue, ids: Vec<MessageId>) -> Result<HashSet<MessageId>> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let outcomes = queue.amend(&self.queue, &ids, Amend::new().now()).await?;
        let mut due = HashSet::new();
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            if outcome? == AmendOutcome::Amended {
                due.insert(id);
            }
        }
        Ok(due)
    }
}
