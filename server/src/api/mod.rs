//! The endpoints, by what they concern.

mod audit;
mod beat;
mod bulk;
mod compat;
mod cron;
mod dead;
mod events;
mod health;
mod heard;
mod import;
mod limits;
mod messages;
mod partitions;
mod pull;
mod push;
mod register;
mod schedule;
mod series;
mod session;
mod settle;
mod tasks;
mod tokens;
mod transfer;
mod workers;

use std::sync::Arc;

use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

pub(crate) use health::problem_for_unknown;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "anyqueue",
        description = "Work queues over HTTP, on any backend. Errors are problems as in RFC 9457: `kind` says what kind of error it is, `retry` what a retry would do.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "work", description = "Push, pull, settle: what programs do."),
        (name = "partitions", description = "Queues, their messages and dead letters."),
        (name = "tasks", description = "What became of each task."),
        (name = "workers", description = "The workers."),
        (name = "cron", description = "Schedules: what is pushed when."),
        (name = "limits", description = "How many tasks run at once, and how fast they start, over all workers."),
        (name = "tokens", description = "Who may do what."),
        (name = "compat", description = "Protocols of other systems: for workers that only know ids, and for managing a queue of notifications."),
        (name = "service", description = "Health and metrics of the service itself.")
    )
)]
struct Description;

/// All endpoints, with their descriptions.
pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(push::push))
        .routes(routes!(pull::pull))
        .routes(routes!(settle::settle))
        .routes(routes!(settle::extend))
        .routes(routes!(partitions::list))
        .routes(routes!(partitions::show))
        .routes(routes!(partitions::pause))
        .routes(routes!(partitions::resume))
        .routes(routes!(messages::browse, messages::purge))
        .routes(routes!(dead::list, dead::purge))
        .routes(routes!(dead::redrive))
        .routes(routes!(tasks::list, tasks::delete))
        .routes(routes!(tasks::count))
        .routes(routes!(series::series))
        .routes(routes!(bulk::bulk))
        .routes(routes!(tasks::show, tasks::remove))
        .routes(routes!(tasks::result))
        .routes(routes!(tasks::cancel))
        .routes(routes!(tasks::retry))
        .routes(routes!(workers::list, register::register))
        .routes(routes!(beat::beat))
        .routes(routes!(workers::show, workers::forget))
        .routes(routes!(workers::order))
        .routes(routes!(workers::cancel))
        .routes(routes!(cron::list))
        .routes(routes!(cron::preview))
        .routes(routes!(cron::show, cron::put, cron::delete))
        .routes(routes!(cron::run))
        .routes(routes!(cron::pause))
        .routes(routes!(cron::resume))
        .routes(routes!(limits::list))
        .routes(routes!(limits::show, limits::put, limits::delete))
        .routes(routes!(tokens::list))
        .routes(routes!(tokens::show, tokens::put, tokens::delete))
        .routes(routes!(tokens::bind, tokens::unbind))
        .routes(routes!(compat::jobs::register))
        .routes(routes!(compat::jobs::ping))
        .routes(routes!(compat::job_tasks::dequeue))
        .routes(routes!(compat::job_tasks::set_outcome))
        .routes(routes!(compat::job_tasks::enqueue))
        .routes(routes!(compat::notifications::list, compat::notifications::delete))
        .routes(routes!(compat::notifications::summary))
        .routes(routes!(compat::notifications::count))
        .routes(routes!(audit::list))
        .routes(routes!(transfer::export))
        .routes(routes!(import::import))
        .routes(routes!(events::events))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::startupz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::description))
}

/// The description of all endpoints, as JSON.
pub(crate) fn description() -> String {
    router().into_openapi().to_pretty_json().unwrap_or_default()
}
