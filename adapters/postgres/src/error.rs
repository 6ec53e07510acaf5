//! Errors of PostgreSQL and sqlx, with their kinds and retry classes.

use anyqueue::adapter::Errors;
use anyqueue::{Error, ErrorKind, RetryClass};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// The backend's name in errors.
pub(crate) const NAME: &str = "postgres";

pub(crate) const ERRORS: Errors = Errors::of(NAME);

/// The error for a server that accepts no writes.
pub(crate) fn read_only() -> Error {
    ERRORS.error(
        ErrorKind::Unavailable,
        "the server is read-only, as a replica is: connect to the primary (nothing was changed)",
    )
}

/// The error for transactions that would not see what others commit. The handle cannot change that on shared connections.
pub(crate) fn wrong_isolation(level: &str) -> Error {
    let text = format!(
        "transactions here begin at the level {level}: set default_transaction_isolation to 'read committed' for the role, or set \
         notify=true without a proxy, or prepared=false"
    );
    ERRORS.error(ErrorKind::Incompatible, text)
}

/// The error for a reply that no function of this release sends.
fn unexpected_reply() -> Error {
    ERRORS.error(ErrorKind::Incompatible, "the server sent a reply that this release does not know")
}

/// Whether the connection is still usable after this error.
pub(crate) fn keeps_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error
            .try_downcast_ref::<PgDatabaseError>()
            .is_some_and(|error| error.severity() == PgSeverity::Error),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        _ => false,
    }
}

/// Classifies an error while connecting: no statement was sent yet.
pub(crate) fn classify_connect(cause: sqlx::Error, target: &str) -> Error {
    let no_tls = |why: &dyn std::fmt::Display| {
        let text = format!("no TLS connection to {target} ({why}): check sslmode and sslrootcert");
        ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::Never)
    };
    let classed = match &cause {
        // Invalid data, or a certificate that is not trusted.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => no_tls(io),
        sqlx::Error::Io(_) => ERRORS
            .error(ErrorKind::Unavailable, format!("{target} cannot be reached: is the server running?")),
        sqlx::Error::Tls(why) => no_tls(why),
        sqlx::Error::Configuration(_) => ERRORS.invalid("the connection options are not valid"),
        sqlx::Error::Database(_) => {
            let classed = classify(cause);
            let text = format!("{target}: {}", classed.message());
            let retry =
                if classed.retry() == RetryClass::Never { RetryClass::Never } else { RetryClass::Safe };
            return ERRORS.error(classed.kind(), text).with_retry(retry).with_source(classed);
        }
        _ => ERRORS.error(ErrorKind::Unavailable, format!("{target} closed the connection")),
    };
    classed.with_source(cause)
}

/// Classifies an error of a statement. If the answer was lost, the statement may have been committed.
pub(crate) fn classify(cause: sqlx::Error) -> Error {
    let classed = match &cause {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            by_code(&code, database.message())
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => unexpected_reply(),
        sqlx::Error::Encode(_) => ERRORS.error(ErrorKind::Internal, "a value cannot be sent to the server"),
        _ => ERRORS.error(
            ErrorKind::Unavailable,
            "the connection was lost before the answer came: it is not known whether the call took effect",
        )
        .with_retry(RetryClass::MayDuplicate),
    };
    classed.with_source(cause)
}

