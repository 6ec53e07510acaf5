//! One process, from its start to its end.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::time::Instant;

use super::events::Event;
use super::options::RECYCLE_EXIT_CODE;
use super::shared::{Place, Shared, Stage};

/// How long a killed process may take to be gone: only the operating system can delay that.
const BURIAL: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    Recycled,
    Failed(String),
}

/// A running process, and the pipe that closes when this process ends. If the pipe were left in the child,
/// `Child::wait` would close it.
struct Life {
    child: Child,
    _pipe: Option<ChildStdin>,
}

/// Starts a process and waits for its end, which a shutdown or a hang may cause.
pub(super) async fn live(shared: &Shared, place: &Place) -> Exit {
    let mut life = match start(shared, &place.name) {
        Ok(life) => life,
        Err(error) => return Exit::Failed(format!("cannot be started: {error}")),
    };
    let number = began(shared, place, life.child.id());
    let exit = life.attend(shared, place, number).await;
    place.state().running = None;
    exit
}

fn start(shared: &Shared, name: &str) -> io::Result<Life> {
    let mut command = (shared.command)(name);
    // In a group of its own: the supervisor passes on the terminal's signals, which would otherwise arrive
    // twice.
    command.stdin(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    Ok(Life { child, _pipe: pipe })
}

/// Notes a start. Returns the number of the life.
fn began(shared: &Shared, place: &Place, pid: Option<u32>) -> u64 {
    let pid = pid.unwrap_or_default();
    let number = {
        let mut state = place.state();
        state.life += 1;
        state.running = Some((pid, Instant::now()));
        state.life
    };
    shared.note(&Event::Started { name: place.name.clone(), pid });
    number
}

impl Life {
    async fn attend(&mut self, shared: &Shared, place: &Place, number: u64) -> Exit {
        let (mut stage, mut hung) = (shared.stage.subscribe(), place.hung.subscribe());
        let (mut told, mut deadline) = (Stage::Running, None);
        loop {
            let now = *stage.borrow_and_update();
            if now > told {
                told = now;
                self.terminate();
                deadline = deadline.or_else(|| Instant::now().checked_add(shared.options.grace));
            }
            tokio::select! {
                biased;
                status = self.child.wait() => return of(status),
                _ = stage.changed() => {}
                () = told_to_die(&mut hung, number) => {
                    shared.note(&Event::Hung { name: place.name.clone() });
                    self.kill().await;
                    return Exit::Failed("hung".to_owned());
                }
                () = until(deadline) => {
                    shared.note(&Event::Killed { name: place.name.clone() });
                    self.kill().await;
                    return Exit::Failed("did not end in time".to_owned());
                }
            }
        }
    }

    /// The process has not been waited for, so its process id is still its own.
    fn terminate(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM); // one that has just ended is fine
        }
    }

    async fn kill(&mut self) {
        let _ = self.child.start_kill(); // one that has just ended is fine
        if tokio::time::timeout(BURIAL, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.child.id(), "a killed process is not gone: the system keeps it");
        }
    }
}

/// Returns when this life has to end because the process hangs.
async fn told_to_die(hung: &mut watch::Receiver<u64>, number: u64) {
    if hung.wait_for(|life| *life == number).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn of(status: io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) if status.success() => Exit::Done,
        Ok(status) if status.code() == Some(i32::from(RECYCLE_EXIT_CODE)) => Exit::Recycled,
        Ok(status) => match status.code() {
            Some(code) => Exit::Failed(format!("exited with {code}")),
            None => Exit::Failed(format!("was killed ({status})")),
        },
        Err(error) => Exit::Failed(format!("cannot be waited for: {error}")),
    }
}
