//! Workers that know nothing but their own id and those of their tasks: registration and pings.
//!
//! Such a worker has no deliveries. They are kept, sealed, in its registry entry, so that any instance can
//! serve each call.

use std::sync::Arc;

use anyqueue::ExtendOutcome;
use anyqueue_control::registry::{Beat, External, Kept};
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::job_wire::{Kind, Which, lease};
use super::job_worker::{JobWorker, VALID};
use super::nothing::JsonOrNothing;
use super::oldest::MAX_KINDS;
use crate::admission::admit;
use crate::app::App;
use crate::overdue::{self, Holder};
use crate::problem::{Answer, Problem};
use crate::shown::shown;
use crate::wire::{Json, partition};

/// The most tasks that such a worker holds, unless it asks for fewer.
const MAX_SLOTS: usize = 64;

/// A worker that registers. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct RegisterWorker {
    /// The kinds that it serves, at most 64; by default all queues that its token is for.
    #[serde(default, alias = "jobKinds")]
    job_kinds: Vec<Kind>,
    /// How many tasks it holds at once; at most 64, which is the default. If it asks for more than that, the
    /// last one did not arrive and goes back.
    #[serde(default, alias = "slots")]
    slots: Option<usize>,
}

/// Registers a worker, and returns its id. Treat the id like a password: the service shows it to nobody else.
#[utoipa::path(
    post, path = "/v1/jobs/RegisterWorker", operation_id = "register_job_worker", tag = "compat",
    request_body = Option<RegisterWorker>,
    responses((status = 200, description = "Its id, a UUID.", body = String))
)]
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    JsonOrNothing(request): JsonOrNothing<RegisterWorker>,
) -> Answer<Json<String>> {
    app.writable()?;
    let slots = request.slots.unwrap_or(MAX_SLOTS);
    if slots == 0 || slots > MAX_SLOTS || request.job_kinds.len() > MAX_KINDS {
        let text = format!("a worker has 1 to {MAX_SLOTS} Slots, and at most {MAX_KINDS} JobKinds");
        return Err(Problem::invalid(text));
    }
    let kinds: Vec<String> = request.job_kinds.into_iter().map(Kind::into_name).collect();
    for kind in &kinds {
        partition(kind)?;
    }
    let worker = JobWorker::new();
    let external = External::new(&*worker.name)
        .with_session(&*worker.session)
        .with_version("jobs")
        .with_partitions(kinds)
        .with_slots(slots)
        .with_valid_for(VALID);
    admit(&app, &external).await?;
    Ok(Json(worker.id()))
}

/// Says that a worker is alive: it and its tasks count for three more minutes. Returns `false` if it has to
/// register again and to let go of all tasks.
#[utoipa::path(
    post, path = "/v1/jobs/AlivePing", operation_id = "ping_job_worker", tag = "compat",
    request_body = Which,
    responses((status = 200, description = "Whether it may continue.", body = bool))
)]
pub(crate) async fn ping(State(app): State<Arc<App>>, Json(which): Json<Which>) -> Answer<Json<bool>> {
    app.writable()?;
    let (worker, registry) = (JobWorker::of(&which.id)?, app.registry()?);
    let Some((info, kept)) = registry.admitted(&worker.name, &worker.session).await? else {
        return Ok(Json(false));
    };
    // Deliveries from queues that its token no longer covers, or that stay with another instance, are left
    // alone.
    let open = |(id, sealed)| Some(((id, sealed), app.open(sealed).ok()?));
    let held: Vec<_> = kept.iter().filter_map(open).collect();
    let leases: Vec<_> = held.iter().map(|(_, held)| (held, lease(&app))).collect();
    let by = Holder { worker: Some(&worker.name), retries: false };
    let extended = overdue::extend(&app, &leases, by).await;
    let (mut lost, mut tasks) = (Vec::new(), Vec::new());
    for ((key, held), extended) in held.iter().zip(extended) {
        if matches!(extended, Ok(ExtendOutcome::Lost)) {
            lost.push(*key);
        } else {
            tasks.extend(shown(&app, held).await);
        }
    }
    if !lost.is_empty() {
        let forget = |kept: &mut Kept| lost.iter().for_each(|(id, sealed)| kept.remove(*id, sealed));
        registry.keep(&worker.name, &worker.session, forget).await?;
    }
    if worker.is_to_end(&info) && tasks.is_empty() {
        registry.leave(&worker.name, &worker.session).await?;
        app.places.leave(&worker.name);
        return Ok(Json(false));
    }
    let beat =
        Beat::new(worker.state(&info), tasks, None).with_unnamed(kept.len().saturating_sub(held.len()));
    let counts = registry.beat(&worker.name, &worker.session, &beat).await?.is_some();
    if counts {
        app.places.heard(&worker.name);
    }
    Ok(Json(counts))
}
