//! What PostgreSQL and sqlx say, as kind and retry class.

use std::borrow::Cow;

use anyqueue::{Error, ErrorKind, Operation, RetryClass};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// The backend's name in errors.
pub(crate) const NAME: &str = "postgres";

/// An error of this backend's own.
pub(crate) fn own(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}

/// An argument that is wrong.
pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    own(ErrorKind::InvalidInput, message)
}

/// The answer of a closed handle.
pub(crate) fn closed(operation: Operation) -> Error {
    Error::closed().with_backend(NAME).with_operation(operation)
}

/// The server takes no writes.
pub(crate) fn read_only() -> Error {
    own(
        ErrorKind::Unavailable,
        "the server is read-only, as a replica is: connect to the primary (nothing was changed)",
    )
}

/// Transactions here would not see what others commit, and the handle cannot set that itself on connections that it shares.
pub(crate) fn wrong_isolation(level: &str) -> Error {
    let text = format!(
        "transactions here begin at the level {level}: set default_transaction_isolation to 'read committed' for the role, or set \
         notify=true where there is no proxy, or prepared=false"
    );
    own(ErrorKind::Incompatible, text)
}

/// The same error, where a call that may have taken effect can be made again without harm.
pub(crate) fn repeatable(error: Error) -> Error {
    if error.retry() == RetryClass::MayDuplicate { error.with_retry(RetryClass::Safe) } else { error }
}

/// Whether the connection can be used again after this error.
pub(crate) fn leaves_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error
            .try_downcast_ref::<PgDatabaseError>()
            .is_some_and(|error| error.severity() == PgSeverity::Error),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        _ => false,
    }
}

/// Classes an error of making a connection: nothing was asked of the server yet.
pub(crate) fn classify_connect(error: sqlx::Error, target: &str) -> Error {
    let no_tls = |why: &dyn std::fmt::Display| {
        let text = format!("no TLS connection to {target} ({why}): check sslmode and sslrootcert");
        own(ErrorKind::Unavailable, text).with_retry(RetryClass::Never)
    };
    let classed = match &error {
        // What was received makes no sense, or is signed by somebody who is not trusted.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => no_tls(io),
        sqlx::Error::Io(_) => {
            own(ErrorKind::Unavailable, format!("{target} cannot be reached: is the server running?"))
        }
        sqlx::Error::Tls(why) => no_tls(why),
        sqlx::Error::Configuration(_) => invalid("the connection options are not usable"),
        sqlx::Error::Database(_) => {
            let classed = classify(error);
            let text = format!("{target}: {}", classed.message());
            let retry =
                if classed.retry() == RetryClass::Never { RetryClass::Never } else { RetryClass::Safe };
            return own(classed.kind(), text).with_retry(retry).with_source(classed);
        }
        _ => own(ErrorKind::Unavailable, format!("{target} broke off the connection")),
    };
    classed.with_source(error)
}

/// Classes an error of a statement. Where the answer was lost, the statement may have been committed.
pub(crate) fn classify(error: sqlx::Error) -> Error {
    let classed = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            by_code(&code, database.message())
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            own(ErrorKind::Incompatible, "the server's answer has another form than this release knows")
        }
        sqlx::Error::Encode(_) => own(ErrorKind::Internal, "a value cannot be sent to the server"),
        _ => own(
            ErrorKind::Unavailable,
            "the connection broke before the answer came: whether it was done is not known",
        )
        .with_retry(RetryClass::MayDuplicate),
    };
    classed.with_source(error)
}

/// Error codes (<https://www.postgresql.org/docs/current/errcodes-appendix.html>). The server's own text is repeated only
/// where it names what is missing; it shows no credentials.
fn by_code(code: &str, text: &str) -> Error {
    let safe = RetryClass::Safe;
    match code {
        "28P01" | "28000" => own(
            ErrorKind::AccessDenied,
            format!("the server refused the login ({text}): check user, password and pg_hba.conf"),
        ),
        "42501" => own(ErrorKind::AccessDenied, format!("a right is missing: {text}")),
        "3D000" => invalid(format!("{text}: create it first, or name another")),
        "25006" => read_only(),
        "53100" => own(ErrorKind::Full, "the server's disk is full: nothing was changed"),
        "53200" => {
            own(ErrorKind::Unavailable, "the server is out of memory: nothing was changed").with_retry(safe)
        }
        "53300" => own(
            ErrorKind::Unavailable,
            "the server has no connection left: raise its max_connections, or lower max_connections of the handles",
        ),
        // Also sent when the wait for a synchronous replica is cut off, which is after the commit.
        "57P01" | "57P02" | "57P05" => own(
            ErrorKind::Unavailable,
            "the server ended the connection: it is being stopped, or somebody ended it",
        )
        .with_retry(RetryClass::MayDuplicate),
        "57P03" => own(ErrorKind::Unavailable, "the server is starting up or shutting down"),
        // Among them a message that somebody stores where another call moves it (23505).
        "23505" | "40001" | "40P01" | "55P03" => {
            own(ErrorKind::Unavailable, "the server gave way to another transaction: nothing was changed")
        }
        // They end the transaction before its commit.
        "25P03" | "25P04" => own(
            ErrorKind::Unavailable,
            "the server's time-out for transactions ended this one: nothing was changed",
        ),
        "25P02" => invalid("the transaction has failed before: roll it back (nothing was stored)"),
        // The functions' own.
        "AQ001" => own(ErrorKind::Incompatible, text.to_owned()),
        "57014" => own(
            ErrorKind::TimedOut,
            "the server's statement_timeout or an administrator ended the statement: nothing was changed",
        ),
        "3F000" | "42P01" | "42883" | "42703" => own(
            ErrorKind::Incompatible,
            format!(
                "the queue's schema is not there or not complete ({text}): open it once with create=true, or call init"
            ),
        ),
        "54000" | "22P05" | "54001" => {
            own(ErrorKind::TooLarge, format!("the server cannot hold this: {text}"))
        }
        "XX001" | "XX002" => own(ErrorKind::Corrupt, format!("the server found damaged data: {text}")),
        _ if code.starts_with("08") => own(ErrorKind::Unavailable, "the connection to the server failed")
            .with_retry(RetryClass::MayDuplicate),
        _ if code.starts_with("58") => {
            own(ErrorKind::Unavailable, format!("the server's machine failed to serve it: {text}"))
        }
        _ => own(ErrorKind::Internal, format!("the server refused a statement ({code}): {text}")),
    }
}
