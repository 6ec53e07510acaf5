//! Registration of workers in other languages.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::registry::External;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::pull::MAX_WORKER_BYTES;
use crate::admission::admit;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::wire::{Json, millis, partition};

/// The most queues that a worker may name.
const MAX_SERVED: usize = 1000;

/// A worker that registers.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Register {
    /// What it is called; by default a name that nobody has.
    #[serde(default)]
    name: Option<String>,
    /// The queues that it serves.
    #[serde(default)]
    partitions: Vec<String>,
    /// How many tasks it runs at once; by default 1.
    #[serde(default = "one")]
    slots: usize,
    /// The machine.
    #[serde(default)]
    host: Option<String>,
    /// The number of its process there.
    #[serde(default)]
    pid: Option<u32>,
    /// The release of the client that it runs.
    #[serde(default)]
    version: Option<String>,
    /// For how long a beat counts, in milliseconds: a worker that is silent for longer is taken for dead. By default 15,000; from a second to an hour.
    #[serde(default)]
    valid_ms: Option<u64>,
}

const fn one() -> usize {
    1
}

/// A worker that is registered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Registered {
    /// Its name: say it when you pull.
    worker: String,
    /// What shows that it is this one: the header `worker-session` of its beats. It is told once.
    session: String,
    /// For how long a beat counts, in milliseconds: send one at least every third of it.
    valid_ms: u64,
}

impl Register {
    fn into_worker(self, name: &str) -> Answer<(External, Duration)> {
        if self.partitions.len() > MAX_SERVED {
            return Err(Problem::invalid(format!(
                "more than {MAX_SERVED} partitions: name the first of them"
            )));
        }
        for name in &self.partitions {
            partition(name)?;
        }
        let valid = self.valid_ms.map_or(Duration::from_secs(15), Duration::from_millis);
        let worker = External::new(name)
            .with_host(self.host.unwrap_or_else(|| "unknown".to_owned()), self.pid.unwrap_or_default())
            .with_version(self.version.unwrap_or_default())
            .with_partitions(self.partitions)
            .with_slots(self.slots)
            .with_valid_for(valid);
        Ok((worker, valid))
    }
}

/// Registers a worker: it is shown among the workers, is told what to do, and is missed when it is silent. No worker has to; pulling needs only a name.
#[utoipa::path(
    post, path = "/v1/workers", operation_id = "register_worker", tag = "workers",
    request_body = Register,
    responses(
        (status = 201, description = "It is registered.", body = Registered),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 409, description = "A living worker has the name.", body = Problem),
        (status = 503, description = "As many as there can be are registered with this instance.", body = Problem)
    )
)]
pub(crate) async fn register(
    State(app): State<Arc<App>>,
    Json(request): Json<Register>,
) -> Answer<(StatusCode, Json<Registered>)> {
    app.writable()?;
    let name = request.name.clone().unwrap_or_else(|| format!("worker-{}", uuid::Uuid::now_v7()));
    if name.len() > MAX_WORKER_BYTES {
        let text = format!("a worker's name of {} bytes: give it at most {MAX_WORKER_BYTES}", name.len());
        return Err(Problem::invalid(text));
    }
    let (worker, valid) = request.into_worker(&name)?;
    let session = admit(&app, &worker).await?;
    Ok((StatusCode::CREATED, Json(Registered { worker: name, session, valid_ms: millis(valid) })))
}
