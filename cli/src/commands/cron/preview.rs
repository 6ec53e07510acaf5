//! `anyqueue cron preview`: shows the times of a spec, without any store.

use std::num::NonZeroU16;
use std::time::SystemTime;

use anyqueue_control::cron::Timetable;
use clap::Args;
use serde_json::json;

use super::line::utc;
use super::put::When;
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Shows the next times of a spec in its time zone
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue cron preview '*/15 9-17 * * MON-FRI'
  anyqueue cron preview '30 2 * * *' --zone Europe/Berlin --after 2026-03-27T00:00:00Z --count 3")]
pub(super) struct Preview {
    #[command(flatten)]
    when: When,
    /// How many times to show
    #[arg(long, short = 'n', value_name = "N", default_value = "5")]
    count: NonZeroU16,
    /// The time to start from, RFC 3339 in UTC; by default, now
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339)]
    after: Option<SystemTime>,
}

impl Preview {
    pub(super) fn run(self, output: Output) -> Result {
        let timetable: Timetable = self.when.timetable();
        let after = self.after.unwrap_or_else(SystemTime::now);
        let mut is_none = true;
        for occurrence in timetable.after(after).take(usize::from(self.count.get())) {
            is_none = false;
            let shifted = if occurrence.is_shifted() { "  the clocks skip its time" } else { "" };
            let local = occurrence.local();
            let value =
                json!({ "at": utc(occurrence.at()), "local": local, "shifted": occurrence.is_shifted() });
            output.result(&format!("{local}{shifted}"), &value)?;
        }
        if is_none {
            output.note("it is never due again");
            return Err(Failure::Nothing);
        }
        Ok(())
    }
}
