//! Who may ask: refused are pages of other sites in a browser on this machine, and those without a token where there are any.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::sessions::{COOKIE, Sessions};

/// What a request has to show.
pub(crate) struct Guard {
    /// Whether only this machine is served: then a request that names another host was sent by a page that made its own name point here.
    pub(crate) loopback: bool,
    pub(crate) app: Arc<App>,
}

impl Guard {
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
        let path = request.uri().path();
        let is_open = matches!(path, "/livez" | "/readyz" | "/login") || path.starts_with("/assets/");
        let sessions = &self.app.sessions;
        if sessions.is_open()
            || is_open
            || shows_token(sessions, request.headers())
            || is_entered(sessions, request.headers())
        {
            return Ok(());
        }
        let text = "send a token of this service: Authorization: Bearer <token>";
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text))
    }
}

fn shows_token(sessions: &Sessions, headers: &HeaderMap) -> bool {
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = said.and_then(|text| text.split_once(' '));
    token.is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && sessions.knows(token.trim()))
}

fn is_entered(sessions: &Sessions, headers: &HeaderMap) -> bool {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(name, value)| name == COOKIE && sessions.lasts(value))
}

/// Whether a person asks, to whom a page says more than a problem.
fn wants_page(request: &Request) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    !request.uri().path().starts_with("/v1/") && accept.is_some_and(|accept| accept.contains("text/html"))
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
    let for_person = wants_page(&request);
    let mut response = match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED.as_u16() && for_person => {
            Redirect::to("/login").into_response()
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "127.9.9.9"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "192.168.1.1", "", "127.0.0.1.evil.example"] {
            assert!(!is_loopback_name(host), "{host:?}");
        }
    }

    #[test]
    fn only_the_same_site_is_the_same() {
        let is_same = |origin: &'static str| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost:7780"))]);
            super::is_same(&HeaderValue::from_static(origin), &headers, &Uri::from_static("/v1/partitions"))
        };
        assert!(is_same("http://localhost:7780"));
        for origin in ["http://localhost:7781", "https://evil.example", "null", ""] {
            assert!(!is_same(origin), "{origin:?}");
        }
    }
}
