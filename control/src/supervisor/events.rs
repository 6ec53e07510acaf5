//! What a supervisor reports.

use std::fmt;
use std::time::Duration;

/// Something that happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The process was started.
    Started {
        /// Its name.
        name: String,
        /// Its process id.
        pid: u32,
    },
    /// The process has ended with 0, and is not restarted.
    Done {
        /// Its name.
        name: String,
    },
    /// The process asked to be restarted.
    Recycled {
        /// Its name.
        name: String,
    },
    /// The process failed.
    Failed {
        /// Its name.
        name: String,
        /// How it failed, in words.
        how: String,
        /// How long until it is restarted.
        pause: Duration,
    },
    /// The beats of the process are missing: it is killed.
    Hung {
        /// Its name.
        name: String,
    },
    /// The process did not end within the grace: it is killed.
    Killed {
        /// Its name.
        name: String,
    },
    /// Nobody can tell whether processes hang, because the registry fails. Reported once, until the registry
    /// responds again.
    Blind {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { name, pid } => write!(f, "{name} was started as process {pid}"),
            Self::Done { name } => write!(f, "{name} is done"),
            Self::Recycled { name } => write!(f, "{name} is started again"),
            Self::Failed { name, how, pause } => {
                let pause = Duration::from_millis(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
                write!(f, "{name} {how}; it is started again in {}", humantime::format_duration(pause))
            }
            Self::Hung { name } => write!(f, "{name} gives no sign of life and is killed"),
            Self::Killed { name } => write!(f, "{name} did not end in time and is killed"),
            Self::Blind { why } => {
                write!(f, "whether processes hang cannot be told, since the registry fails: {why}")
            }
        }
    }
}

/// What became of the processes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How often a process was started.
    pub started: u64,
    /// How often a process asked to be restarted.
    pub recycled: u64,
    /// How often a process failed, including those that hung.
    pub failed: u64,
    /// How often a process hung.
    pub hung: u64,
    /// How many did not end within the grace of the shutdown.
    pub killed: u64,
}

impl Report {
    pub(super) fn count(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.started += 1,
            Event::Recycled { .. } => self.recycled += 1,
            Event::Failed { .. } => self.failed += 1,
            Event::Hung { .. } => self.hung += 1,
            Event::Killed { .. } => self.killed += 1,
            Event::Done { .. } | Event::Blind { .. } => {}
        }
    }
}
