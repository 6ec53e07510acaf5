//! Runs a command for a message: the payload on its standard input, the rest in its environment, its exit code as the result.

mod environment;
mod stderr;
mod stdout;

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyqueue::{Bytes, MAX_RESULT_BYTES};
use anyqueue_worker::{TaskContext, TaskError, TaskResult};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use self::environment::Environment;
use self::stderr::Stderr;
use self::stdout::{Kept, Written};
use crate::output::Output;
use crate::session::{SUPERVISED_VARIABLE, URL_VARIABLE};

/// What to run, and how to read its exit code.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    /// A command line for the shell.
    pub(crate) line: String,
    /// Exit codes after which a retry cannot help.
    pub(crate) dead_on: Vec<u8>,
    /// How long the command may continue after SIGTERM.
    pub(crate) grace: Duration,
    pub(crate) stdout: Stdout,
    pub(crate) output: Output,
}

/// Where a command's standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdout {
    /// To the worker's standard output.
    Inherited,
    /// To the worker's standard error, because the worker writes JSON to its standard output.
    ToStderr,
    /// It becomes the result of the task.
    Kept,
}

/// The pause between two attempts to start a command.
const RESTART: Duration = Duration::from_secs(1);
/// The pause between two checks whether stopped processes are gone.
const LOOK: Duration = Duration::from_millis(20);

impl Exec {
    /// Runs the command for one message. Once the command was asked to stop, its exit code does not count:
    /// whether it had finished its work is unknown. If this future is dropped, all processes of the command
    /// are killed.
    pub(crate) async fn run(&self, payload: Bytes, task: TaskContext) -> TaskResult {
        let result = self.run_once(payload, &task).await;
        if let Err(error) = &result {
            let (id, attempt) = (task.message().id(), task.attempt());
            self.output.note(&format!("{} {id}, attempt {attempt}: {error}", task.partition()));
        }
        result
    }

    async fn run_once(&self, payload: Bytes, task: &TaskContext) -> TaskResult {
        let mut child = self.start(task).await?;
        let stderr = child.stderr.take().map(Stderr::pass_on);
        let kept = child.stdout.take().map(Kept::read);
        let mut group = Group::of(&child);
        let mut feeding = Box::pin(feed(child.stdin.take(), payload));
        let mut fed = false;
        let ended = loop {
            tokio::select! {
                biased;
                status = child.wait() => break Some(status),
                _ = task.cancelled() => break None,
                () = &mut feeding, if !fed => fed = true,
            }
        };
        drop(feeding);
        let Some(status) = ended else {
            self.stop(&mut child, &group).await;
            group.over();
            let why = task.cancel_reason().map_or("", |reason| reason.as_str());
            return Err(TaskError::retry(format!("the command was stopped: {why}")));
        };
        group.over();
        match status {
            Ok(status) if status.success() => {
                if let Some(kept) = kept {
                    self.keep(kept.written().await, task)?;
                }
                Ok(())
            }
            Ok(status) => {
                let said = match stderr {
                    Some(stderr) => stderr.last_line().await,
                    None => None,
                };
                Err(self.failure(status, said))
            }
            Err(error) => Err(TaskError::retry(format!("waiting for the command failed: {error}"))),
        }
    }

    /// Keeps what the command wrote as the result of its task. If that is not possible, this is no reason to
    /// run it again.
    fn keep(&self, written: Written, task: &TaskContext) -> TaskResult {
        let why = match written {
            Written::All(bytes) => return Ok(task.set_result_bytes(bytes)?),
            Written::TooMuch => format!("it wrote more than {MAX_RESULT_BYTES} bytes"),
            Written::Unfinished => "something that it left behind may still write".to_owned(),
        };
        let (id, partition) = (task.message().id(), task.partition());
        self.output.warn(&format!("{partition} {id}: no result is kept, because {why}"));
        Ok(())
    }

    /// Starts the command. If the machine has no room for another process, the message is not at fault: it is
    /// held until there is room, or the task is cancelled.
    async fn start(&self, task: &TaskContext) -> Result<Child, TaskError> {
        let environment = Environment::of(task);
        loop {
            let error = match self.spawn(environment.fitting()) {
                Ok(child) => return Ok(child),
                // The worker's own environment, or a small stack, leaves less room than usual.
                Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                    match self.spawn(environment.essential()) {
                        Ok(child) => return Ok(child),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::ArgumentListTooLong {
                return Err(TaskError::retry(format!("the command cannot be started: {error}")));
            }
            self.output.warn(&format!("cannot start the command, trying again: {error}"));
            tokio::select! {
                _ = task.cancelled() => {
                    return Err(TaskError::retry("stopped before the command could be started"));
                }
                () = tokio::time::sleep(RESTART) => {}
            }
        }
    }

    fn spawn(&self, environment: Vec<(&str, String)>) -> io::Result<Child> {
        let mut command = shell(&self.line);
        command.envs(environment).stdin(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // These may hold a password, and are meant for this worker.
        command.env_remove(URL_VARIABLE).env_remove(SUPERVISED_VARIABLE);
        match self.stdout {
            Stdout::Inherited => {}
            Stdout::ToStderr => drop(command.stdout(io::stderr())),
            Stdout::Kept => drop(command.stdout(Stdio::piped())),
        }
        // Ctrl-C on the terminal is meant for the worker, which then lets its commands finish.
        #[cfg(unix)]
        command.process_group(0);
        command.spawn()
    }

    /// Sends SIGTERM to all processes of the command, and kills those that do not stop.
    async fn stop(&self, child: &mut Child, group: &Group) {
        group.terminate();
        let gone = async {
            let _ = child.wait().await; // otherwise it stays in its group
            while !group.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(self.grace, gone).await.is_err() {
            group.kill();
        }
        // It was killed or has ended: only the system is left to wait for.
        let _ = child.wait().await;
    }

    /// Why the command failed, with its last words.
    fn failure(&self, status: ExitStatus, said: Option<String>) -> TaskError {
        let how = match status.code() {
            Some(code) => format!("the command exited with {code}"),
            None => format!("the command was killed: {status}"),
        };
        let text = said.map_or_else(|| how.clone(), |said| format!("{how}: {said}"));
        let is_permanent = status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .is_some_and(|code| self.dead_on.contains(&code));
        if is_permanent { TaskError::permanent(text) } else { TaskError::retry(text) }
    }
}

#[cfg(unix)]
fn shell(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line);
    command
}

#[cfg(not(unix))]
fn shell(line: &str) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(line);
    command
}

/// Writes the payload. The command may leave it unread.
async fn feed(stdin: Option<ChildStdin>, payload: Bytes) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&payload).await;
        let _ = stdin.shutdown().await;
    }
}

/// The processes of a command. All of them are killed if this is dropped before the command has ended.
#[derive(Debug)]
struct Group(Option<u32>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id())
    }

    /// The command has ended: its process id may be reused.
    fn over(&mut self) {
        self.0 = None;
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let leader = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader {
            // If the group has just ended, that is fine.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }

    /// Whether no process of the group is left.
    #[cfg(unix)]
    fn is_empty(&self) -> bool {
        let leader = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        leader.is_none_or(|leader| rustix::process::test_kill_process_group(leader).is_err())
    }

    #[cfg(not(unix))]
    fn is_empty(&self) -> bool {
        true
    }

    #[cfg(unix)]
    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    #[cfg(unix)]
    fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    #[cfg(not(unix))]
    fn terminate(&self) {}

    #[cfg(not(unix))]
    fn kill(&self) {}
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
