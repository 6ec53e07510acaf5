//! Errors of RabbitMQ and its client, with their kinds and retry classes.

use anyqueue::adapter::Errors;
use anyqueue::{Error, ErrorKind, RetryClass};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};

/// The backend's name in errors.
pub(crate) const NAME: &str = "rabbitmq";

pub(crate) const ERRORS: Errors = Errors::of(NAME);

/// Returns the same error, for a call that may have taken effect.
pub(crate) fn uncertain(error: Error) -> Error {
    if error.retry() == RetryClass::Never { error } else { error.with_retry(RetryClass::MayDuplicate) }
}

/// The error for a server that did not answer in time.
pub(crate) fn timed_out() -> Error {
    ERRORS
        .error(ErrorKind::TimedOut, "the server did not answer in time; the next call makes a new connection")
}

const MISSING: &str = "the queue does not exist any more: ";

/// Whether the error says that the server has no such queue. A queue whose node is down is a different error.
pub(crate) fn is_missing(error: &Error) -> bool {
    error.message().starts_with(MISSING)
}

const LOCKED: &str = "another client has it exclusively: ";

/// Whether the error says that another client has an exclusive queue of this name.
pub(crate) fn is_locked(error: &Error) -> bool {
    error.message().starts_with(LOCKED)
}

/// The error for a queue that this connection itself holds exclusively. The server would let it declare the
/// queue again.
pub(crate) fn locked_here(queue: &str) -> Error {
    ERRORS.error(ErrorKind::Unavailable, format!("{LOCKED}{queue}, which this client is just declaring"))
}

/// A permission of the user. The server does not say which one is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right {
    Configure,
    Bind,
    Write,
    Read,
}

impl Right {
    /// Classifies the error of a call that needs this permission.
    pub(crate) fn classify(self, cause: lapin::Error) -> Error {
        let classed = classify(cause);
        if classed.kind() != ErrorKind::AccessDenied {
            return classed;
        }
        let right = match self {
            Self::Configure => "to configure",
            Self::Bind => {
                "to write to the queue or exchange that is bound, or to read from the one it is bound to"
            }
            Self::Write => "to write",
            Self::Read => "to read",
        };
        ERRORS
            .error(
                ErrorKind::AccessDenied,
                format!("the user lacks the permission {right}: {}", classed.message()),
            )
            .with_source(classed)
    }
}

/// Classifies an error of the client. Includes the server's own words, which contain no credentials.
pub(crate) fn classify(cause: lapin::Error) -> Error {
    let classed = match cause.kind() {
        lapin::ErrorKind::ProtocolError(refusal) => by_code(refusal.kind(), refusal.get_message().as_str()),
        lapin::ErrorKind::ChannelsLimitReached => ERRORS.error(
            ErrorKind::Full,
            "the connection has no channel left: each partition that is pulled from needs one; raise the server's channel_max",
        ),
        lapin::ErrorKind::ParsingError(_) | lapin::ErrorKind::InvalidProtocolVersion(_) => ERRORS.error(
            ErrorKind::Incompatible,
            "the server at this address does not speak AMQP 0-9-1 without TLS: for TLS write amqps://",
        ),
        lapin::ErrorKind::SerialisationError(_) => {
            ERRORS.error(ErrorKind::Internal, "a request could not be encoded as AMQP")
        }
        lapin::ErrorKind::IOError(broken) if broken.to_string().contains("certificate") => ERRORS.error(
            ErrorKind::Unavailable,
            format!("the server's certificate is not trusted: {broken}; see ca_file"),
        )
        .with_retry(RetryClass::Never),
        _ => ERRORS.error(ErrorKind::Unavailable, "the connection to the server was lost"),
    };
    classed.with_source(cause)
}

fn by_code(code: &AMQPErrorKind, text: &str) -> Error {
    match code {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) if text.contains("Login was refused") => {
            ERRORS.error(ErrorKind::AccessDenied, "the server refused the login: check user and password")
        }
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => ERRORS.error(ErrorKind::AccessDenied, text.to_owned()),
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
            ERRORS.error(ErrorKind::AccessDenied, format!("the virtual host cannot be used: {text}"))
        }
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if text.contains("no queue '") => {
            ERRORS.error(ErrorKind::Unavailable, format!("{MISSING}{text}"))
        }
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
            ERRORS.error(ErrorKind::Unavailable, format!("something is missing or not reachable now: {text}"))
        }
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if text.contains("inequivalent arg") => ERRORS.error(
            ErrorKind::Incompatible,
            format!(
                "a queue or exchange of this name has other settings: choose another prefix, or remove it ({text})"
            ),
        ),
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if text.contains("larger than") => ERRORS.error(
            ErrorKind::TooLarge,
            format!("the server's max_message_size is below message_bytes: {text}"),
        ),
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
            ERRORS.error(ErrorKind::Unavailable, format!("the server closed the channel: {text}"))
        }
        AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => {
            ERRORS.error(ErrorKind::Unavailable, format!("{LOCKED}{text}"))
        }
        AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED) => {
            ERRORS.error(ErrorKind::Unavailable, format!("the server ended the connection: {text}"))
        }
        AMQPErrorKind::Hard(AMQPHardError::NOTIMPLEMENTED) => {
            ERRORS.error(ErrorKind::Incompatible, format!("the server lacks a feature that is needed: {text}"))
        }
        _ => ERRORS.error(ErrorKind::Unavailable, format!("the server answered with an error: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let soft = |code, text| by_code(&AMQPErrorKind::Soft(code), text).kind();
        assert_eq!(soft(AMQPSoftError::ACCESSREFUSED, "Login was refused using…"), ErrorKind::AccessDenied);
        assert_eq!(soft(AMQPSoftError::NOTFOUND, "no queue"), ErrorKind::Unavailable);
        let missing = |text| is_missing(&by_code(&AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND), text));
        assert!(missing("NOT_FOUND - no queue 'aq:mail:0' in vhost '/'"));
        assert!(!missing("NOT_FOUND - home node 'r@b' of durable queue 'aq:mail:0' in vhost '/' is down"));
        assert_eq!(soft(AMQPSoftError::PRECONDITIONFAILED, "inequivalent arg 'x'"), ErrorKind::Incompatible);
        assert_eq!(soft(AMQPSoftError::PRECONDITIONFAILED, "delivery ack timed out"), ErrorKind::Unavailable);
        let vhost = by_code(&AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED), "vhost none not found");
        assert_eq!((vhost.kind(), vhost.retry()), (ErrorKind::AccessDenied, RetryClass::Never));
    }
}
