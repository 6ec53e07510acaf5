//! `anyqueue push`: from arguments, from standard input, or many from lines.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyqueue::{MessageData, PartitionId, PushOutcome, Queue};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{Session, pair, queue_name};
use crate::failure::{Failure, Result, with_causes};
use crate::line::Line;
use crate::lines::{Numbered, batches};
use crate::open::Create;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  anyqueue push mail 'to: a@example.org'
  anyqueue push mail --priority 5 --delay 10m --header content-type=text/plain 'later, but urgent then'
  anyqueue push thumbnails < cat.png
  find . -name '*.png' | anyqueue push thumbnails --lines
  anyqueue push mail --ndjson jobs.ndjson
  anyqueue peek mail --json --max 1000000 | anyqueue --url postgres://host/db push mail --ndjson

NDJSON has a message on each line:
  {\"payload\":\"hello\",\"priority\":3,\"delay\":\"30s\",\"headers\":{\"a\":\"b\"}}
Fields: payload or payload_base64, id, headers, task_id, session_id, priority, delay or not_before, ttl, group,
dedup_key, max_retries, max_duration. With ids of your own an interrupted push can be repeated: where the
backend's ids are unique, what is there already is counted as duplicate.";

/// Errors of lines that are shown one by one.
const SHOWN_ERRORS: u64 = 20;

/// Pushes messages
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Push {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// Payloads, one message each; without any, standard input is the payload of one message
    #[arg(value_name = "PAYLOAD")]
    payloads: Vec<String>,
    /// Reads a message from each line of the file; `-`, or nothing, is standard input
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "payloads")]
    lines: Option<PathBuf>,
    /// Reads messages as JSON, one on each line of the file; `-`, or nothing, is standard input
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
        conflicts_with_all = ["payloads", "lines"]
    )]
    ndjson: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// What holds for every message of the command; not with `--ndjson`, where each says it for itself.
#[derive(Args)]
#[group(id = "options", multiple = true, conflicts_with = "ndjson")]
struct Options {
    /// Level, higher is more urgent
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Not delivered before this long has passed, such as 30s or 1h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    delay: Option<Duration>,
    /// Not delivered once this long has passed
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// Members of a group are delivered one at a time, in order
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Not stored while a message with this key is in the queue
    #[arg(long, value_name = "KEY")]
    dedup_key: Option<String>,
    /// Adds a header; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// The kind by which a worker of the library chooses a handler
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// A name for the task
    #[arg(long, value_name = "NAME")]
    task_id: Option<String>,
    /// The session that the task belongs to
    #[arg(long, value_name = "NAME")]
    session_id: Option<String>,
    /// How often a worker tries again
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long a worker may take for one attempt
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_duration: Option<Duration>,
}

impl Options {
    fn message(&self, payload: Vec<u8>) -> MessageData {
        let mut message = MessageData::from_bytes(payload);
        let mut options = message.options().clone();
        options.priority = self.priority.unwrap_or(0);
        options.delay = self.delay.map(anyqueue::When::In);
        options.expiry = self.ttl.map(anyqueue::When::In);
        options.group = self.group.as_deref().map(Into::into);
        options.dedup_key = self.dedup_key.as_deref().map(Into::into);
        options.max_retries = self.max_retries;
        options.max_duration = self.max_duration;
        message = message.with_options(options);
        for (name, value) in &self.header {
            message = message.with_header(name, value);
        }
        if let Some(kind) = &self.kind {
            message = message.with_header(anyqueue_worker::header::KIND, kind);
        }
        if let Some(task_id) = self.task_id.as_deref() {
            message = message.with_task_id(task_id);
        }
        match self.session_id.as_deref() {
            Some(session_id) => message.with_session_id(session_id),
            None => message,
        }
    }
}

