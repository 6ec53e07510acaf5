//! How a worker that registered over HTTP proves its identity.

use axum::http::{HeaderMap, StatusCode};

use crate::problem::{Answer, Problem};
use crate::table::SESSION;

pub(crate) fn session(headers: &HeaderMap) -> Answer<String> {
    let text = headers.get(SESSION).and_then(|value| value.to_str().ok());
    text.map(str::to_owned).ok_or_else(|| {
        Problem::invalid(format!("send the session that POST /v1/workers returned in the header {SESSION}"))
    })
}

pub(crate) fn gone(name: &str) -> Problem {
    Problem::new(
        StatusCode::GONE,
        "gone",
        format!(
            "the worker {name:?} of this session is no longer registered: it was silent for too long, was forgotten, or has ended; register again"
        ),
    )
}
