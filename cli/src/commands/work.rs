//! `anyqueue work`: runs a command for each message.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Expired, PartitionId, PartitionOptions};
use anyqueue_worker::{Partition, Retry, Summary, Worker};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::tell_pause;
use crate::exec::Exec;
use crate::failure::{Failure, Result, with_causes};
use crate::open::Create;
use crate::output::Output;
use crate::session::{Session, queue_name};
use crate::signals::{end_signal, hangup};

const HELP: &str = "\
Examples:
  anyqueue work mail --exec ./send-mail
  anyqueue work thumbnails --slots 4 --timeout 2m --exec 'convert - -resize 200 \"out/$ANYQUEUE_MESSAGE_ID.png\"'
  anyqueue work mail reports --once --exec 'cat >> received'

The command is a line for /bin/sh. It finds the payload on its standard input, and in its environment:
  ANYQUEUE_MESSAGE_ID  the same for each attempt: key effects by it      ANYQUEUE_QUEUE
  ANYQUEUE_ATTEMPT     from 1                                            ANYQUEUE_DELIVERIES
  ANYQUEUE_HEADER_...  each header, in capitals; a.b and a-b are one     ANYQUEUE_HEADERS  all, as JSON
  ANYQUEUE_TASK_ID, ANYQUEUE_SESSION_ID, ANYQUEUE_KIND, ANYQUEUE_PRIORITY, TRACEPARENT

Its exit code says what becomes of the message:
  0        done: it is removed
  64, 65   wrong input (EX_USAGE, EX_DATAERR), or what --dead-on says: it goes to the dead letters
  others   failed, such as 75 (EX_TEMPFAIL): it is tried again after --retry-delay, twice that, and so on,
           up to --retries times, then it goes to the dead letters; the same if a signal killed the command
Its output goes where the worker's goes; with --json its standard output goes to standard error. Failed attempts,
and that the backend cannot be reached, are told there too.

The last line that a failed command says on standard error becomes part of the reason, which `dead list` shows
and `dead redrive --reason` looks for. A process that it leaves behind loses that standard error when the worker ends.

Of its variables those of more than 100 kB, and what is beyond 500 kB in all, are left out, headers first:
ANYQUEUE_OMITTED then says how many. ANYQUEUE_URL is not passed on.

When its time is over, or its message is lost to somebody else, all its processes get SIGTERM, and SIGKILL
after --grace. Processes that it leaves behind when it exits by itself are left alone. What timed out goes to the dead letters, or with --retry-timeouts is tried again. On SIGTERM or
SIGINT the worker takes nothing more, waits --drain for commands to end, then stops them and gives their
messages back, uncounted; a second signal hurries. So it does when its terminal goes, unless it is started by nohup. If the worker itself is killed with SIGKILL, commands that
run go on, and their messages come to somebody else when the leases end.";

/// Runs a command for each message
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Work {
    /// The queues; they share the slots
    #[arg(value_name = "QUEUE", required = true, value_parser = queue_name)]
    queues: Vec<PartitionId>,
    /// The command, a line for the shell
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// Commands at once; as many as there are processors unless told
    #[arg(long, short = 'j', value_name = "N")]
    slots: Option<NonZeroUsize>,
    /// How long one attempt may take; a message's own limit goes before it
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// How often a failed message is tried again; a message's own number goes before it
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,
    /// The delay before the first retry; it doubles with each
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    retry_delay: Duration,
    /// Tries again what timed out, too
    #[arg(long)]
    retry_timeouts: bool,
    /// Exit codes of messages that must not be tried again
    #[arg(long, value_name = "CODES", value_delimiter = ',', default_value = "64,65")]
    dead_on: Vec<u8>,
    /// How long a shutdown waits for commands that run
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// How long a command may go on after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Ends when the queues are empty; what is delayed is not waited for
    #[arg(long)]
    once: bool,
    /// How long a message is held unless it is renewed, which the worker does; then somebody else gets it
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// After how many deliveries without an end a message goes to the dead letters, as one that kills its workers does
    #[arg(long, value_name = "N")]
    max_deliveries: Option<u32>,
    /// What becomes of messages that have expired
    #[arg(long, value_name = "HOW", value_enum, default_value = "remove")]
    expired: Fate,
}

