//! The management of a queue of notifications, in the form used by time series stores behind context brokers:
//! the tasks of a tenant are listed, counted and deleted.

use std::sync::Arc;

use anyqueue::{PartitionId, Task, TaskFilter, TaskState, TaskStream};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::notification::{Notification, Runtime, Status};
use super::tenant::Tenant;
use crate::access;
use crate::app::App;
use crate::bulk::{Action, Bulk};
use crate::filter::counted;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Json, Query, partition};

/// The queue, unless the request names another one.
const QUEUE: &str = "notifications";
/// The outcome for a task whose message or dead letter was deleted, and the name of their number in the audit
/// trail.
const DELETED: &str = "deleted";
/// The most tasks that are counted.
const MAX_COUNT: u64 = 1_000_000;
/// The most that one request deletes, of live and dead tasks together, and of ended ones: the ids of the
/// former are remembered meanwhile.
const MAX_DELETED: u64 = 10_000;

/// Of which queue, and which of its tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The queue; by default `notifications`.
    #[serde(default)]
    partition: Option<String>,
    /// Only tasks with this status; by default all.
    #[serde(default, rename = "taskStatus")]
    #[param(inline)]
    status: Option<Status>,
}

impl Which {
    fn partition(&self) -> Answer<PartitionId> {
        partition(self.partition.as_deref().unwrap_or(QUEUE))
    }

    fn filter(&self, prefix: Option<String>) -> TaskFilter {
        let wanted = |state: &TaskState| self.status.is_none_or(|status| status == Status::of(*state));
        let mut filter = TaskFilter::new();
        // Without a status every state would match, and none need be named.
        for state in TaskState::ALL.into_iter().filter(|_| self.status.is_some()).filter(wanted) {
            filter = filter.in_state(state);
        }
        match prefix {
            Some(prefix) => filter.with_task_id_prefix(prefix),
            None => filter,
        }
    }
}

/// Lists the tasks of a tenant with what they should do. An answer that ends within the array is incomplete.
#[utoipa::path(
    get, path = "/management/queue/notifications", operation_id = "list_notifications", tag = "compat",
    params(
        Which,
        ("fiware-service" = Option<String>, Header, description = "The tenant; without it, tasks of no tenant."),
        ("fiware-servicepath" = Option<String>, Header, description = "What they are for within the tenant; without it, tasks without one."),
        ("fiware-correlator" = Option<String>, Header, description = "What they belong to; without it, anything.")
    ),
    responses((status = 200, description = "The tasks.", body = Vec<Notification>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Answer<Response> {
    let found = found(&app, &which, &headers)?;
    // Determined now: when the response is read, the caller is no longer known.
    let sees = access::sees_payloads();
    Ok(array(found, move |task| to_json(&Notification::of(&app, task, sees))))
}

/// Lists how the tasks of a tenant run.
#[utoipa::path(
    get, path = "/management/queue/notifications/summary", operation_id = "summarise_notifications", tag = "compat",
    params(
        Which,
        ("fiware-service" = Option<String>, Header, description = "The tenant; without it, tasks of no tenant."),
        ("fiware-servicepath" = Option<String>, Header, description = "What they are for within the tenant; without it, tasks without one."),
        ("fiware-correlator" = Option<String>, Header, description = "What they belong to; without it, anything.")
    ),
    responses((status = 200, description = "How they run.", body = Vec<Runtime>))
)]
pub(crate) async fn summary(
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Answer<Response> {
    let found = found(&app, &which, &headers)?;
    Ok(array(found, move |task| to_json(&Runtime::of(&app, task))))
}

/// Counts the tasks of a tenant, up to a million; without any of the three headers, the tasks of all tenants.
#[utoipa::path(
    get, path = "/management/queue/notifications/count", operation_id = "count_notifications", tag = "compat",
    params(
        Which,
        ("fiware-service" = Option<String>, Header, description = "The tenant."),
        ("fiware-servicepath" = Option<String>, Header, description = "What they are for within the tenant."),
        ("fiware-correlator" = Option<String>, Header, description = "What they belong to.")
    ),
    responses((status = 200, description = "How many.", body = u64))
)]
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Answer<Json<u64>> {
    let tenant = Tenant::of(&headers)?;
    let filter = which.filter((!tenant.is_nobody()).then(|| tenant.prefix()));
    let count = counted(&app.queue, which.partition()?.name(), &filter, MAX_COUNT).await?;
    if count.exact || count.value == MAX_COUNT {
        return Ok(Json(count.value));
    }
    // The response is just a number: it cannot say that it is too small.
    Err(Problem::busy(format!("more than can be counted in time, at least {}: ask for less", count.value)))
}

