//! Pages for people: they work without a script, and update themselves with one.

mod act;
mod audit;
mod bulk;
mod charts;
mod confirm;
mod cron;
mod dead;
mod ended;
mod limits;
mod overview;
mod partition;
mod session;
mod shell;
mod task;
mod tasks;
mod text;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::app::App;

/// All pages.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(overview::page))
        .route("/partitions/{partition}", get(partition::page))
        .route("/tasks", get(tasks::page))
        .route("/tasks/{id}", get(task::page))
        .route("/tasks/confirm/{action}", get(bulk::confirm))
        .route("/workers", get(workers::page))
        .route("/dead", get(dead::page))
        .route("/dead/confirm", get(dead::confirm))
        .route("/cron", get(cron::page))
        .route("/cron/confirm", get(cron::confirm))
        .route("/audit", get(audit::page))
        .route("/limits", get(limits::page))
        .route("/limits/confirm", get(limits::confirm))
        .route("/do/limits/{action}", post(limits::act))
        .route("/do/cron/{action}", post(cron::act))
        .route("/do/partitions/{partition}/{action}", post(act::on_partition))
        .route("/do/tasks/{id}/{action}", post(act::on_task))
        .route("/do/tasks/{action}", post(bulk::act))
        .route("/do/workers/{worker}/{order}", post(act::on_worker))
        .route("/do/dead/{action}", post(act::on_dead))
        .route("/login", get(session::page).post(session::enter))
        .route(
            "/assets/style.css",
            get(async || asset("text/css; charset=utf-8", include_str!("../../assets/style.css"))),
        )
        .route(
            "/assets/live.js",
            get(async || asset("text/javascript; charset=utf-8", include_str!("../../assets/live.js"))),
        )
        .route(
            "/assets/icon.svg",
            get(async || asset("image/svg+xml", include_str!("../../assets/icon.svg"))),
        )
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text).into_response()
}
