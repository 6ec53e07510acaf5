//! Heartbeats: workers in other languages report about themselves and what they hold.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::registry::{Beat, HeldTask, WorkerState};
use axum::extract::State;
use axum::http::HeaderMap;
use futures_util::future::join_all;
use serde::Deserialize;
use utoipa::ToSchema;

use super::heard::{HeardAnswer, LeaseAnswer};
use super::session::{gone, session};
use super::settle::ExtendAnswer;
use crate::app::App;
use crate::handed::puller;
use crate::held::Held;
use crate::overdue::{self, Holder};
use crate::problem::{Answer, Problem};
use crate::shown::shown;
use crate::wire::{Json, Path};

/// The most deliveries that one heartbeat names; the registry shows as many.
const MAX_HELD: usize = 512;
/// The most bytes of a worker's text about the progress of one task.
const MAX_PROGRESS_BYTES: usize = 1024;

/// The state of a worker.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// It takes on tasks.
    #[default]
    Working,
    /// It takes on nothing new.
    Quiet,
    /// It ends.
    Draining,
}

impl From<Condition> for WorkerState {
    fn from(condition: Condition) -> Self {
        match condition {
            Condition::Working => Self::Working,
            Condition::Quiet => Self::Quiet,
            Condition::Draining => Self::Draining,
        }
    }
}

/// What a worker reports.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heartbeat {
    /// Its state; by default `working`. An order is repeated until this shows that it was received.
    #[serde(default)]
    state: Condition,
    /// The deliveries that it holds, up to 512.
    #[serde(default)]
    held: Vec<HeldDelivery>,
    /// How long the leases of these deliveries should last from now, in milliseconds. Without it, leases stay
    /// as they are.
    #[serde(default)]
    lease_ms: Option<u64>,
    /// The `pull` of the last answer that arrived, or empty if none has. Deliveries that were sent since then
    /// and did not arrive go back at once. Send it only while no pull is under way.
    #[serde(default)]
    received: Option<String>,
    /// Resident memory of its process, in bytes.
    #[serde(default)]
    memory_bytes: Option<u64>,
}

/// A delivery that a worker holds.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldDelivery {
    /// What a pull returned.
    delivery: String,
    /// How far it has come, in its own words; up to 1024 bytes.
    #[serde(default)]
    progress: Option<String>,
}

/// A worker reports on itself and on the deliveries that it holds, and receives orders. One request does all
/// that a worker needs between its pulls: it can also extend all leases and say which pull arrived. A task
/// that has run for longer than its `max_duration_ms` is ended as `timed_out`, and the answer for it is
/// `lost`.
#[utoipa::path(
    post, path = "/v1/workers/{worker}/beat", operation_id = "beat", tag = "workers",
    params(
        ("worker" = String, Path, description = "Its name."),
        ("worker-session" = String, Header, description = "The session from its registration.")
    ),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "What it should do.", body = HeardAnswer),
        (status = 410, description = "It is no longer registered and has to register again. Its deliveries are still its own until their leases end.", body = Problem)
    )
)]
pub(crate) async fn beat(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(heartbeat): Json<Heartbeat>,
) -> Answer<Json<HeardAnswer>> {
    app.writable()?;
    let session = session(&headers)?;
    heartbeat.check()?;
    let registry = app.registry()?;
    // Before the registry is asked: if it is unreachable, the leases are extended all the same.
    let held = held(&app, &name, &heartbeat).await;
    let state = heartbeat.state.into();
    let tasks = held.iter().filter(|(_, lease)| !matches!(lease, LeaseAnswer::Lost));
    let elsewhere = held.iter().filter(|(_, lease)| lease.is_misdirected()).count();
    let beat = Beat::new(state, tasks.filter_map(|(task, _)| task.clone()).collect(), heartbeat.memory_bytes)
        .with_unnamed(elsewhere);
    let heard = registry.beat(&name, &session, &beat).await?.ok_or_else(|| gone(&name))?;
    app.places.heard(&name);
    // Only once it is known to be this worker: what another worker with its name was handed is not its to
    // release.
    if let Some(received) = &heartbeat.received {
        app.release(app.handed.unreceived(&puller(&name), Some(received))).await;
    }
    Ok(Json(HeardAnswer::of(&heard, state, held)))
}

impl Heartbeat {
    fn check(&self) -> Answer<()> {
        if self.held.len() > MAX_HELD {
            let text = format!("more than {MAX_HELD} deliveries: name those that have run longest");
            return Err(Problem::invalid(text));
        }
        let longest = self.held.iter().filter_map(|held| held.progress.as_ref().map(String::len)).max();
        if longest.is_some_and(|bytes| bytes > MAX_PROGRESS_BYTES) {
            return Err(Problem::invalid(format!("a progress of more than {MAX_PROGRESS_BYTES} bytes")));
        }
        Ok(())
    }
}

/// What the registry shows of each named delivery, and what became of its lease.
async fn held(app: &App, name: &str, heartbeat: &Heartbeat) -> Vec<(Option<HeldTask>, LeaseAnswer)> {
    let opened: Vec<Answer<Held>> = heartbeat.held.iter().map(|held| app.open(&held.delivery)).collect();
    // Read before: a delivery that is ended here is no longer kept.
    let tasks = join_all(opened.iter().map(|held| async { shown(app, held.as_ref().ok()?).await })).await;
    let leases = leases(app, name, opened, heartbeat.lease_ms.map(Duration::from_millis)).await;
    let tasks = tasks.into_iter().zip(&heartbeat.held);
    let tasks = tasks.map(|(task, held)| Some(task?.with_progress(held.progress.clone())));
    tasks.zip(leases).collect()
}

/// Extends the leases, or only ends the tasks that have run for too long.
async fn leases(
    app: &App,
    name: &str,
    opened: Vec<Answer<Held>>,
    lease: Option<Duration>,
) -> Vec<LeaseAnswer> {
    let held: Vec<&Held> = opened.iter().filter_map(|held| held.as_ref().ok()).collect();
    let by = Holder { worker: Some(name), retries: true };
    let outcomes = match lease {
        Some(lease) => {
            let all: Vec<(&Held, Duration)> = held.into_iter().map(|held| (held, lease)).collect();
            overdue::extend(app, &all, by).await.into_iter().map(Some).collect()
        }
        None => overdue::end(app, &held, by).await,
    };
    let mut outcomes = outcomes.into_iter();
    let answer = |held: Answer<Held>| match held {
        Ok(_) => {
            outcomes.next().flatten().map_or(LeaseAnswer::Unchanged, |one| ExtendAnswer::from(one).into())
        }
        Err(problem) => LeaseAnswer::Error { problem },
    };
    opened.into_iter().map(answer).collect()
}
