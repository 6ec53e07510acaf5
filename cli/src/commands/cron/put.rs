//! `anyqueue cron put`.

use std::time::Duration;

use anyqueue::PartitionId;
use anyqueue_control::cron::{self, Missed, Running, Schedule, Scheduler, Spec, Timetable, Zone};
use clap::{Args, ValueEnum};

use super::line::{line, utc};
use crate::failure::Result;
use crate::output::{Output, preview};
use crate::session::{pair, queue_name};

/// Stores a schedule, and replaces one of the same name
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue cron put report '0 7 * * MON-FRI' --zone Europe/Berlin --queue reports
  anyqueue cron put sync '*/5 * * * *' --queue jobs --kind sync '{\"full\":false}'
  anyqueue cron put bill '0 0 1 * *' --queue bills --missed all:12 --running allow
  anyqueue cron put crawl '@after 10m' --queue crawls

SPEC has five fields (minute, hour, day of the month, month, day of the week), or six with the second in front; or is
@hourly, @daily, @weekly, @monthly or @yearly; or says how long after the end of its last run: '@after 10m'. Try it with
`anyqueue cron preview`.

It counts from now on. Storing the same schedule again changes nothing, and a paused one stays paused.

The message has the task id cron/SCHEDULE, and the headers cron-name and cron-at, the time at which it was due.")]
pub(super) struct Put {
    /// The name of the schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,
    #[command(flatten)]
    when: When,
    /// The payload of its messages
    #[arg(value_name = "PAYLOAD", default_value = "")]
    payload: String,
    /// The queue that its messages are pushed to
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    queue: PartitionId,
    /// The kind of its messages, by which a worker of the library chooses the handler
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Adds a header; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// Priority, higher is more urgent
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u8,
    /// Which times are run that were missed while no `anyqueue work --cron` ran: latest, none, or all:N for
    /// the latest N
    #[arg(long, value_name = "WHICH", default_value = "latest", value_parser = missed)]
    missed: Missed,
    /// How late a message may be; by default without limit
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
    /// What to do at a time while an earlier message is there: skip it, push another message beside the
    /// earlier one, let one message wait behind the one that is being processed, or cancel the earlier one
    #[arg(long, value_name = "WHAT", value_enum, default_value = "skip")]
    running: WhileRunning,
}

/// When something comes.
#[derive(Args)]
pub(super) struct When {
    /// When it is due, in the fields of cron
    #[arg(value_name = "SPEC", value_parser = spec)]
    spec: Spec,
    /// The time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    zone: Zone,
    /// What to do with fixed times that the clocks skip: run them right after, or not at all
    #[arg(long, value_name = "WHAT", value_enum, default_value = "shift")]
    gap: Gap,
    /// When to run fixed times that the clocks show twice
    #[arg(long, value_name = "WHICH", value_enum, default_value = "first")]
    overlap_hour: OverlapHour,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gap {
    Shift,
    Skip,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverlapHour {
    First,
    Last,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhileRunning {
    Skip,
    Allow,
    #[value(name = "buffer_one", alias = "buffer-one")]
    BufferOne,
    #[value(name = "cancel_old", alias = "cancel-old")]
    CancelOld,
}

fn spec(text: &str) -> Result<Spec, String> {
    text.parse().map_err(|error: anyqueue::Error| error.message().to_owned())
}

fn zone(text: &str) -> Result<Zone, String> {
    text.parse().map_err(|error: anyqueue::Error| error.message().to_owned())
}

fn missed(text: &str) -> Result<Missed, String> {
    match text.split_once(':') {
        None if text == "latest" => Ok(Missed::Latest),
        None if text == "none" => Ok(Missed::None),
        Some(("all", most)) => most.parse().map(Missed::All).map_err(|error| format!("{most}: {error}")),
        _ => Err("write latest, none, or all:N".to_owned()),
    }
}

impl When {
    pub(super) fn timetable(self) -> Timetable {
        let gap = match self.gap {
            Gap::Shift => cron::Gap::Shift,
            Gap::Skip => cron::Gap::Skip,
        };
        let overlap = match self.overlap_hour {
            OverlapHour::First => cron::Overlap::First,
            OverlapHour::Last => cron::Overlap::Last,
        };
        Timetable::new(self.spec, self.zone).with_gap(gap).with_overlap(overlap)
    }
}

impl Put {
    pub(super) async fn run(self, scheduler: &Scheduler, output: Output) -> Result {
        let running = match self.running {
            WhileRunning::Skip => Running::Skip,
            WhileRunning::Allow => Running::Allow,
            WhileRunning::BufferOne => Running::BufferOne,
            WhileRunning::CancelOld => Running::CancelOld,
        };
        let mut schedule = Schedule::new(self.name, self.when.timetable(), self.queue)
            .with_payload(self.payload)
            .with_priority(self.priority)
            .with_missed(self.missed)
            .with_running(running);
        for (name, value) in self.header {
            schedule = schedule.with_header(name, value);
        }
        if let Some(kind) = self.kind {
            schedule = schedule.with_kind(kind);
        }
        if let Some(deadline) = self.deadline {
            schedule = schedule.with_deadline(deadline);
        }
        let info = scheduler.put(&schedule).await?;
        let name = preview(info.schedule.name.as_bytes(), 256);
        let next = info
            .next_at
            .map_or_else(|| "is never due again".to_owned(), |next| format!("is due next at {}", utc(next)));
        let paused = if info.is_paused { ", but is paused: see `anyqueue cron resume`" } else { "" };
        output.result(&format!("{name} {next}{paused}"), &line(&info))
    }
}
