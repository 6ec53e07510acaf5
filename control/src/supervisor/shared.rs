//! What the parts of a supervisor share. It knows none of these parts.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

use super::events::{Event, Report};
use super::options::SupervisorOptions;
use crate::registry::Registry;

/// The stage of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Running,
    /// SIGTERM was sent to each process.
    Draining,
    /// SIGTERM was sent to each process once more.
    Hurrying,
}

pub(super) type MakeCommand = Box<dyn Fn(&str) -> Command + Send + Sync>;
type Tell = Box<dyn Fn(&Event) + Send + Sync>;

/// What the parts of a supervisor share.
pub(super) struct Shared {
    pub(super) command: MakeCommand,
    pub(super) options: SupervisorOptions,
    pub(super) tell: Option<Tell>,
    pub(super) registry: Option<Registry>,
    pub(super) places: Vec<Place>,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) has_run: AtomicBool,
    report: Mutex<Report>,
    gave_up: Mutex<Option<String>>,
}

/// The place of the processes that run under one name, one after the other.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    state: Mutex<PlaceState>,
    /// The life that has to end because its process hangs.
    pub(super) hung: watch::Sender<u64>,
}

/// What is known about a place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlaceState {
    /// Counts its processes, from 1.
    pub(super) life: u64,
    /// The process that runs now, and since when.
    pub(super) running: Option<(u32, Instant)>,
    /// How many lives in a row were short and ended with a failure.
    pub(super) failures: u32,
    /// Whether nothing is started here any more.
    pub(super) is_done: bool,
}

impl Place {
    pub(super) fn state(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub(super) fn new(names: Vec<String>, command: MakeCommand, options: SupervisorOptions) -> Self {
        let place =
            |name| Place { name, state: Mutex::new(PlaceState::default()), hung: watch::Sender::new(0) };
        Self {
            command,
            options,
            tell: None,
            registry: None,
            places: names.into_iter().map(place).collect(),
            stage: watch::Sender::new(Stage::Running),
            has_run: AtomicBool::new(false),
            report: Mutex::new(Report::default()),
            gave_up: Mutex::new(None),
        }
    }

    pub(super) fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let is_forward = to > *stage;
            *stage = to.max(*stage);
            is_forward
        });
    }

    pub(super) fn is_ending(&self) -> bool {
        *self.stage.borrow() > Stage::Running
    }

    /// Counts an event and reports it.
    pub(super) fn note(&self, event: &Event) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).count(event);
        tracing::info!("{event}");
        if let Some(tell) = &self.tell {
            tell(event);
        }
    }

    pub(super) fn report(&self) -> Report {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything, for this reason, if every process that is not done has failed too often.
    pub(super) fn give_up_if_hopeless(&self, how: &str) {
        let most = self.options.most_failures;
        let is_hopeless = |place: &Place| {
            let state = place.state();
            state.is_done || state.failures >= most
        };
        if !self.places.iter().all(is_hopeless) {
            return;
        }
        let least_life = humantime::format_duration(self.options.least_life);
        let text = format!(
            "every process has failed {most} times in a row without living for {least_life}; the last one {how}: fix that, and start again"
        );
        self.gave_up.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        self.advance(Stage::Draining);
    }

    pub(super) fn gave_up(&self) -> Option<String> {
        self.gave_up.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("options", &self.options)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}
