//! The state that all requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::control::ControlStore;
use anyqueue::{
    Bytes, Delivery, DetachedDelivery, ExtendOutcome, Queue, QueueMessageStatus, SettleOutcome, TaskReport,
};
use anyqueue_control::cron::Scheduler;
use anyqueue_control::registry::Registry;
use anyqueue_worker::Retry;
use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access;
use crate::ended::EndCounts;
use crate::handed::Handed;
use crate::held::Held;
use crate::keys::Keys;
use crate::pins::Pins;
use crate::places::Places;
use crate::problem::{Answer, Problem};
use crate::pull_coalescer::PullCoalescer;
use crate::sampler::{Sample, Sampler};
use crate::seal::{Opened, Sealer};
use crate::sessions::Sessions;
use crate::trail::Trail;

/// If the headers of a delivery exceed this many bytes, they are not sealed into it: it stays with this
/// instance.
const MAX_SEALED_HEADER_BYTES: usize = 8 << 10;

/// How long an answer of the backend about its health is reused.
const HEALTH_KEPT: Duration = Duration::from_secs(1);
/// The longest that a health check may take.
const HEALTH_DEADLINE: Duration = Duration::from_secs(3);

/// The state that all requests of an instance share.
pub(crate) struct App {
    pub(crate) queue: Queue,
    pub(crate) pulls: PullCoalescer,
    pub(crate) control: Option<ControlStore>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) sealer: Sealer,
    pub(crate) pins: Pins,
    pub(crate) handed: Handed,
    pub(crate) places: Places,
    pub(crate) sampler: Sampler,
    pub(crate) ended: EndCounts,
    pub(crate) keys: Keys,
    pub(crate) sessions: Sessions,
    pub(crate) trail: Trail,
    pub(crate) retry: Retry,
    /// Distinguishes this instance from others.
    pub(crate) instance: u64,
    /// A permit for each request that waits.
    pub(crate) polls: Arc<Semaphore>,
    /// A permit for each bulk action.
    pub(crate) bulk: Arc<Semaphore>,
    /// A permit for each response that counts ends.
    pub(crate) series: Semaphore,
    pub(crate) read_only: bool,
    /// Whether it speaks TLS.
    pub(crate) encrypted: bool,
    /// Whether other machines are served without TLS; set once the service listens.
    pub(crate) in_the_open: OnceLock<bool>,
    /// Fires when the service is to end: waiting requests then return.
    pub(crate) ending: CancellationToken,
    pub(crate) metrics: Option<MetricsPage>,
    /// The description of the service, as served at `/openapi.json`.
    pub(crate) description: Bytes,
    pub(crate) health: Mutex<Option<(Instant, Result<String, String>)>>,
    /// Whether the backend could serve at any check since the service began.
    pub(crate) has_been_ready: AtomicBool,
}

/// Renders what the process has measured, in the text format of Prometheus.
pub(crate) type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

impl App {
    /// Detaches a delivery from the queue, for a worker elsewhere; one that cannot be detached is kept here.
    pub(crate) fn hand_out(&self, delivery: Delivery) -> Held {
        let headers: usize = delivery.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        if headers > MAX_SEALED_HEADER_BYTES {
            return Held::Pinned(self.pins.keep(delivery));
        }
        match delivery.detach() {
            Ok(detached) => Held::Detached(Box::new(detached)),
            Err(delivery) => Held::Pinned(self.pins.keep(delivery)),
        }
    }

    /// Seals a delivery: the text that the worker gets, and sends back.
    pub(crate) fn seal(&self, held: &Held) -> String {
        match held {
            Held::Detached(delivery) => self.sealer.seal(delivery),
            Held::Pinned(pin) => self.sealer.pinned(self.instance, *pin),
        }
    }

