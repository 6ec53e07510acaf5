//! `anyqueue cron list`.

use anyqueue_control::cron::{ScheduleInfo, Scheduler};
use clap::Args;

use super::line::{line, utc};
use crate::failure::{Failure, Result, with_causes};
use crate::output::{Output, Table, preview};

/// Lists the schedules: when each is due next, and what happened at its last time
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue cron list
  anyqueue cron list report --json

What happened at the last time:
  pushed   its message was pushed            missed   it was too late
  running  an earlier message was there      refused  the backend takes no such message
  paused   the schedule was paused

A next time that is in the past means that no `anyqueue work --cron` runs.")]
pub(super) struct List {
    /// Only this one
    #[arg(value_name = "SCHEDULE")]
    name: Option<String>,
}

impl List {
    pub(super) async fn run(self, scheduler: &Scheduler, output: Output) -> Result {
        let found = match &self.name {
            Some(name) => scheduler.get(name).await?.into_iter().collect(),
            None => all(scheduler, output).await?,
        };
        if found.is_empty() {
            output.note("no schedule was found");
            return Err(Failure::Nothing);
        }
        let mut table = Table::new(&["schedule", "spec", "zone", "queue", "next", "last", "due"]);
        for info in &found {
            if output.json {
                output.object(&line(info))?;
            } else {
                table.row(row(info));
            }
        }
        if output.json { Ok(()) } else { table.print(output) }
    }
}

async fn all(scheduler: &Scheduler, output: Output) -> Result<Vec<ScheduleInfo>> {
    let all = scheduler.list().await?;
    for (name, error) in &all.unreadable {
        output.warn(&format!("{}: {}", preview(name.as_bytes(), 256), with_causes(error)));
    }
    Ok(all.schedules)
}

fn row(info: &ScheduleInfo) -> [String; 7] {
    let schedule = &info.schedule;
    let next = match info.next_at {
        _ if info.is_paused => "paused".to_owned(),
        Some(next) => utc(next),
        None => "never".to_owned(),
    };
    let (last, due) = info.last.as_ref().map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |last| (last.outcome.as_str().to_owned(), utc(last.due_at)),
    );
    [
        preview(schedule.name.as_bytes(), 60),
        schedule.timetable.spec().to_string(),
        schedule.timetable.zone().to_string(),
        schedule.partition.to_string(),
        next,
        last,
        due,
    ]
}
