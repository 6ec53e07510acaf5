//! `anyqueue tasks show`.

use anyqueue::{MessageId, PartitionId, Queue, Task};
use anyqueue_worker::Failure as Attempt;
use clap::Args;

use super::line::{TaskLine, moment};
use crate::failure::{Failure, Result};
use crate::output::{Output, Table, duration};
use crate::session::queue_name;

/// Shows one task in full, with its result
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue tasks show mail 0197a3c4-5f2e-7c1a-9d8b-000000000001
  anyqueue tasks show mail $ID --raw > result

If an id was pushed again, its latest task is shown.
Exit code 4: nothing is known of such a task, or with --raw, it has no result.")]
pub(crate) struct Show {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// The id of its message
    id: MessageId,
    /// Writes its result and nothing else, byte for byte
    #[arg(long)]
    raw: bool,
}

impl Show {
    pub(super) async fn run(self, queue: &Queue, output: Output) -> Result {
        let task = queue.task(&self.queue, self.id).await?.ok_or(Failure::Nothing)?;
        print(&task, self.raw, output)
    }
}

/// Writes all that is known of a task, or just its result.
pub(super) fn print(task: &Task, raw: bool, output: Output) -> Result {
    if raw {
        return output.exact(task.result.as_deref().ok_or(Failure::Nothing)?);
    }
    if output.json {
        return output.object(&TaskLine::of(task).with_message(task));
    }
    facts(task).print(output)?;
    let bytes = task.result.as_deref().or_else(|| task.message.as_ref().map(anyqueue::MessageData::payload));
    bytes.map_or(Ok(()), |bytes| output.bytes(bytes))
}

fn facts(task: &Task) -> Table {
    let mut table = Table::new(&["", ""]);
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.row([name.to_owned(), value]);
        }
    };
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
    fact("id", Some(task.id.to_string()));
    fact("state", Some(task.state.as_str().to_owned()));
    fact("kind", text(&task.kind));
    fact("task id", text(&task.task_id));
    fact("session", text(&task.session_id));
    fact("trace", text(&task.trace));
    fact("worker", text(&task.worker));
    fact("attempt", Some(task.attempt.to_string()));
    fact("deliveries", task.delivery_count.map(|count| count.to_string()));
    fact("pushed", task.pushed_at.map(moment));
    fact("due", task.due_at.map(moment));
    fact("ended", task.ended_at.map(moment));
    let is_over = task.state.ended().is_some() && !task.is_dead();
    let until = task.expires_at.map(moment).or_else(|| is_over.then(|| "it is deleted".to_owned()));
    fact("kept until", until);
    fact("waited", task.waited.map(duration));
    fact("ran", task.ran.map(duration));
    fact("reason", text(&task.reason));
    fact("progress", text(&task.progress));
    for (name, error) in errors(task) {
        fact(&name, Some(error));
    }
    for line in task.log.iter().flat_map(|log| log.lines()) {
        fact("log", Some(line.to_owned()));
    }
    for (name, value) in task.message.iter().flat_map(anyqueue::MessageData::headers) {
        fact(&format!("header {name}"), Some(value.clone()));
    }
    let bytes = task.message.as_ref().map(|message| message.payload().len());
    fact("bytes", bytes.map(|bytes| bytes.to_string()));
    fact("result bytes", task.result.as_ref().map(|result| result.len().to_string()));
    table
}

/// The failed attempts, each with a name; the text as it is, if no worker of this library wrote it.
fn errors(task: &Task) -> Vec<(String, String)> {
    let Some(errors) = task.errors.as_deref() else { return Vec::new() };
    let Ok(attempts) = serde_json::from_str::<Vec<Attempt>>(errors) else {
        return vec![("errors".to_owned(), errors.to_owned())];
    };
    let told = |attempt: Attempt| {
        let how = format!("{} at {}: {}", attempt.kind, attempt.at, attempt.error);
        (format!("error {}", attempt.attempt), how)
    };
    attempts.into_iter().map(told).collect()
}
