//! `anyqueue work`: runs a command for each message.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Expired, PartitionId, PartitionOptions};
use anyqueue_control::limits::Limits;
use anyqueue_control::registry::{Ended, MemberOptions, Registry};
use anyqueue_worker::{Partition, Retry, Summary, Worker};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::control::{Control, ControlArgs};
use super::cron::with_schedules;
use super::keep::KeepArgs;
use super::note_pause;
use super::supervise::{Plan, SuperviseArgs, follow_supervisor, is_to_be_replaced};
use crate::exec::{Exec, Stdout};
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
  anyqueue work sums --exec bc --keep-output --keep-success 7d
  anyqueue work mail --processes 4 --name mail --max-tasks 10000 --exec ./send-mail
  anyqueue work reports --exec ./report --cron

The command is a line for /bin/sh. It reads the payload from standard input, and finds in its environment:
  ANYQUEUE_MESSAGE_ID  the same for each attempt: use it to recognise repeats   ANYQUEUE_QUEUE
  ANYQUEUE_ATTEMPT     from 1                                                   ANYQUEUE_DELIVERIES
  ANYQUEUE_HEADER_...  each header, in capitals; a.b and a-b are the same       ANYQUEUE_HEADERS  all, as JSON
  ANYQUEUE_TASK_ID, ANYQUEUE_SESSION_ID, ANYQUEUE_KIND, ANYQUEUE_PRIORITY, TRACEPARENT
A variable of more than 100 kB, and whatever exceeds 500 kB in total, is left out, headers first; ANYQUEUE_OMITTED then
says how many. ANYQUEUE_URL is not passed on.

Its exit code decides what happens to the message:
  0        processed: it is removed
  64, 65   bad input (EX_USAGE, EX_DATAERR), or the codes of --dead-on: it becomes a dead letter
  others   failed, such as 75 (EX_TEMPFAIL): it is tried again after --retry-delay, then twice that, and so on,
           up to --retries times, then becomes a dead letter; so too if a signal killed the command
The last line that a failed command writes to standard error becomes part of the reason, which `dead list` shows
and `dead redrive --reason` searches.

The command's output goes where the worker's goes; with --json its standard output goes to standard error. Failed
attempts, and an unreachable backend, are reported on standard error. A process that the command leaves behind loses
its standard error when the worker ends.

With --cron it also runs the schedules of `anyqueue cron`, for all queues. Any number of workers can do this: each time is
run by one of them.

The worker appears in `anyqueue workers` and obeys `anyqueue limits` where the backend can keep those; on RabbitMQ and SQS,
give --control-url.

With --processes this command runs no message itself. It starts workers called NAME-1, NAME-2, …. It restarts one that
fails, after 1 s, then twice that, up to 30 s; and kills and restarts one whose beats are missing in `anyqueue workers`.
One that was recycled or has reached --max-tasks or --max-memory is replaced at once, one that was stopped is not. If every
worker fails 8 times in a row within 10 s, it gives up. It passes SIGTERM and SIGINT on, and kills workers that are still
there 30 s after they should have ended. If it is killed itself, its workers shut down.

With --ledger, --ledger-url or one of the --keep options, what happened to each message is kept, and `anyqueue tasks` shows
it. With --keep-output, what a successful command wrote is kept too, up to 256 KiB, and is not passed on.

When its time is up, or its message is lost to another worker, all processes of the command get SIGTERM, and after
--grace SIGKILL. Processes that are still there when the command exits by itself are left alone. A message that timed
out becomes a dead letter, or with --retry-timeouts is tried again.

On SIGTERM or SIGINT the worker takes no more messages, waits up to --drain for running commands, then stops them and
releases their messages, without counting an attempt. A second signal skips the wait. A closed terminal counts as a
signal, unless the worker was started with nohup. If the worker itself is killed with SIGKILL, running commands continue,
and their messages are delivered again when their leases end.";

