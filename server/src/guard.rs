//! Who may make requests: pages of other sites in a browser on this machine are refused, and callers without
//! a token where tokens are required.

use std::sync::Arc;

use anyqueue_control::tokens::Fingerprint;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};

use crate::access::{Access, forbidden, scope};
use crate::app::App;
use crate::arriving::{Arriving, note_queue};
use crate::followed::follow;
use crate::noted::{self, Notes};
use crate::peer::Peer;
use crate::problem::{Answer, Problem};
use crate::sessions::COOKIE;
use crate::table::{Need, need};
use crate::trail::Entered;

/// Checks what a request has to show.
pub(crate) struct Guard {
    /// Whether only this machine is served: then a request that names another host was sent by a page whose
    /// own name was made to point here.
    pub(crate) loopback: bool,
    pub(crate) app: Arc<App>,
}

impl Guard {
    fn check_origin(&self, request: &Parts) -> Answer<()> {
        let host = authority(&request.headers, &request.uri).map(name_of);
        if self.loopback && !host.is_some_and(is_loopback_name) {
            let text =
                "this service serves only its own machine: address it as localhost, 127.0.0.1 or [::1]";
            return Err(forbidden(text));
        }
        if let Some(origin) = request.headers.get(header::ORIGIN)
            && !is_same(origin, &request.headers, &request.uri)
        {
            return Err(forbidden("a page of another site cannot use this service"));
        }
        Ok(())
    }

    /// Returns the caller, if it may make this request, and the entry in the audit trail, if there is to be
    /// one.
    async fn admit(&self, request: &mut Parts) -> Answer<(Arc<Access>, Option<Entered>)> {
        self.check_origin(request)?;
        let route = request.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        let need = need(&request.method, route, &request.headers);
        let certificate = request.extensions.get::<Fingerprint>();
        let Some(access) = self.caller(need, certificate, &request.headers).await? else {
            return Err(unknown(certificate));
        };
        need.check(&access)?;
        if !need.is_audited(&request.method) {
            return Ok((access, None));
        }
        let notes = Notes::default();
        note_queue(request, &notes).await;
        let peer = request.extensions.get::<Peer>().copied();
        let (method, path) = (request.method.as_str(), request.uri.path());
        let entered = self.app.trail.begin(&access, peer, method, path, notes).await?;
        Ok((access, entered))
    }

    /// What a request itself carries counts more than the connection that it comes on: a token, then a
    /// session, then a certificate. A request that tries to identify its caller and fails is refused, lest
    /// the caller act as somebody else than it thinks.
    async fn caller(
        &self,
        need: Need,
        certificate: Option<&Fingerprint>,
        headers: &HeaderMap,
    ) -> Answer<Option<Arc<Access>>> {
        let app = &self.app;
        if need == Need::Open || app.keys.is_open() {
            return Ok(Some(app.keys.anybody()));
        }
        if headers.contains_key(header::AUTHORIZATION) {
            return app.keys.of(bearer(headers).ok_or_else(no_token)?).await;
        }
        if let Some(access) = session(headers).and_then(|name| app.sessions.of(name))
            && app.keys.still(&access).await?
        {
            return Ok(Some(access));
        }
        match certificate {
            Some(certificate) if !is_of_another_page(headers) => app.keys.of_certificate(certificate).await,
            _ => Ok(None),
        }
    }
}

fn unknown(certificate: Option<&Fingerprint>) -> Problem {
    let bearer = "send a token of this service that has not expired: Authorization: Bearer <token>";
    let text = match certificate {
        Some(certificate) => format!(
            "{bearer}; or bind your certificate, of SHA-256 {certificate}, to one: anyqueue tokens bind <name> <certificate>"
        ),
        None => bearer.to_owned(),
    };
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text)
}

/// The problem for an `Authorization` header that holds no token.
fn no_token() -> Problem {
    let text =
        "the header Authorization holds no token: send Authorization: Bearer <token>, once, or leave it out";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text)
}

/// Whether a page of another site makes the browser send the request. The browser shows a certificate all the
/// same, where it would hold back the cookie of a session.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let from = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    from.is_some_and(|from| from != b"same-origin" && from != b"none")
}

/// The token in the `Authorization` header, if there is exactly one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (said, another) = (all.next()?, all.next());
    let (scheme, token) = said.to_str().ok()?.split_once(' ')?;
    let is_bearer = another.is_none() && scheme.eq_ignore_ascii_case("bearer");
    Some(token.trim()).filter(|token| is_bearer && !token.is_empty())
}

fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Whether a person asks, for whom a page is more useful than a problem. Not with a token: logging in would
/// not help while a token is sent along.
fn wants_page(request: &Request) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let has_token = request.headers().contains_key(header::AUTHORIZATION);
    !has_token
        && !request.uri().path().starts_with("/v1/")
        && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The host that is asked for, with its port.
fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let by_header = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(Authority::as_str).or_else(by_header)
}

/// A host without its port. What is not of this form is left as it is, and is the name of no machine.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn is_loopback_name(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_same(origin: &HeaderValue, headers: &HeaderMap, uri: &Uri) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| {
        authority(headers, uri).is_some_and(|asked| asked.eq_ignore_ascii_case(host))
    })
}

/// Guards every request.
pub(crate) async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let for_person = wants_page(&request);
    // A request with its body cannot be shared between threads while the store is asked.
    let (mut parts, body) = request.into_parts();
    let mut response = match guard.admit(&mut parts).await {
        Ok((access, None)) => scope(access, next.run(Request::from_parts(parts, body))).await,
        Ok((access, Some(entered))) => {
            let body = Arriving::of(body, entered.notes.clone());
            let answering = scope(access, next.run(Request::from_parts(parts, body)));
            let response = noted::scope(entered.notes.clone(), answering).await;
            follow(entered, response).await
        }
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
    fn a_host_is_one_of_this_machine_with_a_port_and_without() {
        for asked in ["localhost:7780", "localhost", "127.0.0.1:80", "127.0.0.1", "[::1]:7780", "[::1]"] {
            assert!(is_loopback_name(name_of(asked)), "{asked}");
        }
        let others =
            ["evil.example:7780", "evil.example", "localhost:x", "localhost.:1", "::1", "[::1", "::1]"];
        for asked in
            others.into_iter().chain(["localhost@evil.example:1", ":7780", "", "[::2]:1", "127.0.0.1:1:1"])
        {
            assert!(!is_loopback_name(name_of(asked)), "{asked:?}");
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
