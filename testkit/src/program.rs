//! What this crate needs to know about a server program.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Doing, Error, Result};
use crate::place::Place;

/// How long a helper program such as `initdb` may take.
const HELPER_LIMIT: Duration = Duration::from_mins(1);

/// A server program: how to find it, start it, ask whether it is ready, and stop it.
///
/// [`Server`](crate::Server) does the rest. The implementations in this crate are examples for other servers;
/// Redis is the shortest.
#[async_trait]
pub trait Program: fmt::Debug + Send + Sync + 'static {
    /// The program's name, for errors.
    fn name(&self) -> &'static str;

    /// How to install the program.
    fn install(&self) -> &'static str {
        "run `cargo xtask setup`"
    }

    /// The environment variable whose URL, if set, is used instead of a private server.
    fn variable(&self) -> &'static str;

    /// The account to run under if the tests run as root, for servers that refuse to run as root.
    fn account(&self) -> Option<&'static str> {
        None
    }

    /// How many ports the server needs. The first is the one for clients.
    fn ports(&self) -> usize {
        1
    }

    /// The version of the installed program.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed.
    async fn version(&self) -> Result<String>;

    /// Prepares what the server needs before it starts for the first time.
    ///
    /// # Errors
    /// If that fails. The server is then not started.
    async fn prepare(&self, place: &Place) -> Result<()> {
        let _ = place;
        Ok(())
    }

    /// Returns the command that runs the server in the foreground until it is signalled, with its data in
    /// [`Place::dir`]. Make it with [`Place::command`]. The caller sets its standard input, output and error.
    ///
    /// # Errors
    /// [`Error::Missing`] if the program is not installed.
    fn command(&self, place: &Place) -> Result<Command>;

    /// Asks the server once whether it serves clients. An error means "not yet", and so does an answer that
    /// takes more than five seconds.
    ///
    /// # Errors
    /// If it does not serve clients.
    async fn ready(&self, place: &Place) -> io::Result<()>;

    /// The signal at which the server closes its files in an orderly way, without waiting for its clients to
    /// leave.
    fn stop_signal(&self) -> StopSignal {
        StopSignal::Terminate
    }

    /// A shell script that frees what the server may have left outside of its folder, which is the script's
    /// first argument. It runs when the server's processes are gone for good and the folder is still there.
    fn clean_up(&self) -> &'static str {
        ""
    }

    /// How clients reach the server.
    fn url(&self, place: &Place) -> String;
}

/// The signal that asks a server to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopSignal {
    /// `SIGTERM`.
    Terminate,
    /// `SIGINT`.
    Interrupt,
}

/// Finds the program of this name in the `PATH`, or else in one of the folders.
pub fn find_program(name: &str, folders: &[&Path]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).collect();
    let folders = path.iter().map(PathBuf::as_path).chain(folders.iter().copied());
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Runs a helper program to its end and returns its standard output. The program is killed if it takes more
/// than a minute, or if the future is dropped.
///
/// # Errors
/// If it cannot be run, fails, or takes too long.
pub async fn run_helper(command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let failed = |how: String, output: &[u8]| Error::Command {
        command: name.clone(),
        how,
        output: String::from_utf8_lossy(output).trim_end().to_owned(),
    };
    let output = tokio::time::timeout(HELPER_LIMIT, command.output())
        .await
        .map_err(|_| failed(format!("it took more than {HELPER_LIMIT:?}"), &[]))?
        .doing(|| format!("run {name}"))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string(), &output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The version that a program prints when it is run with `--version`; empty if it prints none.
///
/// # Errors
/// As [`run_helper`].
pub async fn version_of(program: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("--version");
    Ok(version_in(&run_helper(command).await?).unwrap_or_default())
}

/// Finds the version in a program's output: the first word that begins with a digit, possibly after `v=`.
fn version_in(text: &str) -> Option<String> {
    let words = text.split_whitespace().map(|word| word.strip_prefix("v=").unwrap_or(word));
    words.map(str::to_owned).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (text, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", "7.0.15"),
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
            ("PgBouncer 1.18.0\nlibevent 2.1.12-stable", "1.18.0"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(version));
        }
        assert_eq!(version_in("no version"), None);
    }

    #[tokio::test]
    async fn a_helper_that_fails_is_told_with_what_it_wrote() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo sorry >&2; exit 3"]);
        let error = run_helper(command).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("sorry"), "{error}");
    }

    #[test]
    fn programs_are_found_in_the_path_and_beside_it() {
        assert!(find_program("sh", &[]).is_some());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("anyqueue-none"), "").unwrap();
        assert_eq!(find_program("anyqueue-none", &[]), None);
        assert!(find_program("anyqueue-none", &[folder.path()]).is_some());
    }
}