/// Runs a command for each message
#[derive(Args)]
#[command(after_help = HELP)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Work {
    /// The queues; they share the slots
    #[arg(value_name = "QUEUE", required = true, value_parser = queue_name)]
    queues: Vec<PartitionId>,
    /// The command, a line for the shell
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// How many commands run at once; by default, one for each processor
    #[arg(long, short = 'j', value_name = "N")]
    slots: Option<NonZeroUsize>,
    /// How long an attempt may take; a message's own limit takes precedence
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// How often a failed message is tried again; a message's own number takes precedence
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,
    /// The delay before the first retry; it doubles with each
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    retry_delay: Duration,
    /// Retries after timeouts too
    #[arg(long)]
    retry_timeouts: bool,
    /// Exit codes after which a message is not retried
    #[arg(long, value_name = "CODES", value_delimiter = ',', default_value = "64,65")]
    dead_on: Vec<u8>,
    /// How long a shutdown waits for running commands
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// How long a command may continue after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Ends when the queues are empty, without waiting for delayed messages
    #[arg(long)]
    once: bool,
    /// How long a message is held before another worker may get it; the worker extends it while the command runs
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// How many deliveries a message may have before it becomes a dead letter, for example because it kills
    /// its workers
    #[arg(long, value_name = "N")]
    max_deliveries: Option<u32>,
    /// What to do with expired messages
    #[arg(long, value_name = "HOW", value_enum, default_value = "remove")]
    expired: ExpiredAction,
    #[command(flatten)]
    keep: KeepArgs,
    /// Keeps the command's standard output as the result of its task, and does not pass it on
    #[arg(long)]
    keep_output: bool,
    /// The name of the worker in `anyqueue tasks` and `anyqueue workers`; by default, the host name and the
    /// process id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Keeps the worker out of `anyqueue workers`
    #[arg(long)]
    no_register: bool,
    /// The application that it works for: it does not start on a machine that `anyqueue workers dedicate`
    /// keeps for another one
    #[arg(long, value_name = "NAME", conflicts_with = "no_register")]
    application: Option<String>,
    /// Also runs the schedules of `anyqueue cron`
    #[arg(long)]
    cron: bool,
    /// Ignores `anyqueue limits`, and is not counted by them
    #[arg(long)]
    no_limits: bool,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    supervision: SuperviseArgs,
}

/// If a handler takes this much longer to stop than the grace of its command, it is dropped.
const KILL_TIME: Duration = Duration::from_secs(5);

