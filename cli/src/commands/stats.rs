//! `anyqueue stats`: counts messages by state.

use std::time::{Duration, SystemTime};

use anyqueue::{Counts, ErrorKind, MAX_PAGE, Page, PartitionId, Queue};
use clap::Args;
use serde::Serialize;

use super::transfer::PROBE;
use crate::failure::{Failure, Result};
use crate::open::Create;
use crate::output::{Output, Table, count};
use crate::session::{Session, queue_name};

const EXAMPLES: &str = "\
Examples:
  anyqueue stats
  anyqueue stats mail thumbnails --json
  anyqueue stats --watch            every two seconds, until Ctrl-C
  anyqueue stats --watch 10s --json >> stats.ndjson

A `?` stands for what the backend does not count. RabbitMQ and SQS cannot list their queues: there, name them.";

/// Counts ready, delayed, leased, disabled and dead messages
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stats {
    /// The queues; all of them by default
    #[arg(value_name = "QUEUE", value_parser = queue_name)]
    queues: Vec<PartitionId>,
    /// Repeats the counts at this interval
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s",
        value_parser = humantime::parse_duration
    )]
    watch: Option<Duration>,
    /// Stops --watch after this many rounds
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
}

/// The counts of a queue.
#[derive(Serialize)]
struct Row {
    /// The time of the count, with `--watch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    queue: String,
    ready: Option<u64>,
    delayed: Option<u64>,
    leased: Option<u64>,
    disabled: Option<u64>,
    dead: Option<u64>,
    /// `None` if the backend cannot pause.
    paused: Option<bool>,
}

impl Stats {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let mut rounds = 0;
        loop {
            match self.rows(&queue).await {
                Ok(rows) => show(session.output, &rows)?,
                // Keep watching: the end of an outage is interesting too.
                Err(Failure::Failed(why)) if rounds > 0 => session.output.warn(&why),
                Err(failure) => return Err(failure),
            }
            session.output.flush()?;
            rounds += 1;
            match self.watch {
                Some(pause) if self.rounds.is_none_or(|most| rounds < most) => {
                    tokio::time::sleep(pause).await;
                }
                _ => break,
            }
        }
        queue.close().await?;
        Ok(())
    }

    async fn rows(&self, queue: &Queue) -> Result<Vec<Row>> {
        let names = if self.queues.is_empty() { all(queue).await? } else { self.queues.clone() };
        let at = self.watch.map(|_| humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
        let mut rows = Vec::with_capacity(names.len());
        for name in names {
            let Counts { ready, delayed, leased, disabled, dead, .. } = queue.counts(&name).await?;
            let can_pause = queue.capabilities().pause;
            let paused = if can_pause { Some(queue.is_paused(&name).await?) } else { None };
            let (at, queue) = (at.clone(), name.name().to_owned());
            rows.push(Row { at, queue, ready, delayed, leased, disabled, dead, paused });
        }
        Ok(rows)
    }
}

fn show(output: Output, rows: &[Row]) -> Result {
    if output.json {
        return rows.iter().try_for_each(|row| output.object(row));
    }
    let mut table = Table::new(&["queue", "ready", "delayed", "leased", "disabled", "dead", ""]);
    for row in rows {
        let paused = if row.paused == Some(true) { "paused" } else { "" };
        table.row([
            row.queue.clone(),
            count(row.ready),
            count(row.delayed),
            count(row.leased),
            count(row.disabled),
            count(row.dead),
            paused.to_owned(),
        ]);
    }
    if let Some(at) = rows.first().and_then(|row| row.at.as_ref()) {
        output.text(at)?;
    }
    table.print(output)
}

/// Returns the names of all queues, except the one that `move` probes with.
pub(crate) async fn all(queue: &Queue) -> Result<Vec<PartitionId>> {
    let mut names: Vec<PartitionId> = Vec::new();
    loop {
        let page = match queue.partitions(Page::of(MAX_PAGE).after(names.last().cloned())).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let text = format!("{} cannot list its queues: name them", queue.storage().name());
                return Err(Failure::Usage(text));
            }
            page => page?,
        };
        let last = page.len() < MAX_PAGE;
        names.extend(page);
        if last {
            names.retain(|name| name.name() != PROBE);
            return Ok(names);
        }
    }
}