/// Classifies an error by its code (<https://www.postgresql.org/docs/current/errcodes-appendix.html>). The
/// server's own text is included only where it names what is missing; it contains no credentials.
fn by_code(code: &str, text: &str) -> Error {
    let safe = RetryClass::Safe;
    match code {
        "28P01" | "28000" => ERRORS.error(
            ErrorKind::AccessDenied,
            format!("the server refused the login ({text}): check user, password and pg_hba.conf"),
        ),
        "42501" => ERRORS.error(ErrorKind::AccessDenied, format!("a permission is missing: {text}")),
        "3D000" => ERRORS.invalid(format!("{text}: create it first, or name another")),
        "25006" => read_only(),
        "53100" => ERRORS.error(ErrorKind::Full, "the server's disk is full: nothing was changed"),
        "53200" => {
            ERRORS.error(ErrorKind::Unavailable, "the server is out of memory: nothing was changed").with_retry(safe)
        }
        "53300" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server has no connection left: raise its max_connections, or lower max_connections of the handles",
        ),
        // Also sent when the wait for a synchronous replica is interrupted, which happens after the commit.
        "57P01" | "57P02" | "57P05" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server closed the connection: it is shutting down, or an administrator closed it",
        )
        .with_retry(RetryClass::MayDuplicate),
        "57P03" => ERRORS.error(ErrorKind::Unavailable, "the server is starting up or shutting down"),
        // Among them 23505: a message was stored in a place to which another call had moved it.
        "23505" | "40001" | "40P01" | "55P03" => ERRORS.error(
            ErrorKind::Unavailable,
            "the transaction was aborted in favour of another one: nothing was changed",
        ),
        // These end the transaction before its commit.
        "25P03" | "25P04" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server's transaction timeout ended this one: nothing was changed",
        ),
        "25P02" => ERRORS.invalid("the transaction has already failed: roll it back (nothing was stored)"),
        // Raised by the queue's functions.
        "AQ001" => ERRORS.error(ErrorKind::Incompatible, text.to_owned()),
        "57014" => ERRORS.error(
            ErrorKind::TimedOut,
            "the server's statement_timeout or an administrator ended the statement: nothing was changed",
        ),
        "3F000" | "42P01" | "42883" | "42703" => ERRORS.error(
            ErrorKind::Incompatible,
            format!(
                "the queue's schema is missing or incomplete ({text}): open it once with create=true, or call init"
            ),
        ),
        "54000" | "22P05" | "54001" => {
            ERRORS.error(ErrorKind::TooLarge, format!("the server cannot store this: {text}"))
        }
        "XX001" | "XX002" => ERRORS.error(ErrorKind::Corrupt, format!("the server found damaged data: {text}")),
        _ if code.starts_with("08") => ERRORS.error(ErrorKind::Unavailable, "the connection to the server failed")
            .with_retry(RetryClass::MayDuplicate),
        _ if code.starts_with("58") => {
            ERRORS.error(ErrorKind::Unavailable, format!("the server had a system error: {text}"))
        }
        _ => ERRORS.error(ErrorKind::Internal, format!("the server refused a statement ({code}): {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        use ErrorKind::{
            AccessDenied, Corrupt, Full, Incompatible, Internal, InvalidInput, TimedOut, TooLarge,
            Unavailable,
        };
        use RetryClass::{MayDuplicate, Never, Safe};
        for (codes, kind, retry) in [
            (&["28P01", "28000", "42501"][..], AccessDenied, Never),
            (&["3D000", "25P02"], InvalidInput, Never),
            (&["AQ001", "3F000", "42P01", "42883", "42703"], Incompatible, Never),
            (&["53100"], Full, Safe),
            (&["54000", "54001", "22P05"], TooLarge, Never),
            (&["XX001", "XX002"], Corrupt, Never),
            (&["57014"], TimedOut, Safe),
            // Before the commit, or instead of the statement.
            (&["25006", "53200", "53300", "57P03", "23505", "40001", "40P01", "55P03"], Unavailable, Safe),
            (&["25P03", "25P04"], Unavailable, Safe),
            (&["58000", "58030"], Unavailable, Safe),
            // Perhaps after the commit.
            (&["57P01", "57P02", "57P05", "08006", "08P01"], Unavailable, MayDuplicate),
            (&["42601", ""], Internal, Never),
        ] {
            for code in codes {
                let error = by_code(code, "as the server says it");
                assert_eq!((error.kind(), error.retry()), (kind, retry), "{code}: {error}");
            }
        }
    }
}
