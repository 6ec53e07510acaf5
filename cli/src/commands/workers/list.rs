//! `anyqueue workers list` and `show`.

use std::time::{Duration, SystemTime};

use anyqueue_control::registry::{HeldTask, LostWorker, Registry, WorkerInfo};
use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failure, Result, with_causes};
use crate::output::{Output, Table, duration, preview};

/// The last moment of the year 9999, in milliseconds of Unix time: no later time can be formatted.
const LAST_MS: u64 = 253_402_300_799_999;

/// Lists the workers
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue workers list
  anyqueue workers list --lost --json

Exit code 4: there is none.")]
pub(super) struct List {
    /// Lists instead those that were lost within the last hour, and what they held
    #[arg(long)]
    lost: bool,
}

/// Shows a worker and what it runs
#[derive(Args)]
#[command(after_help = "Example: anyqueue workers show host-4711")]
pub(super) struct Show {
    /// The name of the worker
    #[arg(value_name = "WORKER")]
    name: String,
}

impl List {
    pub(super) async fn run(self, registry: &Registry, output: Output) -> Result {
        for lost in registry.sweep().await? {
            output.note(&lost_text(&lost));
        }
        if self.lost { list_lost(registry, output).await } else { list(registry, output).await }
    }
}

async fn list(registry: &Registry, output: Output) -> Result {
    let all = registry.list().await?;
    for (name, error) in &all.unreadable {
        output.warn(&format!("{name}: {}", with_causes(error)));
    }
    if all.workers.is_empty() {
        output.note("no worker is registered");
        return Err(Failure::Nothing);
    }
    let now = all.now.unwrap_or(SystemTime::UNIX_EPOCH);
    let mut table =
        Table::new(&["worker", "state", "running", "slots", "queues", "memory", "seen", "host", "pid"]);
    for worker in &all.workers {
        if output.json {
            output.object(&line(worker, now))?;
        } else {
            table.row(row(worker, now));
        }
    }
    if output.json { Ok(()) } else { table.print(output) }
}

async fn list_lost(registry: &Registry, output: Output) -> Result {
    let lost = registry.lost().await?;
    if lost.is_empty() {
        output.note("no worker was lost within the last hour");
        return Err(Failure::Nothing);
    }
    for lost in &lost {
        output.result(&lost_text(lost), &json!(lost))?;
    }
    Ok(())
}

impl Show {
    pub(super) async fn run(self, registry: &Registry, output: Output) -> Result {
        let (all, found) = (registry.list().await?, registry.get(&self.name).await?);
        let Some(worker) = found else {
            output.note(&format!("there is no worker {}: see `anyqueue workers list`", self.name));
            return Err(Failure::Nothing);
        };
        let now = all.now.unwrap_or(SystemTime::UNIX_EPOCH);
        if output.json {
            return output.object(&line(&worker, now));
        }
        let mut table = Table::new(&["task", "queue", "kind", "attempt", "runs for", "progress"]);
        for task in &worker.held {
            table.row(held_row(task));
        }
        let [name, state, running, slots, ..] = row(&worker, now);
        output.note(&format!("{name} is {state} and runs {running} of {slots}"));
        table.print(output)
    }
}

fn line(worker: &WorkerInfo, now: SystemTime) -> Value {
    let mut line = json!(worker);
    let since = |time: SystemTime| now.duration_since(time).unwrap_or_default();
    if let Some(object) = line.as_object_mut() {
        object.insert("lost".to_owned(), json!(worker.is_lost(now)));
        object.insert("seen_s_ago".to_owned(), json!(since(worker.seen_at).as_secs_f64()));
        object.insert("up_s".to_owned(), json!(worker.up.as_secs_f64()));
    }
    line
}

fn row(worker: &WorkerInfo, now: SystemTime) -> [String; 9] {
    let state = if worker.is_lost(now) { "lost" } else { worker.state.as_str() };
    let ago = duration(now.duration_since(worker.seen_at).unwrap_or_default());
    let memory = worker.memory_bytes.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let queues = preview(worker.partitions.join(" ").as_bytes(), 40);
    [
        preview(worker.name.as_bytes(), 60),
        state.to_owned(),
        worker.running.to_string(),
        worker.slots.to_string(),
        queues,
        memory,
        format!("{ago} ago"),
        preview(worker.host.as_bytes(), 40),
        worker.pid.to_string(),
    ]
}

fn held_row(task: &HeldTask) -> [String; 6] {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { preview(text.as_bytes(), 50) };
    [
        task.id.clone(),
        task.partition.clone(),
        or_dash(&task.kind),
        task.attempt.to_string(),
        duration(Duration::from_millis(task.ran_ms)),
        or_dash(task.progress.as_deref().unwrap_or_default()),
    ]
}

fn lost_text(lost: &LostWorker) -> String {
    let ids: Vec<_> = lost.held.iter().take(20).map(|task| task.id.as_str()).collect();
    let more = lost.running.saturating_sub(ids.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let held = if ids.is_empty() { "nothing".to_owned() } else { format!("{}{more}", ids.join(" ")) };
    let (name, host) = (preview(lost.name.as_bytes(), 256), preview(lost.host.as_bytes(), 256));
    // The time comes from outside, and may be invalid.
    let seen = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(lost.seen_ms.min(LAST_MS)));
    let seen = humantime::format_rfc3339_seconds(seen.unwrap_or(SystemTime::UNIX_EPOCH));
    format!(
        "{name} on {host} (process {}) was last heard from at {seen} and is lost; it ran {held}",
        lost.pid
    )
}
