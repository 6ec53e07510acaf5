//! Errors in HTTP responses: RFC 9457.

use anyqueue::{Error, ErrorKind, RetryClass};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, in the form of [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The status in words.
    pub(crate) title: String,
    /// What happened, and what to do.
    pub(crate) detail: String,
    /// What kind of error it is, for programs.
    pub(crate) kind: String,
    /// What a retry would do: it `never` helps, is `safe`, or `may_duplicate`.
    pub(crate) retry: &'static str,
    /// Which backend it comes from, if it comes from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &str, detail: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            detail: detail.into(),
            kind: kind.to_owned(),
            retry: "never",
            backend: None,
        }
    }

    /// The request is invalid.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_input", detail)
    }

    /// What was asked for does not exist.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The request is more than this instance can do at once.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self { retry: "safe", ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            // The missing right is the service's own, towards its backend.
            ErrorKind::AccessDenied => StatusCode::BAD_GATEWAY,
            ErrorKind::Full | ErrorKind::Unavailable | ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let retry = match error.retry() {
            RetryClass::Safe => "safe",
            RetryClass::MayDuplicate => "may_duplicate",
            RetryClass::Never => "never",
        };
        let backend = error.backend().map(str::to_owned);
        Self { retry, backend, ..Self::new(status, error.kind().as_str(), error.message()) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The result of a request.
pub(crate) type Answer<T> = Result<T, Problem>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status_and_what_a_repetition_does() {
        let of = |kind| Problem::from(Error::new(kind, "why").with_retry(RetryClass::Safe)).status;
        let all = [
            (ErrorKind::InvalidInput, 400),
            (ErrorKind::Unsupported, 501),
            (ErrorKind::TooLarge, 413),
            (ErrorKind::Full, 503),
            (ErrorKind::Closed, 503),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::TimedOut, 504),
            (ErrorKind::AccessDenied, 502),
            (ErrorKind::Incompatible, 500),
            (ErrorKind::Corrupt, 500),
            (ErrorKind::Internal, 500),
        ];
        for (kind, status) in all {
            assert_eq!(of(kind), status, "{kind:?}");
        }
        let uncertain = Error::new(ErrorKind::TimedOut, "why").with_retry(RetryClass::MayDuplicate);
        assert_eq!(Problem::from(uncertain).retry, "may_duplicate");
    }

    #[test]
    fn a_service_that_is_busy_says_when_to_come_back() {
        let response = Problem::busy("full").into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
