//! `anyqueue push`: pushes messages from arguments, from standard input, or in bulk from lines.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyqueue::{Error, ErrorKind, MessageData, PartitionId, PushOutcome, Queue, RetryClass};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use super::push_options::Options;
use crate::failure::{Failure, Result, with_causes};
use crate::line::Line;
use crate::lines::{Batch, Numbered, batches};
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};
use crate::signals::stop_on_signal;

const EXAMPLES: &str = "\
Examples:
  anyqueue push mail 'to: a@example.org'
  anyqueue push mail --priority 5 --delay 10m --header content-type=text/plain 'urgent, but not yet'
  anyqueue push thumbnails < cat.png
  find . -name '*.png' | anyqueue push thumbnails --lines
  anyqueue push mail --ndjson jobs.ndjson
  anyqueue peek mail --json --max 1000000 | anyqueue --url postgres://host/db push mail --ndjson

NDJSON has one message per line:
  {\"payload\":\"hello\",\"priority\":3,\"delay\":\"30s\",\"headers\":{\"a\":\"b\"}}
Fields: payload or payload_base64, id, headers, task_id, session_id, priority, delay or not_before,
urgent_after, ttl, group, dedup_key, on_duplicate (keep, replace, earlier or behind), max_retries, max_duration. Give
ids to be able to repeat an interrupted push: where the backend keeps ids unique, messages that are already there are
counted as duplicates.

A line that is not a valid message is reported and skipped. If the backend fails, and on Ctrl-C, the push stops and reports
how far it got: up to which line everything is settled, which lines may or may not be stored, and where to resume:
  tail -n +5001 jobs.ndjson | anyqueue push mail --ndjson";

/// How many bad lines are reported one by one.
const SHOWN_ERRORS: u64 = 20;
/// How many ranges of lines a sentence names.
const SHOWN_RANGES: usize = 10;

/// Pushes messages
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = "anyqueue push [OPTIONS] <QUEUE> [PAYLOAD]...")]
pub(crate) struct Push {
    /// The queue
    // Required: that it is missing is said below, where more can be said.
    #[arg(value_parser = queue_name, required_unless_present_any = ["lines", "ndjson"])]
    queue: Option<PartitionId>,
    /// Payloads, one message each; without any, standard input is the payload of one message
    #[arg(value_name = "PAYLOAD")]
    payloads: Vec<String>,
    /// Takes each line of the file as a payload; without FILE, or with `-`, of standard input
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "payloads")]
    lines: Option<PathBuf>,
    /// Takes each line of the file as a message in JSON; without FILE, or with `-`, of standard input
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
        conflicts_with_all = ["payloads", "lines"]
    )]
    ndjson: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Push {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let to = self.queue.as_ref().ok_or_else(|| self.without_queue())?;
        let queue = session.queue(Create::AsUrlSays).await?;
        let end = match (&self.lines, &self.ndjson) {
            (Some(file), _) => self.push_lines(&queue, to, session.output, (file, false)).await,
            (_, Some(file)) => self.push_lines(&queue, to, session.output, (file, true)).await,
            (None, None) => self.push_few(&queue, to, session.output).await,
        };
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }

    /// Explains the most likely mistake: the queue was written in a place where a file may stand.
    fn without_queue(&self) -> Failure {
        let files = [("--lines", &self.lines), ("--ndjson", &self.ndjson)];
        let taken = files.into_iter().find_map(|(option, file)| Some((option, file.as_ref()?)));
        let text = match taken.filter(|(_, file)| file.as_os_str() != "-") {
            Some((option, file)) => format!(
                "QUEUE is missing: {} was taken for the file of {option}; to read standard input, write {option} last",
                file.display()
            ),
            None => "QUEUE is missing".to_owned(),
        };
        Failure::Usage(text)
    }

    async fn push_few(&self, queue: &Queue, to: &PartitionId, output: Output) -> Result {
        let payloads = if self.payloads.is_empty() {
            vec![standard_input(queue.capabilities().limits.message_bytes)?]
        } else {
            self.payloads.iter().map(|payload| payload.clone().into_bytes()).collect()
        };
        let messages: Vec<_> = payloads.into_iter().map(|payload| self.options.message(payload)).collect();
        let ids: Vec<_> = messages.iter().map(MessageData::id).collect();
        let mut failed = None;
        for (id, result) in ids.into_iter().zip(queue.push_many(to, messages).await?) {
            let (outcome, id) = match result {
                Ok(PushOutcome::Stored(id)) => ("stored", Some(id)),
                Ok(PushOutcome::Duplicate(id)) => ("duplicate", id),
                Ok(PushOutcome::Replaced(id)) => ("replaced", Some(id)),
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

    async fn push_lines(
        &self,
        queue: &Queue,
        to: &PartitionId,
        output: Output,
        (file, json): (&Path, bool),
    ) -> Result {
        let batches = if file.as_os_str() == "-" {
            batches(std::io::stdin())
        } else {
            let opened = File::open(file);
            batches(opened.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?)
        };
        let mut bulk = Bulk {
            to: to.clone(),
            output,
            bar: output.progress("pushed", None),
            account: Account::default(),
            unique_ids: queue.capabilities().unique_ids,
        };
        self.push_batches(queue, batches, json, &mut bulk).await;
        bulk.end(json)
    }

    /// Pushes until there are no more lines, or the push has to stop.
    async fn push_batches(&self, queue: &Queue, mut batches: Receiver<Batch>, json: bool, bulk: &mut Bulk) {
        // One call at a time: after a failed one, the next could succeed and leave a gap.
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
        let results = queue.push_many(&bulk.to, messages).await;
        let results = results.unwrap_or_else(|error| vec![Err(error); numbers.len()]);
        for (number, result) in numbers.into_iter().zip(results) {
            bulk.take(number, result);
        }
        bulk.bar.set_position(bulk.account.stored + bulk.account.duplicates);
    }

    /// Returns the numbers of the lines, and their messages.
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

/// Reads all of standard input, if it is small enough for a message.
fn standard_input(limit: u64) -> Result<Vec<u8>> {
    let mut payload = Vec::new();
    std::io::stdin().lock().take(limit.saturating_add(1)).read_to_end(&mut payload)?;
    if payload.is_empty() {
        let text = "standard input is empty, so nothing was pushed: to push an empty message, give '' as the payload";
        return Err(Failure::Usage(text.to_owned()));
    }
    if payload.len() as u64 <= limit {
        return Ok(payload);
    }
    Err(Failure::Failed(format!(
        "standard input has more than {limit} bytes, the limit for a message on this backend; nothing was stored. \
         Push each line as a message with --lines, or store the data elsewhere and push a reference"
    )))
}

/// A bulk push that is under way.
struct Bulk {
    to: PartitionId,
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
    /// Why the push did not reach the last line.
    #[serde(flatten)]
    stop: Option<Stop>,
}

/// Where a push stopped for a reason other than a bad line.
#[derive(Serialize)]
struct Stop {
    #[serde(skip)]
    why: String,
    /// Each line up to this one is stored, or was reported as refused.
    settled_to: u64,
    /// The first unsettled line.
    resume_from: u64,
    /// Lines whose push certainly failed.
    not_stored: u64,
    /// Lines that may or may not be stored.
    unknown: u64,
    unknown_lines: Ranges,
    /// Stored lines after the first unsettled one.
    stored_lines: Ranges,
}

impl Stop {
    fn at(line: u64, why: String) -> Self {
        Self {
            why,
            settled_to: line.saturating_sub(1),
            resume_from: line,
            not_stored: 0,
            unknown: 0,
            unknown_lines: Ranges::default(),
            stored_lines: Ranges::default(),
        }
    }

    /// What people need to know to resume.
    fn explain(&self, recognised: bool) -> String {
        let mut text = vec![format!("the push stopped at line {}: {}", self.resume_from, self.why)];
        if self.settled_to > 0 {
            text.push(format!("All lines up to {} are settled.", self.settled_to));
        }
        if self.unknown > 0 {
            let again = if recognised {
                "those with an id can be pushed again, others could then be there twice"
            } else {
                "pushed again, they could be there twice"
            };
            text.push(format!("Lines {} may or may not be stored; {again}.", self.unknown_lines));
        }
        if !self.stored_lines.0.is_empty() {
            text.push(format!("Lines {} after that are stored.", self.stored_lines));
        }
        text.push(format!("Resume with `tail -n +{}` of the same lines.", self.resume_from));
        text.join("\n")
    }
}

/// Ascending numbers, as ranges of first and last.
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
    /// Records the result of a line.
    fn take(&mut self, line: u64, result: anyqueue::Result<PushOutcome>) {
        match result {
            Ok(PushOutcome::Stored(_) | PushOutcome::Replaced(_)) => self.account.stored += 1,
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

    /// Records that a signal stopped the push before this line.
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

/// Whether the line itself is at fault, which says nothing about other lines.
fn is_of_line(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::TooLarge)
}

/// Whether the message may be stored despite the error.
fn may_be_stored(error: &Error, unique_ids: bool) -> bool {
    match error.retry() {
        RetryClass::MayDuplicate => true,
        // Where ids are unique, repeating with the same id is safe, so the class does not say whether the
        // message was stored. A line that is read again may get another id.
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
    fn neighbours_form_a_range() {
        assert_eq!(ranges(&[3, 4, 5, 7, 9, 10]).to_string(), "3-5, 7, 9-10");
        let odd: Vec<u64> = (0..100).map(|number| 2 * number + 1).collect();
        assert_eq!(ranges(&odd).to_string(), "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, …");
    }

    #[test]
    fn what_may_be_stored_is_distinguished() {
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
