//! The audit trail: who managed what.

use std::sync::Arc;

use anyqueue::Page;
use anyqueue_control::audit::{Audit, AuditEntry, AuditPage};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::shell::{Shell, page as answer};
use super::text::moment;
use crate::app::App;
use crate::problem::Problem;
use crate::wire::Query;

/// The most entries on one page.
const SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditHtml {
    shell: Shell,
    found: Result<Found, String>,
}

struct Found {
    entries: Vec<Shown>,
    unreadable: Vec<(String, String)>,
    /// The page after this one.
    next: Option<u64>,
    is_first: bool,
}

struct Shown {
    at: String,
    token: Option<String>,
    from: String,
    method: String,
    path: String,
    queues: String,
    /// `None` while the outcome is unknown.
    status: Option<u16>,
    details: String,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Which {
    #[serde(default)]
    after: Option<u64>,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Response {
    let found = async {
        let trail = Audit::new(app.store()?.clone());
        Ok::<_, Problem>(Found::of(trail.list(Page::of(SHOWN).after(which.after)).await?, which.after))
    };
    let found = found.await.map_err(|problem| problem.detail);
    answer(&AuditHtml { shell: Shell::new(&app, "Audit", "Audit").timed(), found })
}

impl Found {
    fn of(page: AuditPage, after: Option<u64>) -> Self {
        let unreadable = page.unreadable.into_iter().map(|(key, error)| (key, error.to_string()));
        Self {
            entries: page.entries.into_iter().map(Shown::of).collect(),
            unreadable: unreadable.collect(),
            next: page.next,
            is_first: after.is_none(),
        }
    }
}

impl Shown {
    fn of(entry: AuditEntry) -> Self {
        let status = entry.outcome.as_ref().map(|outcome| outcome.status);
        let outcome = entry.outcome.unwrap_or_default();
        let details = outcome.details.iter().map(|(name, value)| format!("{name}: {value}"));
        Self {
            at: moment(entry.at),
            token: entry.token,
            from: entry.from.unwrap_or_else(|| "–".to_owned()),
            method: entry.method,
            path: entry.path,
            queues: outcome.queues.join(", "),
            status,
            details: details.collect::<Vec<_>>().join("\n"),
        }
    }

    /// The class that colours its status.
    fn class(&self) -> &'static str {
        match self.status {
            None => "running",
            Some(..400) => "succeeded",
            Some(_) => "failed",
        }
    }
}
