//! Which server a test binary uses: one that is already running, a private one, or none.

use std::env;
use std::io::Write as _;

use crate::error::{Error, Result};
use crate::program::Program;
use crate::server::Server;

/// The server that a suite runs against, if any.
#[derive(Debug)]
pub enum Provided {
    /// A private server, which can be killed and frozen.
    Private(Box<Server>),
    /// A server that somebody else runs, at this URL. Cases that must kill the server do not apply.
    Running(String),
    /// This machine lacks the program. That was reported on standard error; the suite cannot run.
    Nothing,
}

impl Provided {
    /// How clients reach the server, if there is one.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Private(server) => Some(server.url()),
            Self::Running(url) => Some(url),
            Self::Nothing => None,
        }
    }

    /// The server, if it is a private one.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Private(server) => Some(server),
            Self::Running(_) | Self::Nothing => None,
        }
    }
}

/// Returns the server that the environment names in the program's [`variable`](Program::variable), or else
/// starts a private one like [`start_if_installed`].
///
/// # Errors
/// As [`start_if_installed`].
pub async fn provide(program: impl Program) -> Result<Provided> {
    match env::var(program.variable()) {
        Ok(url) if !url.is_empty() => Ok(Provided::Running(url)),
        _ => Ok(start_if_installed(program)
            .await?
            .map_or(Provided::Nothing, |server| Provided::Private(Box::new(server)))),
    }
}

/// Starts a private server. If the program is not installed and the variable `CI` or
/// `ANYQUEUE_REQUIRE_SERVERS` is set, this is an error; otherwise it writes "NOT RUN" to standard error,
/// bypassing the capture of tests' output, and returns `None`.
///
/// # Errors
/// As [`Server::start`].
pub async fn start_if_installed(program: impl Program) -> Result<Option<Server>> {
    or_notice(Server::start(program).await)
}

/// Returns the server, or `None` with a notice if its program is not installed.
pub(crate) fn or_notice<S>(started: Result<S>) -> Result<Option<S>> {
    let required = is_set("CI") || is_set("ANYQUEUE_REQUIRE_SERVERS");
    let (answer, notice) = judge(started, required)?;
    if let Some(notice) = notice {
        // If standard error is closed, there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "{notice}");
    }
    Ok(answer)
}

/// What to return, and what to report.
fn judge<S>(started: Result<S>, required: bool) -> Result<(Option<S>, Option<String>)> {
    match started {
        Ok(server) => Ok((Some(server), None)),
        Err(error @ Error::Missing { .. }) if !required => Ok((None, Some(format!("NOT RUN: {error}")))),
        Err(error) => Err(error),
    }
}

fn is_set(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0" && value != "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Result<()> {
        Err(Error::Missing { program: "pigeon-server", install: "run `cargo xtask setup`" })
    }

    #[test]
    fn a_missing_server_is_loud_or_an_error() {
        let (answer, notice) = judge(missing(), false).unwrap();
        assert_eq!(answer, None);
        assert_eq!(notice.unwrap(), "NOT RUN: needs pigeon-server: run `cargo xtask setup`");
        assert!(matches!(judge(missing(), true), Err(Error::Missing { .. })));
    }

    #[test]
    fn other_failures_are_errors_everywhere() {
        for required in [true, false] {
            let failed = Err::<(), _>(Error::Down { program: "pigeon-server" });
            assert!(judge(failed, required).is_err());
        }
        assert_eq!(judge(Ok(1), true).unwrap(), (Some(1), None));
    }
}