impl Work {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let (output, options) = (session.output, self.keep.with_kinds(self.options()));
        let keep = self.keep.keep_on(session);
        if self.keep_output && keep.is_none() {
            let text = "--keep-output keeps the output with the end of its task: add --ledger, or one of the other --keep options";
            return Err(Failure::Usage(text.to_owned()));
        }
        if let Some(processes) = self.supervision.to_start() {
            let control = (!self.no_register).then_some(&self.control);
            let end = self.drain.saturating_add(self.grace).saturating_add(KILL_TIME);
            let plan = Plan { name: self.name, control, end };
            return self.supervision.supervise(processes, plan, session).await;
        }
        let queue = session.queue_with(Create::AsUrlSays, options, keep).await?;
        session.warn_of_ledger().await?;
        let exec = Arc::new(Exec {
            line: self.exec,
            dead_on: self.dead_on,
            grace: self.grace,
            stdout: match (self.keep_output, output.json) {
                (true, _) => Stdout::Kept,
                (false, true) => Stdout::ToStderr,
                (false, false) => Stdout::Inherited,
            },
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
        builder = self.supervision.apply(builder, self.name);
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        let control = if self.cron {
            // If nothing keeps schedules, this is an error.
            Some(self.control.open(&queue, Create::AsUrlSays).await?)
        } else if self.no_register && self.no_limits {
            None
        } else {
            self.control.open_if_any(&queue).await?
        };
        if let Some(control) = control.as_ref().filter(|_| !self.no_limits) {
            let permits = Limits::new(control.store.clone()).permits(self.supervision.permit_options())?;
            builder = builder.permits(permits);
        }
        let worker = builder.build()?;
        for limitation in worker.limitations() {
            output.note(&limitation);
        }
        for name in &self.queues {
            note_pause(&queue, name, output).await;
        }
        let scheduler = control.as_ref().filter(|_| self.cron).map(|control| control.scheduler(&queue));
        let scheduler = scheduler.transpose()?;
        let work = async { if self.once { once(&worker).await } else { run(&worker).await } };
        let registry = control.as_ref().filter(|_| !self.no_register);
        if self.application.is_some() && registry.is_none() {
            let text = "--application needs a registry of workers, and this backend has none: give one with --control-url";
            return Err(Failure::Usage(text.to_owned()));
        }
        let mut member = self.supervision.member_options();
        if let Some(application) = self.application {
            member = member.with_application(application);
        }
        let work = registered(registry, &worker, member, work);
        let work = with_schedules(scheduler, work);
        let (end, ended) = tokio::select! {
            end = work => end,
            never = report_failures(&worker, output) => match never {},
            never = follow_supervisor(&worker) => match never {},
        };
        let is_again = end.as_ref().is_ok_and(|summary| is_to_be_replaced(summary, ended, self.once));
        let reported = end.map_err(Failure::from).and_then(|summary| report(output, &summary));
        let let_go = match control {
            Some(control) => control.close().await,
            None => Ok(()),
        };
        let closed = queue.close().await;
        reported.and(let_go).and(closed.map_err(Failure::from))?;
        if is_again { Err(Failure::Again) } else { Ok(()) }
    }

    fn options(&self) -> PartitionOptions {
        let expired = match self.expired {
            ExpiredAction::Remove => Expired::Remove,
            ExpiredAction::DeadLetter => Expired::DeadLetter,
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

/// What to do with expired messages.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExpiredAction {
    Remove,
    DeadLetter,
}

/// Does the work as a member of the registry, if there is one.
async fn registered(
    control: Option<&Control>,
    worker: &Worker,
    options: MemberOptions,
    work: impl Future<Output = anyqueue::Result<Summary>>,
) -> (anyqueue::Result<Summary>, Ended) {
    let Some(control) = control else { return (work.await, Ended::Unasked) };
    match Registry::new(control.store.clone()).join(worker, options).await {
        Ok(member) => member.during(work).await,
        Err(error) => (Err(error), Ended::Unasked),
    }
}

/// Runs until a signal comes.
async fn run(worker: &Worker) -> anyqueue::Result<Summary> {
    let mut work = pin!(worker.run());
    tokio::select! { end = &mut work => return end, () = hangup() => worker.shutdown() }
    work.await
}

/// Reports when pulls or settlements begin to fail, and when they succeed again: the worker itself keeps
/// trying.
async fn report_failures(worker: &Worker, output: Output) -> Infallible {
    let mut reported = BTreeMap::new();
    let mut no_permits = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let health = worker.health();
        report_permits(&mut no_permits, health.permits, output);
        let failing: BTreeMap<_, _> =
            health.failing.into_iter().map(|(name, error)| (name, with_causes(&error))).collect();
        for (name, error) in &failing {
            if !reported.contains_key(name) {
                output.warn(&format!("{name}: the backend fails, trying again: {error}"));
            }
        }
        for name in reported.keys().filter(|name| !failing.contains_key(*name)) {
            output.note(&format!("{name}: the backend answers again"));
        }
        reported = failing;
    }
}

/// Reports why there are no permits, and when there are some again.
fn report_permits(reported: &mut Option<String>, problem: Option<String>, output: Output) {
    match (&*reported, &problem) {
        (None, Some(problem)) => output.warn(problem),
        (Some(_), None) => output.note("limits can be reached again"),
        _ => {}
    }
    *reported = problem;
}

/// How often the worker's health is checked.
const LOOK: Duration = Duration::from_millis(500);

/// Runs until no work is left, or a signal comes; a second signal skips the drain.
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
    // Commands write to standard output: the summary must not end up between their lines.
    let shown = all.iter().enumerate().filter(|(place, (_, count))| *place == 0 || *count > 0);
    let shown: Vec<_> = shown.map(|(_, (name, count))| format!("{name} {count}")).collect();
    output.note(&shown.join(", "));
    Ok(())
}