/// The worker would drop a handler that takes longer to stop than this beyond the grace of its command.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Work {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let (output, options) = (session.output, self.options());
        let queue = session.queue_with(Create::AsTold, options).await?;
        let exec = Arc::new(Exec {
            line: self.exec,
            dead_on: self.dead_on,
            grace: self.grace,
            stdout_is_taken: output.json,
            output,
        });
        let slots =
            self.slots.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut builder = Worker::builder(queue.clone())
            .slots(slots)
            .retry(Retry::exponential(self.retry_delay).max(self.retries))
            .retry_timeouts(self.retry_timeouts)
            .drain(self.drain, self.grace.saturating_add(KILL_TIME))
            .any_handler(move |payload, task| {
                let exec = exec.clone();
                async move { exec.run(payload, task).await }
            });
        for name in &self.queues {
            builder = builder.partition(Partition::new(name.clone()));
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        let worker = builder.build()?;
        for limitation in worker.limitations() {
            output.note(&limitation);
        }
        for name in &self.queues {
            tell_pause(&queue, name, output).await;
        }
        let work = async { if self.once { once(&worker).await } else { run(&worker).await } };
        let end =
            tokio::select! { end = work => end, never = tell_failures(&worker, output) => match never {} };
        let told = end.map_err(Failure::from).and_then(|summary| report(output, &summary));
        let closed = queue.close().await;
        told.and(closed.map_err(Failure::from))
    }

    fn options(&self) -> PartitionOptions {
        let expired = match self.expired {
            Fate::Remove => Expired::Remove,
            Fate::DeadLetter => Expired::DeadLetter,
        };
        let mut options = PartitionOptions::default().with_expired(expired);
        if let Some(lease) = self.lease {
            options = options.with_lease(lease);
        }
        if let Some(most) = self.max_deliveries {
            options = options.with_max_deliveries(Some(most));
        }
        options
    }
}

/// What becomes of messages that have expired.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fate {
    Remove,
    DeadLetter,
}

/// Works until it is told to end.
async fn run(worker: &Worker) -> anyqueue::Result<Summary> {
    let mut work = pin!(worker.run());
    tokio::select! { end = &mut work => return end, () = hangup() => worker.shutdown() }
    work.await
}

/// Tells when pulls begin to fail, and when they no longer do: the worker itself goes on trying.
async fn tell_failures(worker: &Worker, output: Output) -> Infallible {
    let mut told = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let failing: BTreeMap<_, _> =
            worker.health().failing.into_iter().map(|(name, error)| (name, with_causes(&error))).collect();
        for (name, error) in &failing {
            if !told.contains_key(name) {
                output.warn(&format!("{name}: cannot pull, trying again: {error}"));
            }
        }
        for name in told.keys().filter(|name| !failing.contains_key(*name)) {
            output.note(&format!("{name}: pulls again"));
        }
        told = failing;
    }
}

/// How often it is looked whether pulls fail.
const LOOK: Duration = Duration::from_millis(500);

/// Works until nothing is left, or a signal comes; a second one hurries.
async fn once(worker: &Worker) -> anyqueue::Result<Summary> {
    let mut work = pin!(worker.run_once());
    tokio::select! { end = &mut work => return end, heard = end_signal() => heard.map(|()| worker.shutdown())? }
    tokio::select! { end = &mut work => return end, heard = end_signal() => heard.map(|()| worker.shutdown_now())? }
    work.await
}

fn report(output: Output, summary: &Summary) -> Result {
    let all = [
        ("processed", summary.processed),
        ("retried", summary.retried),
        ("dead", summary.dead),
        ("cancelled", summary.cancelled),
        ("interrupted", summary.interrupted),
        ("released", summary.released),
        ("lost", summary.lost),
        ("deferred", summary.deferred),
        ("unsettled", summary.unsettled),
        ("abandoned", summary.abandoned),
    ];
    if output.json {
        let object: serde_json::Map<_, _> =
            all.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
        return output.object(&object);
    }
    // Commands write to standard output: the account must not get between their lines.
    let told = all.iter().enumerate().filter(|(place, (_, count))| *place == 0 || *count > 0);
    let told: Vec<_> = told.map(|(_, (name, count))| format!("{name} {count}")).collect();
    output.note(&told.join(", "));
    Ok(())
}
