//! What all pages have in common: head, navigation, errors.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use crate::app::App;
use crate::problem::{Answer, Problem};

/// What a page may load: only resources of this service, and no inline scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The frame of a page.
pub(crate) struct Shell {
    pub(crate) title: String,
    /// Its entry in the navigation.
    pub(crate) page: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) read_only: bool,
    /// Whether anyone on the network path can read along.
    pub(crate) in_the_open: bool,
    /// Whether and how the page updates itself.
    pub(crate) live: &'static str,
    /// What was just done.
    pub(crate) said: Option<String>,
}

impl Shell {
    pub(crate) fn new(app: &App, page: &'static str, title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            page,
            backend: app.queue.storage().name(),
            read_only: app.read_only,
            in_the_open: app.in_the_open.get().is_some_and(|open| *open),
            live: "true",
            said: None,
        }
    }

    pub(crate) fn still(mut self) -> Self {
        self.live = "false";
        self
    }

    /// The page also changes while no queue does.
    pub(crate) fn timed(mut self) -> Self {
        self.live = "timed";
        self
    }

    pub(crate) fn saying(mut self, said: Option<String>) -> Self {
        self.said = said.filter(|said| !said.is_empty());
        self
    }

    /// The navigation.
    #[allow(clippy::unused_self, reason = "the template asks the frame")]
    pub(crate) fn pages(&self) -> [(&'static str, &'static str); 7] {
        [
            ("Overview", "/"),
            ("Tasks", "/tasks"),
            ("Dead letters", "/dead"),
            ("Workers", "/workers"),
            ("Cron", "/cron"),
            ("Limits", "/limits"),
            ("Audit", "/audit"),
        ]
    }

    #[allow(clippy::unused_self, reason = "the template asks the frame")]
    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Responds with a page.
pub(crate) fn page(template: &impl Template) -> Response {
    with_status(StatusCode::OK, template)
}

pub(crate) fn with_status(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
                (header::REFERRER_POLICY, "same-origin"),
            ];
            (status, headers, text).into_response()
        }
        Err(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()).into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Failed {
    shell: Shell,
    detail: String,
}

/// Responds with a page that shows a problem.
pub(crate) fn failed(app: &App, problem: &Problem) -> Response {
    let shell = Shell::new(app, "", problem.title.clone()).still();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_status(status, &Failed { shell, detail: problem.detail.clone() })
}

/// Redirects to a page, with a message about what was done.
pub(crate) fn back(path: &str, said: &str) -> Response {
    let said = encoded(said);
    let separator = if path.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{path}{separator}said={said}")).into_response()
}

/// Encodes a text for use in a URL.
pub(crate) fn encoded(text: &str) -> String {
    askama::filters::urlencode_strict(text).map(|text| text.to_string()).unwrap_or_default()
}

/// Responds with what was done, or with why it was not.
pub(crate) fn or_failed(app: &App, done: Answer<Response>) -> Response {
    done.unwrap_or_else(|problem| failed(app, &problem))
}

pub(crate) fn no_action(name: &str) -> Problem {
    Problem::not_found(format!("there is no action {name:?}"))
}
