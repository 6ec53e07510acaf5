//! How a command fails: its exit code and its message.

use std::error::Error as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyqueue::ErrorKind;

use crate::escape::harmless;
use crate::say::say;
use crate::secrets::hide;

/// What every command returns.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a command did not do its work. Each has an exit code, listed in `--help` and the README.
#[derive(Debug)]
pub(crate) enum Failure {
    /// 1: it was tried, and failed.
    Failed(String),
    /// 2: the command line is wrong; nothing was done.
    Usage(String),
    /// 3: a check found something wrong, or the task that was waited for did not succeed; this has been
    /// printed already.
    Wrong,
    /// 4: nothing was found.
    Nothing,
    /// 5: the task that was waited for has not ended in time.
    Late,
    /// 6: the worker ended in order, and is to be started again.
    Again,
    /// 1, silently: the reader of the output is gone. For commands that only read, this is a normal end.
    Unread,
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Unread => 1,
            Self::Usage(_) => 2,
            Self::Wrong => 3,
            Self::Nothing => 4,
            Self::Late => 5,
            Self::Again => 6,
        }
    }

    /// Says why on standard error, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Failed(text) | Self::Usage(text) => say(text),
            Self::Wrong | Self::Nothing | Self::Late | Self::Again | Self::Unread => {}
        }
        ExitCode::from(self.code())
    }
}

/// Prints the message of the argument parser. The arguments that it repeats may be URLs with passwords.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    let text = harmless(&error.render().to_string());
    if error.use_stderr() {
        let _ = write!(std::io::stderr(), "{}", hide(&text)); // if nobody reads it, that is fine
        return ExitCode::from(2);
    }
    let written = std::io::stdout().write_all(text.as_bytes()).map_err(Failure::from);
    or_read_enough(written).map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Ends a command that only reads: if the reader of its output is gone, such as `head`, it has read what it
/// wanted.
pub(crate) fn or_read_enough(end: Result) -> Result {
    match end {
        Err(Failure::Unread) => Ok(()),
        end => end,
    }
}

impl From<anyqueue::Error> for Failure {
    fn from(error: anyqueue::Error) -> Self {
        let text = with_causes(&error);
        match error.kind() {
            ErrorKind::InvalidInput => Self::Usage(text),
            ErrorKind::Unavailable | ErrorKind::TimedOut => Self::Failed(format!(
                "{text}\nIs the server running, and is the URL right? `anyqueue doctor` checks more."
            )),
            _ => Self::Failed(text),
        }
    }
}

/// The error and those of its causes that say something new.
pub(crate) fn with_causes(error: &anyqueue::Error) -> String {
    and_causes(error.to_string(), error)
}

/// The same error with its causes and one more sentence in its message.
pub(crate) fn with_text(error: &anyqueue::Error, more: &str) -> anyqueue::Error {
    let text = format!("{}; {more}", and_causes(error.message().to_owned(), error));
    let mut new = anyqueue::Error::new(error.kind(), text).with_retry(error.retry());
    if let Some(backend) = error.backend() {
        new = new.with_backend(backend);
    }
    if let Some(operation) = error.operation() {
        new = new.with_operation(operation);
    }
    new
}

fn and_causes(mut text: String, error: &anyqueue::Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if let Some(new) = beyond(&text, &said) {
            text.push_str(": ");
            text.push_str(new);
        }
        cause = error.source();
    }
    text
}

/// The part of a cause that the text does not contain. Layers repeat each other: "redis: refused: why" below
/// "redis open: refused".
fn beyond<'a>(text: &str, cause: &'a str) -> Option<&'a str> {
    if text.contains(cause) {
        return None;
    }
    let mut new = cause;
    while let Some((_, rest)) = new.split_once(": ").filter(|(first, _)| text.contains(first)) {
        new = rest;
    }
    Some(new)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Unread,
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(std::io::ErrorKind::BrokenPipe) => Self::Unread,
            _ => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_not_said_again() {
        let text = "redis open: the server refused the login (access_denied)";
        assert_eq!(beyond(text, "redis: the server refused the login: WRONGPASS"), Some("WRONGPASS"));
        assert_eq!(beyond(text, "the server refused the login"), None);
        assert_eq!(beyond(text, "no route: host down"), Some("no route: host down"));
    }
}
