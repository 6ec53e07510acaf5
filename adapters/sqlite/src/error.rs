//! Classifying SQLite's errors: their kinds and retry classes.

use std::path::Path;

use anyqueue::adapter::Errors;
use anyqueue::{Error, ErrorKind, Operation};

/// The backend's name in errors.
pub(crate) const NAME: &str = "sqlite";

/// The message for a file that cannot be written.
pub(crate) const NO_RIGHT: &str =
    "no right to write the file or its directory (SQLite writes -wal and -shm beside it)";

pub(crate) const ERRORS: Errors = Errors::of(NAME);

/// Classifies an error of a statement.
///
/// Nothing can take effect twice: a repeated push finds its own ids, and a repeated settlement a lost lease.
/// So whatever a repetition may help with is [`Safe`](anyqueue::RetryClass::Safe).
pub(crate) fn classify(error: rusqlite::Error) -> Error {
    let (kind, message) = match &error {
        rusqlite::Error::SqliteFailure(failure, text) => {
            by_code(failure.extended_code, text.as_deref().unwrap_or_default())
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => by_code(error.extended_code, msg),
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => (
            ErrorKind::Corrupt,
            "a stored row has a value of the wrong type: check the file with PRAGMA integrity_check",
        ),
        _ => (ErrorKind::Internal, "a statement was refused"),
    };
    ERRORS.error(kind, message).with_source(error)
}

/// SQLite's result codes (<https://www.sqlite.org/rescode.html>); the low byte is the primary one.
pub(crate) fn by_code(code: i32, text: &str) -> (ErrorKind, &'static str) {
    match code & 0xff {
        5 | 6 => (
            ErrorKind::Unavailable,
            "the file stayed locked by another connection for the whole busy_timeout: keep write transactions short, or raise it",
        ),
        13 => (
            ErrorKind::Full,
            "no room: the disk or the file's max_bytes is full. Free disk space, raise max_bytes, or take messages out; then pushing continues",
        ),
        8 if code == 1032 => (ErrorKind::Unavailable, "the file was moved or deleted while open"),
        3 | 8 | 23 => (ErrorKind::AccessDenied, NO_RIGHT),
        14 => {
            (ErrorKind::AccessDenied, "the file cannot be opened: its directory must exist and be writable")
        }
        11 => (
            ErrorKind::Corrupt,
            "the file is damaged: restore it, or recover what is left with the sqlite3 tool's .recover",
        ),
        26 => (ErrorKind::Corrupt, "the file is not a SQLite database"),
        10 => (ErrorKind::Unavailable, "the disk failed to read or write"),
        7 => (ErrorKind::Unavailable, "SQLite found no memory"),
        18 => (ErrorKind::TooLarge, "the message exceeds what SQLite can hold in one row"),
        1 if text.contains("no such table") => (
            ErrorKind::Incompatible,
            "the queue's tables are not in this file: open it with create=true, or call init",
        ),
        1 if text.contains("no such column") => {
            (ErrorKind::Incompatible, "the queue's tables are not as this release knows them")
        }
        _ => (ErrorKind::Internal, "SQLite refused a statement"),
    }
}

/// Looks at the path, to say more than SQLite's "unable to open database file".
pub(crate) fn classify_open(error: rusqlite::Error, path: &Path) -> Error {
    let shown = path.display();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let cannot_open = error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen);
    let classed = classify(error);
    let described = match parent {
        Some(parent) if cannot_open && !parent.exists() => {
            ERRORS.invalid(format!("the directory {} does not exist: create it first", parent.display()))
        }
        Some(parent) if cannot_open && !parent.is_dir() => {
            ERRORS.error(ErrorKind::AccessDenied, format!("{} is not a directory", parent.display()))
        }
        _ if cannot_open && path.is_dir() => ERRORS.invalid(format!("{shown} is a directory: name a file")),
        _ if cannot_open && !path.exists() => {
            ERRORS.error(ErrorKind::AccessDenied, format!("{shown} does not exist, and was not created"))
        }
        _ => ERRORS.error(classed.kind(), format!("{shown}: {}", classed.message())),
    };
    described.with_retry(classed.retry()).with_operation(Operation::Open).with_source(classed)
}