/// Deletes the tasks of a tenant: their messages, dead letters and ends. Messages that somebody holds are
/// left alone.
#[utoipa::path(
    delete, path = "/management/queue/notifications", operation_id = "delete_notifications", tag = "compat",
    params(
        Which,
        ("fiware-service" = Option<String>, Header, description = "The tenant; without it, tasks of no tenant."),
        ("fiware-servicepath" = Option<String>, Header, description = "What they are for within the tenant; without it, tasks without one."),
        ("fiware-correlator" = Option<String>, Header, description = "What they belong to; without it, anything.")
    ),
    responses(
        (status = 204, description = "They are deleted."),
        (status = 503, description = "10,000 were deleted and more may be left, or as many bulk actions are under way as this instance allows: send it again.", body = Problem)
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    app.writable()?;
    let (partition, tenant) = (which.partition()?, Tenant::of(&headers)?);
    let filter = which.filter(Some(tenant.prefix()));
    note(&which, &tenant);
    let Ok(_permit) = app.bulk.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many bulk actions are under way as this instance allows: try again"));
    };
    let (mut handled, mut deleted) = (0, 0);
    // If only ended tasks are meant, none of them has a message.
    if Action::Delete.concerns_any(&filter.states) {
        let queue = app.queue.clone();
        let mut bulk =
            Bulk::new(queue, partition.clone(), filter.clone(), Action::Delete, MAX_DELETED, false)?;
        while let Some(task) = bulk.next().await? {
            handled += 1;
            deleted += u64::from(task.outcome == DELETED);
            noted::detail(DELETED, deleted);
        }
    }
    let ended = if app.queue.keeps_ends() {
        app.queue.delete_ended(&partition, &filter, MAX_DELETED).await?
    } else {
        0
    };
    noted::detail("ends deleted", ended);
    if handled == MAX_DELETED || ended == MAX_DELETED {
        return Err(Problem::busy("more than were deleted at once may be left: send it again"));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Notes in the audit trail what is to be deleted, and that nothing has been yet.
fn note(which: &Which, tenant: &Tenant) {
    for (header, value) in tenant.headers() {
        noted::detail(header, value);
    }
    noted::detail("status", which.status.map_or("any", Status::as_str));
    noted::detail(DELETED, 0);
}

fn found(app: &App, which: &Which, headers: &HeaderMap) -> Answer<TaskStream> {
    let filter = which.filter(Some(Tenant::of(headers)?.prefix()));
    Ok(app.queue.tasks(which.partition()?, filter)?)
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Writing to memory does not fail, and these have no maps with keys other than strings.
    serde_json::to_vec(value).unwrap_or_default()
}

/// An array, produced at the pace at which the client reads: memory holds one page. If the backend fails in
/// the middle, the connection is cut, so that nobody takes a part for the whole.
fn array(found: TaskStream, of: impl Fn(&Task) -> Vec<u8> + Send + 'static) -> Response {
    let body = Body::from_stream(elements(found, of));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn elements(
    found: TaskStream,
    of: impl Fn(&Task) -> Vec<u8> + Send + 'static,
) -> impl Stream<Item = Result<Vec<u8>, anyqueue::Error>> {
    stream::unfold(Some((found, of, true)), move |state| async move {
        let (mut found, of, is_first) = state?;
        let mut bytes = if is_first { b"[".to_vec() } else { Vec::new() };
        Some(match found.next().await {
            Some(Ok(task)) => {
                if !is_first {
                    bytes.extend_from_slice(b",\n");
                }
                bytes.extend(of(&task));
                (Ok(bytes), Some((found, of, false)))
            }
            Some(Err(error)) => (Err(error), None),
            None => {
                bytes.push(b']');
                (Ok(bytes), None)
            }
        })
    })
}