impl Push {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::AsTold).await?;
        let end = match (&self.lines, &self.ndjson) {
            (Some(file), _) => self.push_lines(&queue, session.output, file, false).await,
            (_, Some(file)) => self.push_lines(&queue, session.output, file, true).await,
            (None, None) => self.push_few(&queue, session.output).await,
        };
        queue.close().await?;
        end
    }

    async fn push_few(&self, queue: &Queue, output: Output) -> Result {
        let payloads = if self.payloads.is_empty() {
            let mut payload = Vec::new();
            std::io::stdin().lock().read_to_end(&mut payload)?;
            vec![payload]
        } else {
            self.payloads.iter().map(|payload| payload.clone().into_bytes()).collect()
        };
        let messages: Vec<_> = payloads.into_iter().map(|payload| self.options.message(payload)).collect();
        let ids: Vec<_> = messages.iter().map(MessageData::id).collect();
        let mut failed = None;
        for (id, answer) in ids.into_iter().zip(queue.push_many(&self.queue, messages).await?) {
            let (outcome, id) = match answer {
                Ok(PushOutcome::Stored(id)) => ("stored", Some(id)),
                Ok(PushOutcome::Duplicate(id)) => ("duplicate", id),
                Err(error) => {
                    output.warn(&format!("message {id}: {}", with_causes(&error)));
                    failed = Some(error);
                    continue;
                }
            };
            let id = id.map_or_else(String::new, |id| id.to_string());
            output
                .result(&format!("{outcome} {id}"), &serde_json::json!({ "outcome": outcome, "id": id }))?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn push_lines(&self, queue: &Queue, output: Output, file: &PathBuf, json: bool) -> Result {
        let mut batches = if file.as_os_str() == "-" {
            batches(std::io::stdin())
        } else {
            let opened = File::open(file);
            batches(opened.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?)
        };
        let mut bulk = Bulk { output, bar: output.progress("pushed", None), account: Account::default() };
        while let Some(batch) = batches.recv().await {
            let (numbers, messages) = self.read(batch?, json, &mut bulk);
            let answers = queue.push_many(&self.queue, messages).await?;
            for (number, answer) in numbers.into_iter().zip(answers) {
                match answer {
                    Ok(PushOutcome::Stored(_)) => bulk.account.stored += 1,
                    Ok(PushOutcome::Duplicate(_)) => bulk.account.duplicates += 1,
                    Err(error) => bulk.refuse(number, &with_causes(&error)),
                }
            }
            bulk.bar.set_position(bulk.account.stored + bulk.account.duplicates);
        }
        bulk.end()
    }

    /// The messages of a batch of lines, with the numbers of their lines.
    fn read(&self, lines: Vec<Numbered>, json: bool, bulk: &mut Bulk) -> (Vec<u64>, Vec<MessageData>) {
        let mut read = (Vec::with_capacity(lines.len()), Vec::with_capacity(lines.len()));
        for (number, line) in lines {
            let message = if json {
                serde_json::from_slice::<Line>(&line)
                    .map_err(|error| error.to_string())
                    .and_then(Line::into_message)
            } else {
                Ok(self.options.message(line))
            };
            match message {
                Ok(message) => {
                    read.0.push(number);
                    read.1.push(message);
                }
                Err(why) => bulk.refuse(number, &why),
            }
        }
        read
    }
}

/// A push of many, under way.
struct Bulk {
    output: Output,
    bar: ProgressBar,
    account: Account,
}

#[derive(Default, Serialize)]
struct Account {
    stored: u64,
    duplicates: u64,
    refused: u64,
}

impl Bulk {
    fn refuse(&mut self, line: u64, why: &str) {
        self.account.refused += 1;
        if self.account.refused <= SHOWN_ERRORS {
            self.bar.suspend(|| self.output.warn(&format!("line {line}: {why}")));
        }
    }

    fn end(self) -> Result {
        self.bar.finish_and_clear();
        let Account { stored, duplicates, refused } = self.account;
        let text = format!("stored {stored}, duplicates {duplicates}, refused {refused}");
        self.output.result(&text, &self.account)?;
        if refused == 0 {
            return Ok(());
        }
        Err(Failure::Failed(format!("{refused} lines were refused; the others are stored")))
    }
}
