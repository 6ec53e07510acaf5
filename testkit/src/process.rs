//! The processes of a running server: all of them, including those that left its process group.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::{Instant, sleep};

use crate::error::{Doing, Result};

/// How often to check the state of processes.
const POLL: Duration = Duration::from_millis(1);
/// How long collecting the entry of a dead leader may take.
const COLLECT_LIMIT: Duration = Duration::from_secs(30);

/// A server's first process, which leads its process group, and its descendants.
///
/// The group alone is not enough: each backend of PostgreSQL makes a session and a group of its own, and
/// continues to serve if only the group is stopped.
#[derive(Debug)]
pub(crate) struct Process {
    leader: Child,
}

/// Processes did not do in time what a signal told them to do.
#[derive(Debug)]
pub(crate) struct TooLate;

impl Process {
    /// Starts the command as the leader of a new process group, so that a key press in the terminal does not
    /// reach it.
    pub(crate) fn spawn(mut command: Command, log: &File) -> Result<Self> {
        let log = |what: &str| log.try_clone().doing(|| format!("open the log for {what}"));
        command.stdin(Stdio::null()).stdout(log("output")?).stderr(log("errors")?).process_group(0);
        let name = command.get_program().to_string_lossy().into_owned();
        let leader = command.spawn().doing(|| format!("run {name}"))?;
        Ok(Self { leader })
    }

