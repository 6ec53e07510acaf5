//! `ETag` and `If-Match`: when two clients change the same thing at once, the second one notices.

use anyqueue_control::{Deleted, Precondition};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::{Answer, Problem};
use crate::wire::Json;

/// The most revisions that one condition may name.
const MAX_TAGS: usize = 100;

/// A value as JSON, and its revision, which becomes the `ETag`.
pub(crate) struct Tagged<T>(pub(crate) T, pub(crate) String);

impl<T: serde::Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.0).into_response();
        if let Ok(value) = HeaderValue::from_str(&format!("\"{}\"", self.1)) {
            response.headers_mut().insert(header::ETAG, value);
        }
        response
    }
}

/// The precondition of a change, from `If-Match` and `If-None-Match: *`.
pub(crate) fn precondition(headers: &HeaderMap) -> Answer<Precondition> {
    let mut none = headers.get_all(header::IF_NONE_MATCH).iter();
    if let Some(first) = none.next() {
        let is_star = first.to_str().is_ok_and(|text| text.trim() == "*");
        return if is_star && none.next().is_none() && !headers.contains_key(header::IF_MATCH) {
            Ok(Precondition::Absent)
        } else {
            Err(Problem::invalid("If-None-Match can only be *, without If-Match: there must be none yet"))
        };
    }
    let mut tags = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let text = value.to_str().map_err(|_| Problem::invalid("If-Match is not text"))?.trim();
        if text == "*" {
            return Ok(Precondition::Present);
        }
        for tag in text.split(',') {
            tags.push(strong(tag.trim())?);
        }
    }
    if tags.len() > MAX_TAGS {
        return Err(Problem::invalid(format!("If-Match names more than {MAX_TAGS} tags")));
    }
    Ok(if headers.contains_key(header::IF_MATCH) {
        Precondition::Revision(tags.into_iter().flatten().collect())
    } else {
        Precondition::Anything
    })
}

/// The revision in a tag; `None` for a weak tag, which never matches.
fn strong(tag: &str) -> Answer<Option<String>> {
    let (is_weak, quoted) = tag.strip_prefix("W/").map_or((false, tag), |rest| (true, rest));
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inner = inner.filter(|inner| !inner.contains('"'));
    let inner = inner.ok_or_else(|| {
        Problem::invalid(format!("{tag:?} in If-Match is not a tag: send the ETag of a GET, with its quotes"))
    })?;
    Ok((!is_weak).then(|| inner.to_owned()))
}

/// The problem for something that was created, changed or deleted since the client looked at it.
pub(crate) fn not_as_expected(what: &str, name: &str) -> Problem {
    let text = format!(
        "the {what} {name:?} is not as you expect: it was created, changed or deleted; get it again, and decide again"
    );
    Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", text)
}

/// Responds with 204, 404 or 412.
pub(crate) fn deletion(
    deleted: Option<Deleted>,
    not_as_expected: Problem,
    unknown: Problem,
) -> Answer<StatusCode> {
    match deleted {
        Some(Deleted::Done) => Ok(StatusCode::NO_CONTENT),
        Some(Deleted::NotThere) => Err(unknown),
        _ => Err(not_as_expected),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(pairs: &[(header::HeaderName, &'static str)]) -> Answer<Precondition> {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        precondition(&headers)
    }

    #[test]
    fn conditions_are_read_as_http_writes_them() {
        let tags = |all: &[&str]| Precondition::Revision(all.iter().map(|one| (*one).to_owned()).collect());
        assert_eq!(of(&[]).unwrap(), Precondition::Anything);
        assert_eq!(of(&[(header::IF_MATCH, "*")]).unwrap(), Precondition::Present);
        assert_eq!(of(&[(header::IF_NONE_MATCH, " * ")]).unwrap(), Precondition::Absent);
        assert_eq!(of(&[(header::IF_MATCH, "\"a\", \"b\"")]).unwrap(), tags(&["a", "b"]));
        assert_eq!(
            of(&[(header::IF_NONE_MATCH, "*"), (header::IF_NONE_MATCH, "*")]).unwrap_err().status,
            400
        );
        let two = [(header::IF_MATCH, "\"a\""), (header::IF_MATCH, "\"b\"")];
        assert_eq!(of(&two).unwrap(), tags(&["a", "b"]));
        assert_eq!(of(&[(header::IF_MATCH, "W/\"a\"")]).unwrap(), tags(&[]), "weak tags match nothing");
        for wrong in ["a", "\"a", "\"a\",", "\"a\" \"b\"", ""] {
            assert_eq!(of(&[(header::IF_MATCH, wrong)]).unwrap_err().status, 400, "{wrong:?}");
        }
        assert_eq!(of(&[(header::IF_NONE_MATCH, "\"a\"")]).unwrap_err().status, 400);
        assert_eq!(of(&[(header::IF_NONE_MATCH, "*"), (header::IF_MATCH, "*")]).unwrap_err().status, 400);
    }
}
