//! `anyqueue push`: from arguments, from standard input, or many from lines.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyqueue::{Error, ErrorKind, MessageData, PartitionId, PushOutcome, Queue, RetryClass};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use crate::failure::{Failure, Result, with_causes};
use crate::line::Line;
use crate::lines::{Batch, Numbered, batches};
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, pair, queue_name};
use crate::signals::stop_on_signal;

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
backend's ids are unique, what is there already is counted as duplicate.

Ctrl-C ends the push after what is under way, with the same account and the line from which to go on.
A line that cannot be a message is told and left out. Where the backend fails, the push stops, and says up to which
line all is settled, of which lines it is not known, and from which line to go on:
  tail -n +5001 jobs.ndjson | anyqueue push mail --ndjson";

/// Errors of lines that are shown one by one.
const SHOWN_ERRORS: u64 = 20;
/// Ranges of lines that are named in a sentence.
const SHOWN_RANGES: usize = 10;

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
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }

    async fn push_few(&self, queue: &Queue, output: Output) -> Result {
        let payloads = if self.payloads.is_empty() {
            vec![standard_input(queue.capabilities().limits.message_bytes)?]
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

    async fn push_lines(&self, queue: &Queue, output: Output, file: &Path, json: bool) -> Result {
        let batches = if file.as_os_str() == "-" {
            batches(std::io::stdin())
        } else {
            let opened = File::open(file);
            batches(opened.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?)
        };
        let mut bulk = Bulk {
            output,
            bar: output.progress("pushed", None),
            account: Account::default(),
            unique_ids: queue.capabilities().unique_ids,
        };
        self.push_batches(queue, batches, json, &mut bulk).await;
        bulk.end(json)
    }

    /// Until no more lines come, or the push has to stop.
    async fn push_batches(&self, queue: &Queue, mut batches: Receiver<Batch>, json: bool, bulk: &mut Bulk) {
        // One call at a time: after one that failed, the next might succeed and leave a hole.
        let room = queue.capabilities().limits.push_batch.max(1);
        let mut stop = stop_on_signal();
        let mut next = 1;
        loop {
            let batch = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return bulk.interrupt(next),
                batch = batches.recv() => batch,
            };
            let Some(batch) = batch else { return };
            let mut lines = match batch {
                Ok(lines) => lines.into_iter(),
                Err(unread) => {
                    bulk.account.stop = Some(Stop::at(unread.line, unread.error.to_string()));
                    return;
                }
            };
            while let Some((line, _)) = lines.as_slice().first() {
                if *stop.borrow() {
                    return bulk.interrupt(*line);
                }
                let last = lines.as_slice().iter().take(room).next_back().map_or(*line, |(line, _)| *line);
                self.push_some(queue, lines.by_ref().take(room), json, bulk).await;
                if bulk.account.stop.is_some() {
                    return;
                }
                next = last + 1;
            }
        }
    }

    async fn push_some(
        &self,
        queue: &Queue,
        lines: impl Iterator<Item = Numbered>,
        json: bool,
        bulk: &mut Bulk,
    ) {
        let (numbers, messages) = self.read(lines, json, bulk);
        let answers = queue.push_many(&self.queue, messages).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); numbers.len()]);
        for (number, answer) in numbers.into_iter().zip(answers) {
            bulk.take(number, answer);
        }
        bulk.bar.set_position(bulk.account.stored + bulk.account.duplicates);
    }

    /// The messages of lines, with the numbers of these.
    fn read(
        &self,
        lines: impl Iterator<Item = Numbered>,
        json: bool,
        bulk: &mut Bulk,
    ) -> (Vec<u64>, Vec<MessageData>) {
        let mut read = (Vec::new(), Vec::new());
        for (number, line) in lines {
            let line = line.map_err(|too_long| too_long.to_string());
            match line.and_then(|line| self.message(line, json)) {
                Ok(message) => {
                    read.0.push(number);
                    read.1.push(message);
                }
                Err(why) => bulk.refuse(number, &why),
            }
        }
        read
    }

    fn message(&self, line: Vec<u8>, json: bool) -> Result<MessageData, String> {
        if !json {
            return Ok(self.options.message(line));
        }
        Line::read(&line)?.into_message()
    }
}

/// All of standard input, if it can be one message at all.
fn standard_input(limit: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    std::io::stdin().lock().take(limit.saturating_add(1)).read_to_end(&mut payload)?;
    if payload.is_empty() {
        let text =
            "standard input is empty, nothing was pushed: give '' as the payload to push an empty message";
        return Err(Failure::Usage(text.to_owned()));
    }
    if payload.len() as u64 <= limit {
        return Ok(payload);
    }
    Err(Failure::Failed(format!(
        "standard input has more than {limit} bytes, the most that a message can have here; nothing was stored. \
         Push its lines as messages with --lines, or store the data elsewhere and push a reference"
    )))
}

/// A push of many, under way.
struct Bulk {
    output: Output,
    bar: ProgressBar,
    account: Account,
    unique_ids: bool,
}

#[derive(Default, Serialize)]
struct Account {
    stored: u64,
    duplicates: u64,
    refused: u64,
    /// Why it did not come to the end of the lines.
    #[serde(flatten)]
    stop: Option<Stop>,
}

/// Where a push stopped, for no fault of a line.
#[derive(Serialize)]
struct Stop {
    #[serde(skip)]
    why: String,
    /// Each line up to this one is stored, or was refused and told.
    settled_to: u64,
    /// The first line that is not settled.
    go_on_from: u64,
    /// Lines that were pushed in vain.
    not_stored: u64,
    /// Lines that may be stored or not.
    unknown: u64,
    unknown_lines: Ranges,
    /// Lines after the first that is not settled.
    stored_lines: Ranges,
}

