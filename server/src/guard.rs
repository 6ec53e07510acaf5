//! Who may ask: refused are pages of other sites in a browser on this machine, and those without a token where there are any.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hmac::Mac as _;

use crate::problem::{Answer, Problem};
use crate::seal::mac_of;

/// The shortest token: what is shorter can be guessed.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;

/// What a request has to show.
pub(crate) struct Guard {
    /// Whether only this machine is served: then a request that names another host was sent by a page that made its own name point here.
    pub(crate) loopback: bool,
    /// One of these, if there are any. Kept as hashes under a key of this process.
    tokens: Vec<[u8; 32]>,
    key: [u8; 16],
}

impl Guard {
    pub(crate) fn new(loopback: bool, tokens: &[String]) -> Self {
        let key = *uuid::Uuid::new_v4().as_bytes();
        let tokens = tokens.iter().map(|token| hash(key, token)).collect();
        Self { loopback, tokens, key }
    }

    fn check(&self, request: &Request) -> Answer<()> {
        let host = host_of(request.headers(), request.uri());
        if self.loopback && !host.as_deref().is_some_and(is_loopback_name) {
            let text = "this service serves its own machine: ask for it as localhost, 127.0.0.1 or [::1]";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", text));
        }
        if let Some(origin) = request.headers().get(header::ORIGIN)
            && !is_same(origin, request.headers(), request.uri())
        {
            let text = "a page of another site cannot ask this service";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", text));
        }
        let is_open = matches!(request.uri().path(), "/livez" | "/readyz");
        if self.tokens.is_empty() || is_open || self.knows(request.headers()) {
            return Ok(());
        }
        let text = "send a token of this service: Authorization: Bearer <token>";
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text))
    }

    /// Compares hashes, so that how long it takes says nothing about a token.
    fn knows(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = said
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = token else { return false };
        let hash = hash(self.key, token.trim());
        self.tokens.iter().filter(|one| **one == hash).count() > 0
    }
}

fn hash(key: [u8; 16], token: &str) -> [u8; 32] {
    let mut mac = mac_of(&key);
    mac.update(token.as_bytes());
    mac.finalize().into_bytes().into()
}

/// The host that is asked for, with its port.
fn authority(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let by_header = headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    uri.authority().map(ToString::to_string).or(by_header)
}

fn host_of(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let authority = authority(headers, uri)?;
    authority.parse::<axum::http::uri::Authority>().ok().map(|authority| authority.host().to_owned())
}

fn is_loopback_name(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_same(origin: &HeaderValue, headers: &HeaderMap, uri: &Uri) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| {
        authority(headers, uri).is_some_and(|asked| asked.eq_ignore_ascii_case(host))
    })
}

/// Stands before every request.
pub(crate) async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn status(guard: &Guard, headers: &[(&str, &str)]) -> u16 {
        let mut request = axum::http::Request::builder().uri("/v1/partitions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        guard.check(&request).map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn a_page_that_made_its_name_point_here_is_refused() {
        let guard = Guard::new(true, &[]);
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:7780", "[::1]:7780", "127.9.9.9"] {
            assert_eq!(status(&guard, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:7780", "192.168.1.1", "", "a b"] {
            assert_eq!(status(&guard, &[("host", host)]), 403, "{host:?}");
        }
        assert_eq!(status(&guard, &[]), 403);
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let guard = Guard::new(true, &[]);
        let from = |origin| status(&guard, &[("host", "localhost:7780"), ("origin", origin)]);
        assert_eq!(from("http://localhost:7780"), 200);
        for origin in ["http://localhost:7781", "https://evil.example", "null", ""] {
            assert_eq!(from(origin), 403, "{origin:?}");
        }
    }

    #[test]
    fn where_there_are_tokens_one_of_them_is_needed() {
        let guard = Guard::new(false, &["a-token-of-16-bytes".to_owned(), "another-long-token".to_owned()]);
        let with = |value| status(&guard, &[("host", "queue.example"), ("authorization", value)]);
        assert_eq!(with("Bearer a-token-of-16-bytes"), 200);
        assert_eq!(with("bearer another-long-token"), 200);
        for wrong in [
            "Bearer a-token-of-16-byte",
            "Bearer",
            "Bearer ",
            "a-token-of-16-bytes",
            "Basic a-token-of-16-bytes",
        ] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &[("host", "queue.example")]), 401);
    }
}
