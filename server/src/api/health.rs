//! The service itself: health, metrics, description.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::problem::Problem;

/// Says whether the process runs.
#[utoipa::path(
    get, path = "/livez", operation_id = "livez", tag = "service",
    responses((status = 200, description = "It does.", body = String))
)]
pub(crate) async fn livez() -> &'static str {
    "alive"
}

/// Says whether the backend can serve, as checked within the last second.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz", tag = "service",
    responses((status = 200, description = "It can.", body = String), (status = 503, description = "It cannot, and why.", body = Problem))
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.ending.is_cancelled() {
        return Problem::busy("the service is shutting down").into_response();
    }
    match app.healthy().await {
        Ok(text) => text.into_response(),
        Err(why) => unavailable(why),
    }
}

/// Whether the service was ready once since it began: what fails later does not take that back.
#[utoipa::path(
    get, path = "/startupz", operation_id = "startupz", tag = "service",
    responses((status = 200, description = "It was.", body = String), (status = 503, description = "Not yet, and why.", body = Problem))
)]
pub(crate) async fn startupz(State(app): State<Arc<App>>) -> Response {
    if app.has_been_ready.load(Ordering::Relaxed) {
        return "started".into_response();
    }
    match app.healthy().await {
        Ok(_) => "started".into_response(),
        Err(why) => unavailable(why),
    }
}

fn unavailable(why: String) -> Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why).into_response()
}

/// Returns the metrics of the process, in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "service",
    responses((status = 200, description = "The metrics.", body = String), (status = 404, description = "The process gathers no metrics.", body = Problem))
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    match &app.metrics {
        Some(render) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render()).into_response(),
        None => Problem::not_found("this process gathers no metrics").into_response(),
    }
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "service",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object))
)]
pub(crate) async fn description(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.description.clone()).into_response()
}

/// Responds to a path that does not exist.
pub(crate) async fn problem_for_unknown(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}: see /openapi.json", uri.path()))
}
