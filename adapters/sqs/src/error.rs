//! Errors of SQS and its client, with their kinds and retry classes.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use anyqueue::adapter::Errors;
use anyqueue::{Error, ErrorKind, RetryClass};
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

/// The backend's name in errors.
pub(crate) const NAME: &str = "sqs";

pub(crate) const ERRORS: Errors = Errors::of(NAME);

/// The error for an answer that lacks something.
pub(crate) fn unexpected_reply(what: &str) -> Error {
    Error::new(ErrorKind::Incompatible, format!("the server's answer lacks {what}"))
}

/// Why a request, or one entry of it, was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// The receipt handle is no longer valid: the message is gone, or another consumer has it.
    NotHeld,
    /// The queue does not exist.
    NoQueue,
    /// Any other error.
    Failed(Error),
}

impl Refused {
    /// Converts this to an error, for calls that need the queue.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotHeld => ERRORS.error(ErrorKind::Internal, "the server knows no such receipt handle"),
            Self::NoQueue => ERRORS
                .error(
                    ErrorKind::Unavailable,
                    "the queue does not exist, or not yet: the next call looks it up again",
                )
                .with_retry(RetryClass::Safe),
            Self::Failed(error) => error,
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Classifies the error of a request. If the answer was lost, the request may have been carried out.
pub(crate) fn classify<E>(cause: &SdkError<E, HttpResponse>) -> Refused
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = cause {
        let (code, text) =
            (service.err().code().unwrap_or_default(), service.err().message().unwrap_or_default());
        return by_code(code, text, service.raw().status().as_u16() >= 500);
    }
    let uncertain = RetryClass::MayDuplicate;
    let classed = match cause {
        _ if caused_by::<CredentialsError>(cause) => ERRORS.error(
            ErrorKind::AccessDenied,
            "no credentials: provide them by the environment, a profile, a role, or in the URL",
        )
        .with_retry(RetryClass::Safe),
        SdkError::ConstructionFailure(_) => ERRORS.error(ErrorKind::Internal, "the request could not be built"),
        SdkError::TimeoutError(_) => ERRORS.error(ErrorKind::TimedOut, TIMED_OUT).with_retry(uncertain),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            ERRORS.error(ErrorKind::TimedOut, TIMED_OUT).with_retry(uncertain)
        }
        SdkError::DispatchFailure(_) if is_connection_refused(cause) => ERRORS.error(
            ErrorKind::Unavailable,
            "the server cannot be reached: is the endpoint right, and is it running?",
        )
        .with_retry(RetryClass::Safe),
        _ => ERRORS.error(
            ErrorKind::Unavailable,
            "the connection was lost before the answer came: it is not known whether the request was done",
        )
        .with_retry(uncertain),
    };
    Refused::Failed(classed.with_source(Causes::of(cause)))
}

pub(crate) const TIMED_OUT: &str =
    "the server did not answer in time: it is not known whether the request was done";

/// Classifies an error of the server, for a request or for an entry of a batch. The server's own text names
/// what is missing or wrong, and contains no secrets.
pub(crate) fn by_code(code: &str, text: &str, server_fault: bool) -> Refused {
    let safe = RetryClass::Safe;
    let bare = code.rsplit('.').next().unwrap_or_default();
    let error = match bare {
        "QueueDoesNotExist" | "NonExistentQueue" | "ResourceNotFoundException" => return Refused::NoQueue,
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => return Refused::NotHeld,
        // Both an expired receipt handle and one that was never issued are reported like this.
        "InvalidParameterValue" if text.contains("eceipt handle") || text.contains("visibility timeout") => {
            return Refused::NotHeld;
        }
        "InvalidParameterValue" if text.contains("shorter than") => {
            ERRORS.error(ErrorKind::TooLarge, format!("the message is too large for the server: lower message_bytes. {text}"))
        }
        "BatchRequestTooLong" => ERRORS.error(ErrorKind::TooLarge, "the batch is too large for the server: lower message_bytes"),
        "RequestThrottled" | "Throttling" | "ThrottlingException" | "ThrottledException" | "TooManyRequestsException"
        | "RequestLimitExceeded" | "SlowDown" | "KmsThrottled" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server throttles: too many requests per second (nothing was done); fewer, larger batches help",
        )
        .with_retry(safe),
        "OverLimit" => ERRORS.error(
            ErrorKind::Full,
            "the queue has as many messages in flight as the server allows, including postponed ones: settle what is held (nothing was done)",
        )
        .with_retry(safe),
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | "TokenRefreshRequired" => ERRORS.error(
            ErrorKind::AccessDenied,
            "the credentials have expired: renew them (nothing was done); the next call takes the new ones",
        )
        .with_retry(safe),
        "AccessDenied" | "AccessDeniedException" | "AuthFailure" | "UnauthorizedOperation" | "InvalidClientTokenId"
        | "InvalidAccessKeyId" | "UnrecognizedClientException" | "SignatureDoesNotMatch" | "InvalidSignatureException"
        | "MissingAuthenticationToken" | "MissingAuthenticationTokenException" | "IncompleteSignature" | "InvalidSecurity"
        | "OptInRequired" | "KmsAccessDenied" | "KmsOptInRequired" => {
            ERRORS.error(ErrorKind::AccessDenied, format!("the server refuses: {code}: {text}"))
        }
        "InvalidAction" | "UnknownOperationException" | "UnsupportedOperation" => {
            ERRORS.error(ErrorKind::Unsupported, format!("the server does not support this: {code}: {text}"))
        }
        "QueueDeletedRecently" => ERRORS.error(
            ErrorKind::Unavailable,
            "a queue of this name was deleted less than a minute ago: the server creates it again only after that",
        )
        .with_retry(safe),
        "RequestTimeTooSkewed" => ERRORS.error(ErrorKind::AccessDenied, "this machine's clock is wrong: the server refuses its signatures"),
        _ if server_fault => {
            ERRORS.error(ErrorKind::Unavailable, format!("the server failed: {code} {text}")).with_retry(RetryClass::MayDuplicate)
        }
        _ => ERRORS.error(ErrorKind::Internal, format!("the server answered with an error: {code} {text}")),
    };
    Refused::Failed(error)
}

