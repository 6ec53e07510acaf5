//! Ends a server and removes its data when the process that uses it is gone, in whatever way.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::error::{Doing, Result};

/// How long the work of the script may take. It takes milliseconds, or until the last dying process has got
/// processor time: on a busy machine, many seconds.
const LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(1);

/// Reads from its input which processes there are, one list per line. At the end of the input it kills those
/// of the last line and removes the folder, trying again for a minute while dying processes still write into
/// it: the processes of PostgreSQL notice by themselves that their parent is gone, each when it next runs.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
while read -r line; do processes=$line; done
[ -z "$processes" ] || kill -s KILL -- $processes
sh -c "$2" clean-up "$1"
attempts=0
until rm -rf -- "$1" || [ "$attempts" -ge 300 ]; do
    attempts=$((attempts + 1))
    sleep 0.2
done
"#;

/// A small shell process that holds the other end of a pipe. The system closes our end when this process
/// ends: at its exit, where values in statics are not dropped, and also when it is killed and can do nothing
/// itself.
///
/// The system also has a parent-death signal. But that comes when the *thread* that started the server ends,
/// which in a test is at the end of the test, and it reaches only one of several processes.
#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Child,
    lines: Option<ChildStdin>,
}

impl Reaper {
    /// Makes sure that the folder will be removed. `clean_up` is a script that runs before that.
    pub(crate) fn start(folder: &Path, clean_up: &str) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "reaper"]).arg(folder).arg(clean_up);
        // Not in the folder that it removes, nor in one that somebody else wants to remove.
        command.current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut shell = command.spawn().doing(|| "run sh".to_owned())?;
        let lines = shell.stdin.take();
        Ok(Self { shell, lines })
    }

    /// From now on this process group has to be killed, and these processes, if they have groups of their
    /// own.
    pub(crate) fn watch(&mut self, group: Pid, processes: &[Pid]) -> Result<()> {
        let mut line = format!("-{group}");
        for process in processes {
            // Writing to a string cannot fail.
            let _ = write!(line, " {process}");
        }
        self.tell(&line)
    }

    /// From now on there is nothing to kill.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.tell("")
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        writeln!(lines, "{line}").doing(|| "tell the reaper".to_owned())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.lines = None;
        let deadline = Instant::now() + LIMIT;
        while matches!(self.shell.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_kills_cleans_up_and_removes() {
        let outside = tempfile::tempdir().unwrap();
        let proof = outside.path().join("proof");
        let folder = tempfile::tempdir().unwrap().keep();
        std::fs::write(folder.join("data"), "some").unwrap();
        let clean_up = format!("cp \"$1/data\" '{}'", proof.display());
        let mut sleeper = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut other = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut reaper = Reaper::start(&folder, &clean_up).unwrap();
        reaper.watch(Pid::from_child(&sleeper), &[]).unwrap();
        reaper.watch(Pid::from_child(&sleeper), &[Pid::from_child(&other)]).unwrap();
        drop(reaper);
        assert!(!folder.exists());
        assert_eq!(std::fs::read_to_string(proof).unwrap(), "some");
        assert!(ends(&mut sleeper) && ends(&mut other));
    }

    fn ends(child: &mut Child) -> bool {
        let deadline = Instant::now() + LIMIT;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    #[test]
    fn what_is_forgotten_is_not_killed() {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut sleeper = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let mut reaper = Reaper::start(&folder, "").unwrap();
        reaper.watch(Pid::from_child(&sleeper), &[]).unwrap();
        reaper.forget().unwrap();
        drop(reaper);
        assert!(!folder.exists());
        assert_eq!(sleeper.try_wait().unwrap(), None);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
