//! What can go wrong with a server of one's own.

use std::io;
use std::time::Duration;

/// What the functions of this crate return.
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
        /// How to get it.
        install: &'static str,
    },
    /// The server ended, or was not ready in time. It does not run any more.
    #[error("{program} did not start: {reason}; the end of its log:\n{log}")]
    Start {
        /// The program's name.
        program: &'static str,
        /// What was seen.
        reason: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// The server was asked to stop and did not. It runs on.
    #[error("{program} did not stop within {limit:?}; the end of its log:\n{log}")]
    Stop {
        /// The program's name.
        program: &'static str,
        /// How long it was given.
        limit: Duration,
        /// The last lines that it wrote.
        log: String,
    },
    /// Processes outlived a signal that none can refuse.
    #[error("{program} did not obey {signal} within {limit:?}")]
    Signal {
        /// The program's name.
        program: &'static str,
        /// The signal's name.
        signal: &'static str,
        /// How long it was given.
        limit: Duration,
    },
    /// There is no such server at the moment: it was stopped or killed.
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
        /// What it answered.
        source: io::Error,
    },
}

/// Says what was tried when the system refused it.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source: source.into() })
    }
}
