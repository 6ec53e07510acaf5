//! One test program: run to its end or its deadline, with its own file for output and its own temporary
//! folder.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// A program that takes longer has hung.
    pub(crate) deadline: Duration,
    /// How long a program's temporary folder may take to become empty: servers that live as long as the
    /// program are ended, and their folders removed, just after it. What removes them tries for a minute
    /// (`testkit/src/reaper.rs`).
    pub(crate) aftermath: Duration,
}

impl Limits {
    /// The longest program, the starts of brokers, takes ten minutes while others run.
    pub(crate) const USUAL: Self =
        Self { deadline: Duration::from_mins(18), aftermath: Duration::from_secs(90) };
}

/// The time between two checks whether a program has ended, or its folder is empty.
const LOOK: Duration = Duration::from_millis(20);

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) took: Duration,
    pub(crate) counts: Counts,
    /// What was wrong; empty if it passed.
    pub(crate) faults: Vec<String>,
}

/// The results of tests, as the program itself reported them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

/// Runs the program. `temporary` must not exist; the program and its servers put their temporary files there,
/// and must leave nothing.
pub(crate) fn run(command: Command, output: &Path, temporary: &Path, limits: Limits) -> Ended {
    let start = Instant::now();
    let mut faults = Vec::new();
    match prepare(temporary).and_then(|()| spawn(command, output, temporary)) {
        Ok(mut child) => faults.extend(wait(&mut child, limits.deadline)),
        Err(error) => faults.push(format!("cannot be run: {error}")),
    }
    let took = start.elapsed();
    faults.extend(left_behind(temporary, limits.aftermath));
    let text = fs::read(output).unwrap_or_default();
    let counts = Counts::in_output(&String::from_utf8_lossy(&text));
    if faults.is_empty() && counts.is_none() {
        faults.push("it reported no test result".to_owned());
    }
    Ended { took, counts: counts.unwrap_or_default(), faults }
}

fn prepare(temporary: &Path) -> std::io::Result<()> {
    fs::create_dir_all(temporary)?;
    // Servers that refuse to run as root have their folders in it.
    fs::set_permissions(temporary, fs::Permissions::from_mode(0o755))
}

fn spawn(mut command: Command, output: &Path, temporary: &Path) -> std::io::Result<Child> {
    let file = File::create(output)?;
    command.env("TMPDIR", temporary).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn()
}

/// Waits for the program to end, and returns what was wrong with that.
fn wait(child: &mut Child, deadline: Duration) -> Option<String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return (!status.success()).then(|| how(status)),
            Ok(None) if start.elapsed() < deadline => std::thread::sleep(LOOK),
            Ok(None) => {
                // It may have just ended, or cannot be killed: either way, this is reported.
                let _ = child.kill().and_then(|()| child.wait());
                return Some(format!("it hung: ended at its deadline of {} s", deadline.as_secs()));
            }
            Err(error) => return Some(format!("cannot be waited for: {error}")),
        }
    }
}

fn how(status: ExitStatus) -> String {
    format!("it failed ({status})")
}

/// Removes the folder. What is left in it after the servers had time to go is a fault.
fn left_behind(temporary: &Path, aftermath: Duration) -> Option<String> {
    let until = Instant::now() + aftermath;
    let mut left = names(temporary);
    while !left.is_empty() && Instant::now() < until {
        std::thread::sleep(LOOK);
        left = names(temporary);
    }
    let removed = fs::remove_dir_all(temporary);
    if !left.is_empty() {
        return Some(format!("it left in the temporary folder: {}", left.join(", ")));
    }
    removed.err().map(|error| format!("cannot remove {}: {error}", temporary.display()))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Counts {
    /// Returns the sum of all lines `test result: …`; `None` if there is none.
    fn in_output(text: &str) -> Option<Self> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("test result: "));
        lines.map(Self::in_line).reduce(Self::and)
    }

    fn in_line(line: &str) -> Self {
        let count = |what: &str| {
            let mut parts = line.split(['.', ';']).map(str::trim);
            parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok()).unwrap_or_default()
        };
        Self { passed: count("passed"), failed: count("failed"), ignored: count("ignored") }
    }

    /// Returns the sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>4} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as if it were a test program.
    fn script(name: &str, script: &str, limits: Limits) -> (Ended, String) {
        let folder = std::env::temp_dir().join(format!("anyqueue-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (output, temporary) = (folder.join("output"), folder.join("temporary"));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ended = run(command, &output, &temporary, limits);
        let text = fs::read_to_string(&output).unwrap();
        assert!(!temporary.exists());
        fs::remove_dir_all(&folder).unwrap();
        (ended, text)
    }

    const SOON: Limits = Limits::USUAL;
    const RESULT: &str = "echo 'test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out'";

    #[test]
    fn output_and_counts_are_kept() {
        let (ended, text) = script("passes", &format!("{RESULT}; echo loud >&2; {RESULT}"), SOON);
        assert_eq!(ended.faults, [] as [String; 0]);
        assert_eq!(ended.counts, Counts { passed: 24, failed: 0, ignored: 6 });
        assert!(text.contains("loud"), "{text}");
    }

    #[test]
    fn a_failure_is_told_with_its_counts() {
        let result = RESULT.replace("ok. 12 passed; 0", "FAILED. 11 passed; 1");
        let (ended, _) = script("fails", &format!("{result}; exit 101"), SOON);
        assert_eq!(ended.faults, ["it failed (exit status: 101)"]);
        assert_eq!((ended.counts.passed, ended.counts.failed), (11, 1));
    }

    #[test]
    fn one_that_tells_no_result_has_not_passed() {
        let (ended, _) = script("silent", "echo nothing", SOON);
        assert_eq!(ended.faults, ["it reported no test result"]);
    }

    #[test]
    fn one_that_hangs_is_ended_and_named() {
        let (ended, text) = script(
            "hangs",
            "echo begun; exec sleep 600",
            // Enough time for the shell to begin, even with other programs running.
            Limits { deadline: Duration::from_secs(5), ..SOON },
        );
        assert_eq!(ended.faults, ["it hung: ended at its deadline of 5 s"]);
        assert!(ended.took < SOON.deadline);
        assert_eq!(text, "begun\n");
    }

    #[test]
    fn what_is_left_in_the_temporary_folder_is_named_unless_it_goes_soon() {
        let (ended, _) =
            script("goes", &format!("mkdir $TMPDIR/a; (sleep 0.3; rm -r $TMPDIR/a) & {RESULT}"), SOON);
        assert_eq!(ended.faults, [] as [String; 0]);
        let brief = Limits { aftermath: Duration::from_millis(300), ..SOON };
        let (ended, _) = script("stays", &format!("touch $TMPDIR/b.pid; {RESULT}"), brief);
        assert_eq!(ended.faults, ["it left in the temporary folder: b.pid"]);
    }
}