    pub(crate) fn leader(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// How the leader ended, if it did. The leader is not collected, so that nobody else gets its process id.
    pub(crate) fn ended(&self) -> Option<String> {
        let ask = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.leader()), ask).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "for no known reason".to_owned(),
        })
    }

    /// Asks the leader to stop, and waits until it and all other processes are gone.
    pub(crate) async fn stop(&mut self, signal: Signal, limit: Duration) -> Result<(), TooLate> {
        let deadline = Instant::now() + limit;
        let pids = self.tree();
        self.thaw();
        send(self.leader(), signal);
        until(deadline, || gone(self.leader())).await?;
        // A companion such as Erlang's port mapper does not stop with its server.
        end(&pids, deadline).await?;
        self.collect();
        Ok(())
    }

    /// Stops every process where it is, and returns the stopped processes.
    pub(crate) async fn freeze(&self, limit: Duration) -> Result<Vec<Pid>, TooLate> {
        let deadline = Instant::now() + limit;
        loop {
            let pids = self.tree();
            for pid in &pids {
                send(*pid, Signal::STOP);
            }
            until(deadline, || pids.iter().all(|pid| frozen(*pid))).await?;
            // Frozen processes make no more children. Any new ones were made before.
            if self.tree().iter().all(|pid| pids.contains(pid)) {
                return Ok(pids);
            }
        }
    }

    /// Lets every process continue.
    pub(crate) fn thaw(&self) {
        for pid in self.tree() {
            send(pid, Signal::CONT);
        }
    }

    /// Kills every process. They are frozen first, so that none sees another die, as in a crash.
    pub(crate) async fn kill(&mut self, limit: Duration) -> Result<(), TooLate> {
        let pids = self.freeze(limit).await?;
        end(&pids, Instant::now() + limit).await?;
        self.collect();
        Ok(())
    }

    /// The leader, its process group, and all their descendants. Children of a dead parent are found only if
    /// they belong to the group.
    fn tree(&self) -> Vec<Pid> {
        let all = running();
        let leader = self.leader();
        let mut pids = vec![leader];
        loop {
            let belongs = |entry: &&Entry| {
                !pids.contains(&entry.pid) && (entry.group == leader || pids.contains(&entry.parent))
            };
            let more: Vec<Pid> = all.iter().filter(belongs).map(|entry| entry.pid).collect();
            if more.is_empty() {
                return pids;
            }
            pids.extend(more);
        }
    }

    /// Removes the dead leader from the system's table.
    fn collect(&mut self) {
        let deadline = std::time::Instant::now() + COLLECT_LIMIT;
        while matches!(self.leader.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    /// Killing it is the reaper's work, which is done by now.
    fn drop(&mut self) {
        self.collect();
    }
}

async fn end(pids: &[Pid], deadline: Instant) -> Result<(), TooLate> {
    for pid in pids {
        send(*pid, Signal::KILL);
    }
    until(deadline, || pids.iter().all(|pid| gone(*pid))).await
}

/// A process that is gone needs no signal.
fn send(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

async fn until(deadline: Instant, mut met: impl FnMut() -> bool) -> Result<(), TooLate> {
    while !met() {
        if Instant::now() >= deadline {
            return Err(TooLate);
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// What the system reports about a process, or about one of its threads.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    pid: Pid,
    state: char,
    parent: Pid,
    group: Pid,
}

fn running() -> Vec<Entry> {
    entries("/proc")
}

fn entries(folder: &str) -> Vec<Entry> {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    folders.filter_map(|folder| parse(&fs::read_to_string(folder.path().join("stat")).ok()?)).collect()
}

/// Reads `pid (name) state parent group …`, where the name may contain anything, even parentheses and spaces.
fn parse(stat: &str) -> Option<Entry> {
    let pid = stat.split(' ').next()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let id = |text: Option<&str>| Pid::from_raw(text?.parse().ok()?);
    Some(Entry { pid: id(Some(pid))?, state, parent: id(fields.next())?, group: id(fields.next())? })
}

/// Whether each thread of the process stands still.
fn frozen(pid: Pid) -> bool {
    let threads = entries(&format!("/proc/{pid}/task"));
    threads.iter().all(|thread| matches!(thread.state, 'T' | 't' | 'Z' | 'X'))
}

/// Whether the process has ended. Its entry may stay until its parent collects it.
fn gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    stat.as_deref().and_then(parse).is_none_or(|entry| matches!(entry.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    /// A shell whose child is in a session of its own, as PostgreSQL's are.
    async fn shell() -> (Process, tempfile::NamedTempFile) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 600 & sleep 600 & echo both; wait"]);
        let process = Process::spawn(command, log.as_file()).unwrap();
        let deadline = Instant::now() + LIMIT;
        until(deadline, || process.tree().len() == 3).await.unwrap();
        (process, log)
    }

    #[test]
    fn a_name_with_brackets_is_read() {
        let entry = parse("12 (a) b (c) S 3 12 1 0 -1 4194560").unwrap();
        let pid = |number| Pid::from_raw(number).unwrap();
        assert_eq!(entry, Entry { pid: pid(12), state: 'S', parent: pid(3), group: pid(12) });
        assert_eq!(parse("12 (kernel thread) S 0 0"), None);
    }

    #[tokio::test]
    async fn all_are_frozen_thawed_and_killed_also_those_in_other_sessions() {
        let (mut process, _log) = shell().await;
        let pids = process.freeze(LIMIT).await.unwrap();
        assert_eq!(pids.len(), 3);
        process.thaw();
        let deadline = Instant::now() + LIMIT;
        until(deadline, || pids.iter().all(|pid| !frozen(*pid))).await.unwrap();
        process.kill(LIMIT).await.unwrap();
        assert!(pids.iter().all(|pid| gone(*pid)));
    }

    #[tokio::test]
    async fn a_stop_ends_companions_too() {
        let (mut process, _log) = shell().await;
        let pids = process.tree();
        process.stop(Signal::TERM, LIMIT).await.unwrap();
        assert!(pids.iter().all(|pid| gone(*pid)));
    }

    #[tokio::test]
    async fn an_end_is_told_with_its_reason() {
        for (script, reason) in [("exit 3", "exit status 3"), ("kill -9 $$", "signal 9")] {
            let log = tempfile::tempfile().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let mut process = Process::spawn(command, &log).unwrap();
            until(Instant::now() + LIMIT, || process.ended().is_some()).await.unwrap();
            assert_eq!(process.ended().unwrap(), reason);
            process.kill(LIMIT).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_ignores_the_signal_is_too_late() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo trapped; while :; do sleep 600; done"]);
        let mut process = Process::spawn(command, log.as_file()).unwrap();
        let trapped = || fs::read_to_string(log.path()).is_ok_and(|text| text.contains("trapped"));
        until(Instant::now() + LIMIT, trapped).await.unwrap();
        assert!(process.stop(Signal::TERM, Duration::from_millis(50)).await.is_err());
        assert_eq!(process.ended(), None);
        process.kill(LIMIT).await.unwrap();
    }
}
