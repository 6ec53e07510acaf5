//! Pulls, with or without a wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Bytes, Delivery};
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::select_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{HandOut, ReleaseOnDrop};
use crate::handed::puller;
use crate::held::Held;
use crate::problem::{Answer, Problem};
use crate::pull_coalescer::PullKey;
use crate::wire::{About, Content, Json, MAX_ITEMS, millis, partition};

/// The longest wait of a pull.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The most queues in one pull.
const MAX_PARTITIONS: usize = 64;
/// The longest name of a worker, in bytes.
pub(crate) const MAX_WORKER_BYTES: usize = 256;

/// What to pull.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pull {
    /// The queues, in order of preference.
    partitions: Vec<String>,
    /// The most messages to return.
    #[serde(default = "one")]
    max: usize,
    /// How long to wait for the first, in milliseconds; at most 30,000.
    #[serde(default)]
    wait_ms: u64,
    /// How long they are yours, in milliseconds; by default as the queue is configured.
    #[serde(default)]
    lease_ms: Option<u64>,
    /// The name of the worker. If it is given, messages that were sent and did not arrive go back with the
    /// next pull.
    #[serde(default)]
    worker: Option<String>,
    /// The `pull` of the last answer that arrived, if any.
    #[serde(default)]
    received: Option<String>,
}

const fn one() -> usize {
    1
}

/// What was pulled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Pulled {
    /// The name of this answer: send it as `received` with the next pull.
    pull: String,
    /// The messages; none when the wait is over.
    deliveries: Vec<Handed>,
}

/// A message, and the right to settle it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Handed {
    /// What to send back to settle it. Whoever has this can settle it.
    delivery: String,
    /// The queue it came from.
    partition: String,
    /// What is known of it.
    #[serde(flatten)]
    about: About,
    /// Its content.
    #[serde(flatten)]
    payload: Content,
    /// Deliveries so far, this one included, where they are counted.
    delivery_count: Option<u32>,
    /// How long ago it was pushed, in milliseconds.
    age_ms: u64,
    /// How long it is yours, in milliseconds from when this answer was made. Extend it before that time is
    /// over, or somebody else gets it.
    lease_ms: u64,
    /// How long an attempt may take, in milliseconds, if the pusher set a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_duration_ms: Option<u64>,
}

