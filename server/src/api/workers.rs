//! The workers, and the orders that they are given.

use std::sync::Arc;

use anyqueue_control::registry::{Order, WorkerInfo};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::session::{gone, session};
use crate::app::App;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::table::SESSION;
use crate::wire::{Json, Path, message_id, millis, time_text};

/// A worker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Worker {
    /// What it reports about itself.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    info: Value,
    /// How long its process had run at its last beat, in milliseconds.
    up_ms: u64,
    /// When it was last heard from.
    seen_at: String,
    /// Until when that counts; after that it is considered dead.
    valid_until: String,
}

impl From<&WorkerInfo> for Worker {
    fn from(info: &WorkerInfo) -> Self {
        Self {
            info: serde_json::to_value(info).unwrap_or_default(),
            up_ms: millis(info.up),
            seen_at: time_text(info.seen_at),
            valid_until: time_text(info.valid_until),
        }
    }
}

/// The workers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workers {
    /// Those whose beats count.
    workers: Vec<Worker>,
    /// The time of the store's server.
    now: Option<String>,
}

/// Lists the workers that are registered.
#[utoipa::path(
    get, path = "/v1/workers", operation_id = "list_workers", tag = "workers",
    responses((status = 200, description = "The workers.", body = Workers))
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer<Json<Workers>> {
    let found = app.registry()?.list().await?;
    Ok(Json(Workers {
        workers: found.workers.iter().map(Worker::from).collect(),
        now: found.now.map(time_text),
    }))
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no worker {name:?}: see /v1/workers"))
}

/// A worker.
#[utoipa::path(
    get, path = "/v1/workers/{worker}", operation_id = "show_worker", tag = "workers",
    params(("worker" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The worker.", body = Worker), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Worker>> {
    let found = app.registry()?.get(&name).await?.ok_or_else(|| unknown(&name))?;
    Ok(Json(Worker::from(&found)))
}

/// An order that was given.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ordered {
    /// Its name.
    worker: String,
    /// The order that it receives with its next beat.
    order: String,
}

/// Gives a worker an order, which it receives with its next beat: `quiet`, `resume`, `stop` or `recycle`.
#[utoipa::path(
    post, path = "/v1/workers/{worker}/{order}", operation_id = "order_worker", tag = "workers",
    params(("worker" = String, Path, description = "Its name."), ("order" = String, Path, description = "quiet, resume, stop or recycle.")),
    responses((status = 200, description = "It receives the order with its next beat.", body = Ordered), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn order(
    State(app): State<Arc<App>>,
    Path((name, order)): Path<(String, String)>,
) -> Answer<Json<Ordered>> {
    app.writable()?;
    let order_given = match order.as_str() {
        "quiet" => Order::Quiet,
        "resume" => Order::Resume,
        "stop" => Order::Stop,
        "recycle" => Order::Recycle,
        _ => {
            let text = format!("there is no order {order:?}: use quiet, resume, stop or recycle");
            return Err(Problem::not_found(text));
        }
    };
    if app.registry()?.order(&name, order_given).await? {
        Ok(Json(Ordered { worker: name, order }))
    } else {
        Err(unknown(&name))
    }
}

/// A task to cancel.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelTask {
    /// The id of its message.
    id: String,
}

/// Tells a worker to cancel a task that it runs.
#[utoipa::path(
    put, path = "/v1/workers/{worker}/cancel", operation_id = "cancel_on_worker", tag = "workers",
    params(("worker" = String, Path, description = "Its name.")),
    request_body = CancelTask,
    responses((status = 200, description = "It receives the order with its next beat.", body = Ordered), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Json(request): Json<CancelTask>,
) -> Answer<Json<Ordered>> {
    app.writable()?;
    let id = message_id(&request.id)?;
    noted::detail("task", id);
    if app.registry()?.cancel(&name, id).await? {
        Ok(Json(Ordered { worker: name, order: format!("cancel {id}") }))
    } else {
        Err(unknown(&name))
    }
}

/// Forgets a worker that is known to be gone. One that is alive registers again. A worker that ends sends
/// this itself, with its `worker-session`, so that it cannot affect another worker that has its name by now.
#[utoipa::path(
    delete, path = "/v1/workers/{worker}", operation_id = "forget_worker", tag = "workers",
    params(
        ("worker" = String, Path, description = "Its name."),
        ("worker-session" = Option<String>, Header, description = "The session from its registration.")
    ),
    responses(
        (status = 204, description = "It is forgotten."),
        (status = 404, description = "There is none.", body = Problem),
        (status = 410, description = "It is no longer registered.", body = Problem)
    )
)]
pub(crate) async fn forget(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    app.writable()?;
    if headers.contains_key(SESSION) {
        let was_there = app.registry()?.leave(&name, &session(&headers)?).await?;
        if !was_there {
            return Err(gone(&name));
        }
    } else if !app.registry()?.forget(&name).await? {
        return Err(unknown(&name));
    }
    app.places.leave(&name);
    Ok(StatusCode::NO_CONTENT)
}
