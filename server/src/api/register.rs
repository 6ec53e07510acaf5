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
    /// Its name; by default a new one.
    #[serde(default)]
    name: Option<String>,
    /// The queues that it serves.
    #[serde(default)]
    partitions: Vec<String>,
    /// How many tasks it runs at once; by default 1.
    #[serde(default = "one")]
    slots: usize,
    /// The host name of its machine.
    #[serde(default)]
    host: Option<String>,
    /// The id of its process there.
    #[serde(default)]
    pid: Option<u32>,
    /// The version of its client.
    #[serde(default)]
    version: Option<String>,
    /// How long a beat counts, in milliseconds: a worker that is silent for longer is considered dead. By
    /// default 15,000; from a second to an hour.
    #[serde(default)]
    valid_ms: Option<u64>,
}

const fn one() -> usize {
    1
}

/// A worker that is registered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Registered {
    /// Its name: send it as `worker` when you pull.
    worker: String,
    /// Proves that it is this worker: send it in the header `worker-session` of its beats. It is shown once.
    session: String,
    /// How long a beat counts, in milliseconds: send one at least every third of that time.
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

/// Registers a worker: it is shown among the workers, receives orders, and is missed when it is silent. No
/// worker has to register; pulling needs only a name.
#[utoipa::path(
    post, path = "/v1/workers", operation_id = "register_worker", tag = "workers",
    request_body = Register,
    responses(
        (status = 201, description = "It is registered.", body = Registered),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 409, description = "A worker that is alive has this name.", body = Problem),
        (status = 503, description = "This instance has registered as many workers as it can.", body = Problem)
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