/// Pulls messages, waiting for the first one if you wish. They are yours until their leases end: settle or extend them before.
#[utoipa::path(
    post, path = "/v1/pull", operation_id = "pull", tag = "work",
    request_body = Pull,
    responses((status = 200, description = "Up to `max` messages, or none when the wait is over.", body = Pulled))
)]
pub(crate) async fn pull(State(app): State<Arc<App>>, Json(request): Json<Pull>) -> Answer<Response> {
    app.writable()?;
    let checked = request.check()?;
    let worker = request.worker.as_deref().map(puller);
    if let Some(worker) = &worker {
        let unreceived = app.handed.unreceived(worker, request.received.as_deref());
        app.release(unreceived).await;
    }
    let deliveries = checked.deliveries(&app).await?;
    let name = uuid::Uuid::now_v7().to_string();
    let (mut handed, mut held) = (Vec::with_capacity(deliveries.len()), Vec::with_capacity(deliveries.len()));
    let mut longest = Duration::ZERO;
    for delivery in deliveries {
        let now = Instant::now();
        let lease =
            delivery.lease_until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        longest = longest.max(lease);
        let mut one = Handed::of(&delivery, lease);
        let own = app.hand_out(delivery);
        one.delivery = app.seal(&own);
        handed.push(one);
        held.push(own);
    }
    let release = ReleaseOnDrop::new(app.clone(), held);
    let body = serde_json::to_vec(&Pulled { pull: name.clone(), deliveries: handed })
        .map_err(|error| Problem::invalid(error.to_string()))?;
    let sent = move |held: Vec<Held>| {
        if let Some(worker) = worker
            && !held.is_empty()
        {
            app.handed.sent(&worker, &name, held, longest);
        }
    };
    let body = Body::new(HandOut::new(Bytes::from(body), release, Box::new(sent)));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

impl Handed {
    fn of(delivery: &Delivery, lease: Duration) -> Self {
        Self {
            delivery: String::new(),
            partition: delivery.partition().name().to_owned(),
            about: About::of(delivery.message()),
            payload: Content::of(delivery.payload()),
            delivery_count: delivery.delivery_count(),
            age_ms: millis(delivery.age()),
            lease_ms: millis(lease),
            max_duration_ms: delivery.message().options().max_duration.map(millis),
        }
    }
}

/// A pull whose values have been checked.
struct Checked {
    /// In the order of preference.
    keys: Vec<PullKey>,
    max: usize,
    wait: Duration,
}

impl Pull {
    fn check(&self) -> Answer<Checked> {
        let partitions = self.partitions.iter().map(|name| partition(name)).collect::<Answer<Vec<_>>>()?;
        if partitions.is_empty() || partitions.len() > MAX_PARTITIONS {
            return Err(Problem::invalid(format!("name 1 to {MAX_PARTITIONS} partitions")));
        }
        if self.max == 0 || self.max > MAX_ITEMS {
            return Err(Problem::invalid(format!("max is {}: ask for 1 to {MAX_ITEMS}", self.max)));
        }
        let wait = Duration::from_millis(self.wait_ms);
        if wait > MAX_WAIT {
            return Err(Problem::invalid(format!(
                "wait_ms is {}: at most {}",
                self.wait_ms,
                MAX_WAIT.as_millis()
            )));
        }
        if self.worker.as_ref().is_some_and(|worker| worker.is_empty() || worker.len() > MAX_WORKER_BYTES) {
            return Err(Problem::invalid(format!("a worker's name has 1 to {MAX_WORKER_BYTES} bytes")));
        }
        let lease = self.lease_ms.map(Duration::from_millis);
        let keys = partitions.into_iter().map(|partition| PullKey { partition, lease }).collect();
        Ok(Checked { keys, max: self.max, wait })
    }
}

impl Checked {
    /// Returns what is ready, in the order of the queues; if nothing is, waits for what comes first.
    async fn deliveries(&self, app: &App) -> Answer<Vec<Delivery>> {
        let mut all = Vec::new();
        let waits_at_once = match self.keys.as_slice() {
            [only] => !self.wait.is_zero() && !app.pulls.flows(only),
            _ => false,
        };
        if !waits_at_once {
            for key in &self.keys {
                let room = self.max - all.len();
                if room == 0 {
                    break;
                }
                match app.pulls.take(key, room).await {
                    Ok(more) => all.extend(more),
                    Err(error) if all.is_empty() => return Err(error.into()),
                    // What was pulled before the error is handed out.
                    Err(_) => break,
                }
            }
        }
        if !all.is_empty() || self.wait.is_zero() {
            return Ok(all);
        }
        let Ok(_poll) = app.polls.clone().try_acquire_owned() else {
            return Err(Problem::busy(
                "as many requests wait as this instance allows: try again, or elsewhere",
            ));
        };
        tokio::select! {
            biased;
            answer = self.first(app) => answer,
            () = app.ending.cancelled() => Ok(Vec::new()),
        }
    }

    /// Waits on all queues at once. The first that has messages wins; the other pulls are dropped, and what
    /// they still bring goes back.
    async fn first(&self, app: &App) -> Answer<Vec<Delivery>> {
        let pull = |key| Box::pin(app.pulls.wait(key, self.max, self.wait));
        let mut waiting: Vec<_> = self.keys.iter().map(pull).collect();
        while !waiting.is_empty() {
            let (answer, _, others) = select_all(waiting).await;
            match answer {
                Ok(deliveries) if deliveries.is_empty() => waiting = others,
                answer => return Ok(answer?),
            }
        }
        Ok(Vec::new())
    }
}
