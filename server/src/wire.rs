//! What requests and responses have in common: payloads, durations, times, bodies.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyqueue::{Bytes, MessageData, MessageId, PartitionId};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::access;
use crate::problem::{Answer, Problem};
use crate::timely::is_late;

/// The largest body of a request.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;
/// The most items in one request.
pub(crate) const MAX_ITEMS: usize = 1000;

/// A value as JSON, whatever the client says it accepts.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()).into_response()
            }
        }
    }
}

/// Browsers send some other types across sites without a preflight request, but not this one.
fn is_json(headers: &HeaderMap, subtypes: &[&str]) -> bool {
    let Some(text) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    let subtype = essence.to_ascii_lowercase();
    subtype.strip_prefix("application/").is_some_and(|subtype| subtypes.contains(&subtype))
}

async fn body_bytes(request: Request) -> Answer<Bytes> {
    axum::body::to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|error| {
        if is_late(&error) {
            let text = "the body did not arrive in time: send it faster, or fewer items at once";
            return Problem { retry: "safe", ..Problem::new(StatusCode::REQUEST_TIMEOUT, "timed_out", text) };
        }
        let is_long = std::error::Error::source(&error)
            .is_some_and(|source| source.to_string().contains("length limit"));
        if is_long {
            let text = format!("the body is larger than {MAX_BODY_BYTES} bytes: send fewer items at once");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
        } else {
            Problem::invalid("the body did not arrive whole")
        }
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8], place: &str) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| Problem::invalid(format!("{place}: {error}")))
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Answer<Self> {
        if !is_json(request.headers(), &["json"]) {
            let text = "send the body with the header Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_input", text));
        }
        let bytes = body_bytes(request).await?;
        parse(&bytes, "the body").map(Self)
    }
}

/// One or many items: a JSON array, a single object, or one line of JSON for each.
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
    /// Whether the response should also have one line for each.
    pub(crate) lines: bool,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Items<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Answer<Self> {
        let lines = is_json(request.headers(), &["x-ndjson", "ndjson", "jsonl"]);
        if !lines && !is_json(request.headers(), &["json"]) {
            let text =
                "send the body with the header Content-Type: application/json, or application/x-ndjson";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_input", text));
        }
        let bytes = body_bytes(request).await?;
        let items: Vec<T> = if lines {
            let used = bytes.split(|byte| *byte == b'\n').enumerate();
            let used = used.filter(|(_, line)| !line.trim_ascii().is_empty()).take(MAX_ITEMS + 1);
            used.map(|(number, line)| parse(line, &format!("line {}", number + 1))).collect::<Answer<_>>()?
        } else if bytes.trim_ascii_start().starts_with(b"[") {
            parse(&bytes, "the body")?
        } else {
            vec![parse(&bytes, "the body")?]
        };
        if items.len() > MAX_ITEMS {
            return Err(Problem::invalid(format!("more than {MAX_ITEMS} items: send them in parts")));
        }
        Ok(Self { items, lines })
    }
}

/// Responds with one answer for each item, in order: as an array, or one line for each.
pub(crate) fn answers<T: Serialize>(all: &[T], lines: bool) -> Response {
    if !lines {
        return Json(all).into_response();
    }
    let mut body = Vec::new();
    for one in all {
        // Writing to memory does not fail, and these have no maps with keys other than strings.
        let _ = serde_json::to_writer(&mut body, one);
        body.push(b'\n');
    }
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from(body)).into_response()
}

/// The query of the URL.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        axum::extract::Query::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|error| {
            Problem::invalid(format!("the query of {}: {}", parts.uri.path(), error.body_text()))
        })
    }
}

/// The parameters in the path of the URL.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// A payload: text, any JSON, or bytes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
pub(crate) struct Content {
    /// As text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    /// As JSON, which is stored as its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) json: Option<Value>,
    /// As bytes, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_base64: Option<String>,
}

impl Content {
    pub(crate) fn into_bytes(self) -> Answer<Vec<u8>> {
        match (self.payload, self.json, self.payload_base64) {
            (Some(text), None, None) => Ok(text.into_bytes()),
            (None, Some(json), None) => {
                serde_json::to_vec(&json).map_err(|error| Problem::invalid(error.to_string()))
            }
            (None, None, Some(base64)) => BASE64
                .decode(base64)
                .map_err(|error| Problem::invalid(format!("payload_base64 is not base64: {error}"))),
            (None, None, None) => Ok(Vec::new()),
            _ => Err(Problem::invalid("give one of payload, json and payload_base64")),
        }
    }

    /// Text as text, everything else in base64.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { payload: Some(text.to_owned()), ..Self::default() },
            Err(_) => Self { payload_base64: Some(BASE64.encode(bytes)), ..Self::default() },
        }
    }
}

/// What is known of a message, without its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct About {
    /// Its id.
    pub(crate) id: String,
    /// The kind of task, if one is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The user's name for the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
    /// The session that the task belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    /// Its priority; 0 is the lowest.
    pub(crate) priority: u8,
    /// Its group, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// Its headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
}

impl About {
    pub(crate) fn of(message: &MessageData) -> Self {
        let headers = message.headers();
        Self {
            id: message.id().to_string(),
            kind: headers.get(anyqueue::header::TASK_KIND).cloned(),
            task_id: message.task_id().map(str::to_owned),
            session_id: message.session_id().map(str::to_owned),
            priority: message.options().priority,
            group: message.options().group.as_deref().map(str::to_owned),
            headers: headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

/// Parses the name of a queue, and checks that the caller may touch it.
pub(crate) fn partition(name: &str) -> Answer<PartitionId> {
    let id = PartitionId::new(name)?;
    access::check(id.name())?;
    Ok(id)
}

/// Parses the id of a message.
pub(crate) fn message_id(text: &str) -> Answer<MessageId> {
    text.parse().map_err(|_| Problem::invalid(format!("{text:?} is not a message id, which is a UUID")))
}

/// Parses a time in RFC 3339.
pub(crate) fn time(text: &str) -> Answer<SystemTime> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| Problem::invalid(format!("{text:?} is not a time: write it as 2026-01-31T08:00:00Z")))
}

/// Formats a time in RFC 3339, with milliseconds.
pub(crate) fn time_text(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// The duration in milliseconds, at most `u64::MAX`.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_payload_comes_back_as_it_was() {
        for bytes in [&b"text"[..], b"", "\u{e4}".as_bytes(), &[0xff, 0x00]] {
            assert_eq!(Content::of(bytes).into_bytes().unwrap(), bytes);
        }
        let two = Content { payload: Some("a".to_owned()), json: Some(Value::Null), payload_base64: None };
        assert_eq!(two.into_bytes().unwrap_err().status, 400);
    }

    #[test]
    fn json_is_told_from_what_browsers_send_unasked() {
        let is = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, text.parse().unwrap());
            is_json(&headers, &["json"])
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        assert!(!is("text/plain") && !is("application/x-www-form-urlencoded") && !is("application/json2"));
        assert!(!is_json(&HeaderMap::new(), &["json"]));
    }
}
