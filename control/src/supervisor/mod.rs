//! Starts processes, watches them, and replaces them when they end or hang.
//!
//! A [`Supervisor`] keeps one process for each of its names. What an exit means:
//!
//! | how it ended | what follows |
//! |---|---|
//! | with 0 | it is done, as after [`Order::Stop`](crate::registry::Order::Stop), and is not restarted |
//! | with [`RECYCLE_EXIT_CODE`] | it is restarted at once: it was recycled, or has reached a limit of its own |
//! | in any other way | it has failed: it is restarted after a pause that doubles |
//! | not, but its beats in the [registry](crate::registry) are missing | it hangs: it is killed, and has failed |
//!
//! No process outlives its supervisor for long, even if the supervisor is killed: the standard input of each
//! process is a pipe that closes then. The process waits for that with [`supervisor_ended`], and ends in an
//! orderly way.

mod backoff;
mod child;
mod events;
mod options;
mod orphan;
mod place;
mod shared;
mod silence;

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use anyqueue::{Error, ErrorKind, Result};
use anyqueue_worker::shutdown_signal;
use futures_util::future::join_all;
use tokio::process::Command;

pub use events::{Event, Report};
pub use options::{RECYCLE_EXIT_CODE, SupervisorOptions};
pub use orphan::supervisor_ended;

use crate::registry::Registry;
use shared::{Shared, Stage};

/// The largest number of processes that one supervisor keeps.
pub const MAX_PROCESSES: usize = 1000;

/// Keeps a process for each of several names. Cheap to clone: all clones are the same supervisor, so that one
/// can end what another one runs.
///
/// ```no_run
/// # async fn supervise() -> anyqueue::Result<()> {
/// use anyqueue_control::supervisor::{Supervisor, SupervisorOptions};
/// use tokio::process::Command;
///
/// let names = ["mail-1", "mail-2"].map(str::to_owned);
/// let command = |name: &str| {
///     let mut command = Command::new("/usr/local/bin/mail-worker");
///     command.arg("--name").arg(name);
///     command
/// };
/// let supervisor = Supervisor::new(names, command, SupervisorOptions::default())?;
/// let report = supervisor.run().await?; // until SIGTERM or SIGINT
/// println!("{} were replaced after a failure", report.failed);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Supervisor(Arc<Shared>);

impl Supervisor {
    /// Makes a supervisor, which starts nothing yet. `command` makes the command for a name, each time that
    /// its process is started. The supervisor sets the standard input and the process group of the command:
    /// signals of a terminal reach only the supervisor, which passes them on.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) without a name, with more than [`MAX_PROCESSES`], with the
    /// same name twice, and for options that do not fit together.
    pub fn new(
        names: impl IntoIterator<Item = String>,
        command: impl Fn(&str) -> Command + Send + Sync + 'static,
        options: SupervisorOptions,
    ) -> Result<Self> {
        options.check()?;
        let names: Vec<_> = names.into_iter().collect();
        if names.is_empty() || names.len() > MAX_PROCESSES {
            let text = format!("{} processes: supervise 1 to {MAX_PROCESSES}", names.len());
            return Err(Error::invalid(text));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(Error::invalid(format!("two processes are called {twice:?}: name each once")));
        }
        Ok(Self(Arc::new(Shared::new(names, Box::new(command), options))))
    }

    /// Sets a function that is called for each event, when it happens; it must not block.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the supervisor has been cloned already.
    pub fn on_event(mut self, tell: impl Fn(&Event) + Send + Sync + 'static) -> Result<Self> {
        self.only_one()?.tell = Some(Box::new(tell));
        Ok(self)
    }

    /// Looks for the processes among the workers of a registry, under the same names, and kills those whose
    /// beats are missing: after a first beat, or if there is none within
    /// [`start_within`](SupervisorOptions::start_within).
    ///
    /// A process is killed only if three looks in a row find its beat missing, and the store accepts what the
    /// supervisor itself writes: a store that accepts no writes makes all workers silent, which is no reason
    /// to kill one.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the supervisor has been cloned already.
    pub fn watching(mut self, registry: Registry) -> Result<Self> {
        self.only_one()?.registry = Some(registry);
        Ok(self)
    }

    fn only_one(&mut self) -> Result<&mut Shared> {
        Arc::get_mut(&mut self.0)
            .ok_or_else(|| Error::invalid("this supervisor was cloned: set it up before that"))
    }

    /// Runs until SIGTERM or SIGINT, then [shuts down](Self::shutdown); on a second signal it
    /// [hurries](Self::shutdown_now). It also ends when every process is done.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if every process failed [too
    /// often](SupervisorOptions::most_failures) in a row; if the process cannot listen to signals;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if this supervisor has run before.
    ///
    /// # Cancellation
    /// Dropping the future closes the pipes of all processes, which ends those that [watch for
    /// it](supervisor_ended).
    pub async fn run(&self) -> Result<Report> {
        let mut work = pin!(self.work());
        tokio::select! { biased; end = &mut work => return end, heard = shutdown_signal() => heard.map(|()| self.shutdown())? }
        tokio::select! { biased; end = &mut work => return end, heard = shutdown_signal() => heard.map(|()| self.shutdown_now())? }
        work.await
    }

    /// Runs until the future ends, then [shuts down](Self::shutdown).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancellation
    /// As [`run`](Self::run).
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<Report> {
        let mut work = pin!(self.work());
        tokio::select! { biased; end = &mut work => return end, () = shutdown => self.shutdown() }
        work.await
    }

    /// Sends SIGTERM to each process and restarts none. Processes that are still there after the
    /// [grace](SupervisorOptions::grace) are killed. Returns without waiting.
    pub fn shutdown(&self) {
        self.0.advance(Stage::Draining);
    }

    /// Like [`shutdown`](Self::shutdown), but sends SIGTERM once more: a worker then asks its tasks to stop.
    pub fn shutdown_now(&self) {
        self.0.advance(Stage::Hurrying);
    }

    async fn work(&self) -> Result<Report> {
        let shared = &self.0;
        if shared.has_run.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return Err(Error::invalid("this supervisor has already run: create another one"));
        }
        let all = join_all(shared.places.iter().map(|place| place::keep(shared, place)));
        let watch = async {
            match &shared.registry {
                Some(registry) => silence::watch(shared, registry).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = all => {}, never = watch => match never {} }
        match shared.gave_up() {
            Some(text) => Err(Error::new(ErrorKind::Unavailable, text)),
            None => Ok(shared.report()),
        }
    }
}
