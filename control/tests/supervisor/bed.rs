//! What the tests share: a folder in which shell scripts run as supervised processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyqueue::Result;
use anyqueue_control::supervisor::{Event, Report, Supervisor, SupervisorOptions};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Nothing in a test takes as long.
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Bed {
    folder: TempDir,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
}

/// Short pauses, and nobody gives up.
pub(crate) fn quick() -> SupervisorOptions {
    let pause = Duration::from_millis(10);
    SupervisorOptions::default()
        .with_pauses(pause, pause)
        .with_most_failures(u32::MAX, Duration::from_secs(10))
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), events: Arc::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A supervisor of a shell script under these names; `$0` is the name.
    pub(crate) fn supervisor(&self, names: &[&str], script: &str, options: SupervisorOptions) -> Supervisor {
        let (script, folder) = (script.to_owned(), self.folder.path().to_owned());
        let command = move |name: &str| {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(&script).arg(name).current_dir(&folder);
            command
        };
        self.supervisor_of(names, command, options)
    }

    pub(crate) fn supervisor_of(
        &self,
        names: &[&str],
        command: impl Fn(&str) -> Command + Send + Sync + 'static,
        options: SupervisorOptions,
    ) -> Supervisor {
        let events = self.events.clone();
        let names = names.iter().map(|name| (*name).to_owned());
        let supervisor = Supervisor::new(names, command, options).unwrap();
        supervisor.on_event(move |event| events.lock().unwrap().push(event.clone())).unwrap()
    }

    /// The lines of a file that is there or not.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a file has so many lines.
    pub(crate) async fn until_lines(&self, name: &str, count: usize) -> Vec<String> {
        until(&format!("{name} has {count} lines"), || {
            Some(self.lines(name)).filter(|lines| lines.len() >= count)
        })
        .await
    }
}

/// Looks until there is something.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

pub(crate) type Running = JoinHandle<Result<Report>>;

/// Runs until it is told to end.
pub(crate) fn start(supervisor: &Supervisor) -> Running {
    let supervisor = supervisor.clone();
    tokio::spawn(async move { supervisor.run_until(std::future::pending()).await })
}

pub(crate) async fn end(running: Running) -> Result<Report> {
    tokio::time::timeout(PATIENCE, running).await.unwrap_or_else(|_| panic!("the supervisor hangs")).unwrap()
}
