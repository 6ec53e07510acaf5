//! The audit trail: who managed what.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyqueue::Page;
use anyqueue_control::audit::{Audit as Store, AuditEntry};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::limits::Unreadable;
use crate::app::App;
use crate::problem::Answer;
use crate::wire::{Json, Query, time_text};

/// The most entries on a page.
const MAX_PAGE: usize = 100;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageOf {
    /// The number of the last entry of the previous page.
    #[serde(default)]
    after: Option<u64>,
    /// How many, at most 100.
    #[serde(default)]
    limit: Option<usize>,
}

/// A management request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Managed {
    /// Its number. Later entries have greater numbers.
    number: u64,
    /// When it was recorded, by the store's clock.
    at: String,
    /// The name of the token; null for the operator, which means that no tokens are required, or that the
    /// token is from the token file.
    token: Option<String>,
    /// The address that it came from, as the service saw it.
    from: Option<String>,
    /// The method.
    method: String,
    /// The path, without the query.
    path: String,
    /// The status of the response; 499 if the client left before it, and null if the request is under way or
    /// the service ended meanwhile: it may have been carried out or not.
    status: Option<u16>,
    /// The queues that it named.
    partitions: Vec<String>,
    /// Names, ids and counts.
    details: BTreeMap<String, String>,
}

impl From<AuditEntry> for Managed {
    fn from(entry: AuditEntry) -> Self {
        let outcome = entry.outcome.unwrap_or_default();
        Self {
            number: entry.number,
            at: time_text(entry.at),
            token: entry.token,
            from: entry.from,
            method: entry.method,
            path: entry.path,
            status: Some(outcome.status).filter(|status| *status != 0),
            partitions: outcome.queues,
            details: outcome.details.into_iter().collect(),
        }
    }
}

/// A page of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditTrail {
    /// The newest first.
    entries: Vec<Managed>,
    /// Those that cannot be read, and why.
    unreadable: Vec<Unreadable>,
    /// The `after` of the next page; null on the last page.
    next: Option<u64>,
}

/// Lists who managed what: the last 10,000 requests that change something by the right `manage` or `admin`,
/// and logins of people. Entries are kept for 90 days.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "service", params(PageOf),
    responses((status = 200, description = "A page of the audit trail.", body = AuditTrail))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(page): Query<PageOf>,
) -> Answer<Json<AuditTrail>> {
    let page = Page::of(page.limit.unwrap_or(MAX_PAGE)).after(page.after);
    let found = Store::new(app.store()?.clone()).list(page).await?;
    Ok(Json(AuditTrail {
        entries: found.entries.into_iter().map(Managed::from).collect(),
        unreadable: found.unreadable.iter().map(Unreadable::of).collect(),
        next: found.next,
    }))
}