/// Classifies an entry of a batch that the server reports as failed.
pub(crate) fn classify_entry(code: &str, text: &str, sender_fault: bool) -> Refused {
    match by_code(code, text, !sender_fault) {
        Refused::Failed(error) => Refused::Failed(error.repeatable()),
        refused => refused,
    }
}

type Cause<'e> = &'e (dyn StdError + 'static);

fn causes<'e>(error: Cause<'e>) -> impl Iterator<Item = Cause<'e>> {
    std::iter::successors(Some(error), |error: &Cause<'e>| (*error).source())
}

fn caused_by<C: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(<dyn StdError>::is::<C>)
}

/// Whether the connection was refused, so that nothing was sent.
fn is_connection_refused(error: &(dyn StdError + 'static)) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    causes(error).any(|cause| cause.downcast_ref().is_some_and(refused))
}

/// The texts of an error and its causes. The client's own error would reveal requests and their bodies.
#[derive(Debug)]
struct Causes(String);

impl Causes {
    fn of(error: &(dyn StdError + 'static)) -> Self {
        Self(causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Causes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_spellings_are_told_apart() {
        let class = |code, text, server_fault| match by_code(code, text, server_fault) {
            Refused::Failed(error) => Some((error.kind(), error.retry())),
            Refused::NotHeld | Refused::NoQueue => None,
        };
        assert!(matches!(by_code("AWS.SimpleQueueService.NonExistentQueue", "", false), Refused::NoQueue));
        assert!(matches!(by_code("QueueDoesNotExist", "", false), Refused::NoQueue));
        assert!(matches!(by_code("AWS.SimpleQueueService.MessageNotInflight", "", false), Refused::NotHeld));
        assert!(matches!(by_code("ReceiptHandleIsInvalid", "", false), Refused::NotHeld));
        assert_eq!(class("RequestThrottled", "", false), Some((ErrorKind::Unavailable, RetryClass::Safe)));
        assert_eq!(class("ExpiredToken", "", false), Some((ErrorKind::AccessDenied, RetryClass::Safe)));
        assert_eq!(class("AccessDenied", "", false), Some((ErrorKind::AccessDenied, RetryClass::Never)));
        assert_eq!(class("OverLimit", "", false), Some((ErrorKind::Full, RetryClass::Safe)));
        assert_eq!(
            class("InternalFailure", "", true),
            Some((ErrorKind::Unavailable, RetryClass::MayDuplicate))
        );
        let long = "Reason: Message must be shorter than 262144 bytes.";
        assert_eq!(
            class("InvalidParameterValue", long, false),
            Some((ErrorKind::TooLarge, RetryClass::Never))
        );
        assert_eq!(class("Something", "else", false).map(|class| class.0), Some(ErrorKind::Internal));
    }

    #[test]
    fn an_entry_that_failed_at_the_server_was_not_done() {
        let Refused::Failed(error) = classify_entry("InternalError", "", false) else { panic!("an error") };
        assert_eq!(error.retry(), RetryClass::Safe);
    }
}
