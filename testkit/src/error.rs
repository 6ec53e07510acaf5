//! What can go wrong with a private server.

use std::io;
use std::time::Duration;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server could not be started, stopped or signalled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine does not have the program.
    #[error("needs {program}: {install}")]
    Missing {
        /// The program's name.
        program: &'static str,
        /// How to install it.
        install: &'static str,
    },
    /// The server ended, or was not ready in time. It is no longer running.
    #[error("{program} did not start: {reason}; the end of its log:\n{log}")]
    Start {
        /// The program's name.
        program: &'static str,
        /// What happened.
        reason: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The server was asked to stop and did not. It is still running.
    #[error("{program} did not stop within {limit:?}; the end of its log:\n{log}")]
    Stop {
        /// The program's name.
        program: &'static str,
        /// How long it was given to stop.
        limit: Duration,
        /// The last lines that it wrote.
        log: String,
    },
    /// Processes survived a signal that no process can ignore.
    #[error("{program} did not obey {signal} within {limit:?}")]
    Signal {
        /// The program's name.
        program: &'static str,
        /// The signal's name.
        signal: &'static str,
        /// How long it was given.
        limit: Duration,
    },
    /// The server is not running: it was stopped or killed.
    #[error("{program} does not run")]
    Down {
        /// The program's name.
        program: &'static str,
    },
    /// A helper program failed.
    #[error("`{command}` failed ({how}): {output}")]
    Command {
        /// The program that was run.
        command: String,
        /// Its exit status, or that it took too long.
        how: String,
        /// What it wrote to its standard error.
        output: String,
    },
    /// The operating system refused something.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Adds to an error of the system what was tried.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source: source.into() })
    }
}
