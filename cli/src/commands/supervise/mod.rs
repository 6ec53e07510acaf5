//! `anyqueue work --processes`: runs several workers, each in a process of its own, and decides when a worker
//! is to be replaced.

#[cfg(unix)]
mod processes;

use std::num::NonZeroUsize;
use std::time::Duration;

use anyqueue_control::limits::PermitOptions;
use anyqueue_control::registry::{Ended, MemberOptions};
use anyqueue_worker::{Summary, Worker, WorkerBuilder};
use clap::Args;

use super::control::ControlArgs;
use crate::failure::Result;
use crate::session::SUPERVISED_VARIABLE;

/// How much longer a worker may take to end than its own time limits allow: for calls, and for what it
/// releases.
const SPARE: Duration = Duration::from_secs(30);
/// How many heartbeats must be missing before a worker is taken for dead and its permits are free.
const BEATS: u32 = 3;

/// Several processes, and when each is replaced.
#[derive(Args, Clone)]
pub(crate) struct SuperviseArgs {
    /// Runs N workers, each a process of its own with its own slots, and replaces those that fail, hang, or reach a limit
    #[arg(long, value_name = "N")]
    processes: Option<NonZeroUsize>,
    /// Ends after this many messages, with exit code 6, once none is running
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tasks: Option<u64>,
    /// Ends between messages, with exit code 6, when the worker itself, without its commands, uses more
    /// memory than this, such as 500M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<u64>,
    /// The time between two beats; a beat counts for three times as long. The same holds for permits
    #[arg(long, hide = true, value_name = "TIME", value_parser = humantime::parse_duration)]
    beat_every: Option<Duration>,
}

/// What the supervisor knows about its workers.
pub(crate) struct Plan<'a> {
    /// Their common name, before the number.
    pub(crate) name: Option<String>,
    /// Where they register, if they do.
    pub(crate) control: Option<&'a ControlArgs>,
    /// How long they may take to end, according to their options.
    pub(crate) end: Duration,
}

/// The name of this process, if a supervisor started it.
fn supervised_as() -> Option<String> {
    std::env::var(SUPERVISED_VARIABLE).ok()
}

impl SuperviseArgs {
    /// How many processes this one is to start; `None` if it is not to supervise.
    pub(super) fn to_start(&self) -> Option<NonZeroUsize> {
        self.processes.filter(|_| supervised_as().is_none())
    }

    /// Applies the worker's limits, and the name that its supervisor gave it.
    pub(super) fn apply(&self, mut builder: WorkerBuilder, name: Option<String>) -> WorkerBuilder {
        if let Some(tasks) = self.max_tasks {
            builder = builder.max_tasks(tasks);
        }
        if let Some(bytes) = self.max_memory {
            builder = builder.max_memory(bytes);
        }
        match supervised_as().or(name) {
            Some(name) => builder.name(name),
            None => builder,
        }
    }

    pub(super) fn member_options(&self) -> MemberOptions {
        let default = MemberOptions::default();
        match self.beat_every {
            Some(every) => default.with_every(every).with_valid_for(every.saturating_mul(BEATS)),
            None => default,
        }
    }

    pub(super) fn permit_options(&self) -> PermitOptions {
        let default = PermitOptions::default();
        match self.beat_every {
            Some(every) => default.with_every(every).with_valid_for(every.saturating_mul(BEATS)),
            None => default,
        }
    }
}

/// Whether whoever started the worker is to start it again. A supervised worker that ended without being
/// stopped, and not because its queues were empty, was ended by somebody else, and is replaced too.
pub(super) fn is_to_be_replaced(summary: &Summary, ended: Ended, once: bool) -> bool {
    let was_ended_by_others = supervised_as().is_some() && !once && ended != Ended::Stopped;
    summary.reached.is_some() || ended == Ended::Recycled || was_ended_by_others
}

/// Shuts the worker down when its supervisor has ended. Never returns.
#[cfg(unix)]
pub(super) async fn follow_supervisor(worker: &Worker) -> std::convert::Infallible {
    if supervised_as().is_some() {
        anyqueue_control::supervisor::supervisor_ended().await;
        worker.shutdown();
    }
    std::future::pending().await
}

#[cfg(not(unix))]
pub(super) async fn follow_supervisor(_: &Worker) -> std::convert::Infallible {
    std::future::pending().await
}

/// Parses a number of bytes: `500M`, `2GiB`, `1048576`. The units are powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("write a number with K, M, G or T, such as 500M".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "write a number with K, M, G or T, such as 500M".to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "this is not a size of memory: write one such as 500M".to_owned())
}

#[cfg(not(unix))]
impl SuperviseArgs {
    /// Refused on this platform: it has no signals to end processes in order.
    pub(crate) async fn supervise(self, _: NonZeroUsize, _: Plan<'_>, _: &crate::session::Session) -> Result {
        Err(crate::failure::Failure::Usage(
            "--processes needs Unix: start several workers yourself".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("1048576", 1 << 20), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1kb", 1024)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "5X", "0", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