    /// Opens a sealed delivery that a worker sends back, if the worker may work on its queue.
    pub(crate) fn open(&self, sealed: &str) -> Answer<Held> {
        match self.sealer.open(sealed) {
            Some(Opened::Detached(delivery)) => {
                access::check(delivery.partition().name())?;
                Ok(Held::Detached(delivery))
            }
            Some(Opened::Pinned { instance, pin }) if instance == self.instance => {
                if let Some(partition) = self.pins.partition(pin) {
                    access::check(partition.name())?;
                }
                Ok(Held::Pinned(pin))
            }
            Some(Opened::Pinned { .. }) => Err(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "misdirected",
                "this delivery stays with the instance that handed it out: send it there; if that has ended, the message is delivered again",
            )),
            None => Err(Problem::invalid(
                "this is not a delivery of this service: send back what a pull returned, unchanged",
            )),
        }
    }

    /// Settles a delivery that a worker holds.
    pub(crate) async fn settle(
        &self,
        held: &Held,
        status: QueueMessageStatus,
        report: TaskReport,
    ) -> anyqueue::Result<SettleOutcome> {
        match held {
            Held::Detached(delivery) => self.queue.settle_detached(delivery, status, report).await,
            Held::Pinned(pin) => {
                let Some(pinned) = self.pins.get(*pin) else { return Ok(SettleOutcome::Lost) };
                let mut delivery = pinned.lock().await;
                delivery.report(report)?;
                let outcome = delivery.settle(status).await?;
                drop(delivery);
                self.pins.remove(*pin);
                Ok(outcome)
            }
        }
    }

    /// Extends the leases of deliveries that workers hold.
    pub(crate) async fn extend(&self, all: &[(&Held, Duration)]) -> Vec<anyqueue::Result<ExtendOutcome>> {
        let detached: Vec<(&DetachedDelivery, Duration)> = all
            .iter()
            .filter_map(|(held, lease)| match held {
                Held::Detached(delivery) => Some((&**delivery, *lease)),
                Held::Pinned(_) => None,
            })
            .collect();
        let mut answers = self.queue.extend_detached(&detached).await.into_iter();
        let mut outcomes = Vec::with_capacity(all.len());
        for (held, lease) in all {
            outcomes.push(match held {
                Held::Detached(_) => answers.next().unwrap_or(Ok(ExtendOutcome::Lost)),
                Held::Pinned(pin) => match self.pins.get(*pin) {
                    Some(pinned) => pinned.lock().await.extend(*lease).await,
                    None => Ok(ExtendOutcome::Lost),
                },
            });
        }
        outcomes
    }

    /// Releases deliveries that nobody has received: this counts as no attempt.
    pub(crate) async fn release(&self, unreceived: Vec<Held>) {
        let all = unreceived.iter().map(|held| async move {
            if let Held::Pinned(pin) = held {
                return self.pins.remove(*pin);
            }
            let settled = self.settle(held, QueueMessageStatus::Waiting, TaskReport::new()).await;
            if let Err(error) = settled {
                tracing::debug!(%error, "what nobody received could not be released; it comes back when its lease ends");
            }
        });
        futures_util::future::join_all(all).await;
    }

    pub(crate) fn store(&self) -> Answer<&ControlStore> {
        self.control.as_ref().ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "unsupported",
                "this backend has no control store: start the service with the control store of another backend",
            )
        })
    }

    pub(crate) fn registry(&self) -> Answer<Registry> {
        Ok(Registry::new(self.store()?.clone()))
    }

    /// The scheduler that manages the schedules.
    pub(crate) fn scheduler(&self) -> Answer<&Scheduler> {
        self.scheduler.as_ref().ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "unsupported",
                "this backend keeps no schedules: start the service with the control store of another backend",
            )
        })
    }

    /// The state of the queues that the caller may see.
    pub(crate) async fn sample(&self) -> Arc<Sample> {
        let sample = self.sampler.fresh().await;
        match access::caller() {
            Some(access) => sample.seen_by(&access),
            None => Arc::new(Sample::empty(&sample)),
        }
    }

    /// Refuses a request that changes something if the service is read-only.
    pub(crate) fn writable(&self) -> Answer<()> {
        if self.read_only {
            let text = "this service is read-only: it was started so";
            return Err(Problem::new(StatusCode::FORBIDDEN, "read_only", text));
        }
        Ok(())
    }

    /// Whether the backend can serve, according to an answer that is at most a second old.
    pub(crate) async fn healthy(&self) -> Result<String, String> {
        let lock = || self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*lock()
            && at.elapsed() < HEALTH_KEPT
        {
            return answer.clone();
        }
        let answer = match tokio::time::timeout(HEALTH_DEADLINE, self.queue.check()).await {
            Ok(Ok(_)) => Ok("ready".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the backend does not answer".to_owned()),
        };
        if answer.is_ok() {
            self.has_been_ready.store(true, Ordering::Relaxed);
        }
        *lock() = Some((Instant::now(), answer.clone()));
        answer
    }
}