impl Stop {
    fn at(line: u64, why: String) -> Self {
        Self {
            why,
            settled_to: line.saturating_sub(1),
            go_on_from: line,
            not_stored: 0,
            unknown: 0,
            unknown_lines: Ranges::default(),
            stored_lines: Ranges::default(),
        }
    }

    /// What people have to know to go on.
    fn explain(&self, recognised: bool) -> String {
        let mut told = vec![format!("the push stopped at line {}: {}", self.go_on_from, self.why)];
        if self.settled_to > 0 {
            told.push(format!("All lines up to {} are settled.", self.settled_to));
        }
        if self.unknown > 0 {
            let again = if recognised {
                "those with an id can be repeated all the same, others would be there twice"
            } else {
                "repeated, those that are would be there twice"
            };
            told.push(format!("Not known whether stored: lines {}; {again}.", self.unknown_lines));
        }
        if !self.stored_lines.0.is_empty() {
            told.push(format!("Stored beyond that: lines {}.", self.stored_lines));
        }
        told.push(format!("Go on with `tail -n +{}` of the same lines.", self.go_on_from));
        told.join("\n")
    }
}

/// Numbers that rise, as ranges of first and last.
#[derive(Debug, Default, Serialize)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, number: u64) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => self.0.push((number, number)),
        }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().take(SHOWN_RANGES).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{first}")?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        if self.0.len() > SHOWN_RANGES { f.write_str(", …") } else { Ok(()) }
    }
}

impl Bulk {
    /// Notes what became of a line.
    fn take(&mut self, line: u64, answer: anyqueue::Result<PushOutcome>) {
        match answer {
            Ok(PushOutcome::Stored(_)) => self.account.stored += 1,
            Ok(PushOutcome::Duplicate(_)) => self.account.duplicates += 1,
            Err(error) if is_of_line(&error) => return self.refuse(line, &with_causes(&error)),
            Err(error) => return self.stop(line, &error),
        }
        if let Some(stop) = &mut self.account.stop {
            stop.stored_lines.add(line);
        }
    }

    fn refuse(&mut self, line: u64, why: &str) {
        self.account.refused += 1;
        if self.account.refused <= SHOWN_ERRORS {
            self.bar.suspend(|| self.output.warn(&format!("line {line}: {why}")));
        }
    }

    fn stop(&mut self, line: u64, error: &Error) {
        let stop = self.account.stop.get_or_insert_with(|| Stop::at(line, with_causes(error)));
        if may_be_stored(error, self.unique_ids) {
            stop.unknown += 1;
            stop.unknown_lines.add(line);
        } else {
            stop.not_stored += 1;
        }
    }

    /// It was asked to stop before this line.
    fn interrupt(&mut self, line: u64) {
        self.account.stop = Some(Stop::at(line, "interrupted".to_owned()));
    }

    fn end(self, json: bool) -> Result {
        self.bar.finish_and_clear();
        let Account { stored, duplicates, refused, stop } = &self.account;
        let stopped = stop.as_ref().map_or_else(String::new, |Stop { not_stored, unknown, .. }| {
            format!(", not stored {not_stored}, unknown {unknown}")
        });
        let text = format!("stored {stored}, duplicates {duplicates}, refused {refused}{stopped}");
        let written = self.output.result(&text, &self.account);
        if let Some(stop) = stop {
            return Err(Failure::Failed(stop.explain(json && self.unique_ids)));
        }
        written?;
        if *refused == 0 {
            return Ok(());
        }
        Err(Failure::Failed(format!("{refused} lines were refused; the others are stored")))
    }
}

/// Whether the line is refused for what it is, which says nothing of others.
fn is_of_line(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge)
}

/// Whether the message may be stored all the same.
fn may_be_stored(error: &Error, unique_ids: bool) -> bool {
    match error.retry() {
        RetryClass::MayDuplicate => true,
        // Where ids are unique, a repetition with the same id is safe, and so the class tells no more. A line that is read again
        // may get another id.
        RetryClass::Safe => unique_ids && error.kind() != ErrorKind::Full,
        RetryClass::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(numbers: &[u64]) -> Ranges {
        let mut ranges = Ranges::default();
        for number in numbers {
            ranges.add(*number);
        }
        ranges
    }

    #[test]
    fn neighbours_are_told_as_a_range() {
        assert_eq!(ranges(&[3, 4, 5, 7, 9, 10]).to_string(), "3-5, 7, 9-10");
        let odd: Vec<u64> = (0..100).map(|number| 2 * number + 1).collect();
        assert_eq!(ranges(&odd).to_string(), "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, …");
    }

    #[test]
    fn what_may_be_stored_is_told_from_what_is_not() {
        let error = |kind, retry| Error::new(kind, "x").with_retry(retry);
        for (kind, retry, unique_ids, may) in [
            (ErrorKind::TimedOut, RetryClass::MayDuplicate, false, true),
            (ErrorKind::Unavailable, RetryClass::Safe, false, false),
            (ErrorKind::Unavailable, RetryClass::Safe, true, true),
            (ErrorKind::Full, RetryClass::Safe, true, false),
            (ErrorKind::AccessDenied, RetryClass::Never, true, false),
        ] {
            assert_eq!(may_be_stored(&error(kind, retry), unique_ids), may, "{kind} {retry:?} {unique_ids}");
        }
    }
}
