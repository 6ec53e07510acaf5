//! Samples all queues once a second for everybody who watches, and not at all once nobody has for a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::control::ControlStore;
use anyqueue::{ErrorKind, Queue};
use anyqueue_control::registry::{Registry, WorkerInfo};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::history::{History, Look, Point, Reading};
use crate::measure::readings;
use crate::problem::Problem;
use crate::queues::{QueueInfo, page_of};

/// The most queues in a sample.
pub(crate) const MAX_SAMPLED: usize = 50;
/// The shortest pause between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// A sample takes at most this share of the time.
const SHARE: u32 = 10;
/// The longest that a sample takes.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long sampling goes on after the last watcher has left.
const LINGER: Duration = Duration::from_mins(1);

/// The state of all queues at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) number: u64,
    pub(crate) taken: Instant,
    pub(crate) at: SystemTime,
    pub(crate) partitions: Vec<QueueInfo>,
    /// The readings of each queue, in the same order.
    pub(crate) readings: Vec<Reading>,
    /// Whether there are more queues.
    pub(crate) more: bool,
    /// Why the queues could not be listed.
    pub(crate) unlisted: Option<String>,
    /// The registered workers; `None` where no registry is kept.
    pub(crate) workers: Option<Vec<WorkerInfo>>,
}

impl Sample {
    /// The part of the sample that the caller may see.
    pub(crate) fn seen_by(self: &Arc<Self>, access: &Access) -> Arc<Self> {
        if access.covers_all() {
            return self.clone();
        }
        let mut seen = Self::empty(self);
        // If the readings did not come in time, a queue has none.
        let readings = self.readings.iter().copied().chain(std::iter::repeat(Reading::default()));
        let all = self.partitions.iter().zip(readings);
        let part = all.filter(|(queue, _)| access.covers(&queue.partition));
        (seen.partitions, seen.readings) = part.map(|(queue, reading)| (queue.clone(), reading)).unzip();
        Arc::new(seen)
    }

    /// The same sample without its contents.
    pub(crate) fn empty(of: &Self) -> Self {
        let Self { number, taken, at, more, .. } = *of;
        Self {
            number,
            taken,
            at,
            partitions: Vec::new(),
            more,
            unlisted: of.unlisted.clone(),
            workers: None,
            readings: Vec::new(),
        }
    }

    pub(crate) fn total(&self, of: impl Fn(&QueueInfo) -> Option<u64>) -> u64 {
        self.partitions.iter().filter_map(of).fold(0, u64::saturating_add)
    }

    /// Whether it shows anything different from the previous sample.
    fn differs(&self, before: &Self) -> bool {
        let workers = |sample: &Self| {
            let all = sample.workers.iter().flatten();
            all.map(|worker| (worker.name.clone(), worker.state, worker.running, worker.order))
                .collect::<Vec<_>>()
        };
        self.partitions != before.partitions
            || self.unlisted != before.unlisted
            || workers(self) != workers(before)
    }
}

/// Takes samples while somebody watches.
pub(crate) struct Sampler {
    queue: Queue,
    registry: Option<Registry>,
    latest: watch::Sender<Option<Arc<Sample>>>,
    history: Mutex<History>,
    /// Held by whoever takes a sample; others wait for that one.
    taking: tokio::sync::Mutex<()>,
    /// When somebody last looked; `None` if nobody has so far.
    looked: Mutex<Option<Instant>>,
    wake: Notify,
}

impl Sampler {
    pub(crate) fn new(queue: Queue, control: Option<&ControlStore>) -> Self {
        Self {
            queue,
            registry: control.map(|store| Registry::new(store.clone())),
            latest: watch::Sender::new(None),
            history: Mutex::default(),
            taking: tokio::sync::Mutex::default(),
            looked: Mutex::new(None),
            wake: Notify::new(),
        }
    }

    /// Returns a sample that is less than a second old; simultaneous callers share one.
    pub(crate) async fn fresh(&self) -> Arc<Sample> {
        self.is_looked_at();
        self.shared().await
    }

    async fn shared(&self) -> Arc<Sample> {
        let _taking = self.taking.lock().await;
        if let Some(sample) = &*self.latest.borrow()
            && sample.taken.elapsed() < EVERY
        {
            return sample.clone();
        }
        self.take().await
    }

    /// Receives each sample that shows something new, from the next one on.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Sample>>> {
        self.is_looked_at();
        self.latest.subscribe()
    }

    /// The state of all queues together over time.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).of_all()
    }

    /// The state of one queue over time; empty for a queue that is in no sample.
    pub(crate) fn points_of(&self, name: &str) -> Vec<Point> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).of(name)
    }

    fn is_looked_at(&self) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.wake.notify_one();
    }

    fn is_watched(&self) -> bool {
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        self.latest.receiver_count() > 0 || looked.is_some_and(|looked| looked.elapsed() < LINGER)
    }

    /// Takes samples until the service ends.
    pub(crate) async fn run(&self, end: &CancellationToken) {
        let work = async {
            loop {
                // A look is remembered until somebody waits for one, and may be from long ago.
                while !self.is_watched() {
                    self.wake.notified().await;
                }
                let began = Instant::now();
                let sample = self.shared().await;
                let pause = EVERY.max(began.elapsed() * SHARE);
                // If a page has just taken one, the next is due when that one is old.
                tokio::time::sleep(pause.saturating_sub(sample.taken.elapsed())).await;
            }
        };
        tokio::select! { () = end.cancelled() => {}, () = work => {} }
    }

    async fn take(&self) -> Arc<Sample> {
        let listed = tokio::time::timeout(DEADLINE, page_of(&self.queue, None, MAX_SAMPLED)).await;
        let listed = listed
            .unwrap_or_else(|_| Err(Problem::busy("the backend did not say in time how its queues stand")));
        let workers = match &self.registry {
            Some(registry) => match tokio::time::timeout(DEADLINE, registry.list()).await {
                Ok(Ok(found)) => Some(found.workers),
                Ok(Err(_)) | Err(_) => None,
            },
            None => None,
        };
        let (partitions, more, unlisted) = match listed {
            Ok(page) => (page.partitions, page.next.is_some(), None),
            Err(problem) if problem.kind == ErrorKind::Unsupported.as_str() => {
                (Vec::new(), false, Some(format!("This backend cannot list its queues: {}.", problem.detail)))
            }
            Err(problem) => (Vec::new(), false, Some(problem.detail)),
        };
        let (before, at) = (self.latest.borrow().clone(), SystemTime::now());
        let since = before.as_ref().filter(|before| before.unlisted.is_none()).map(|before| before.at);
        let reading = readings(&self.queue, &partitions, since, at);
        let readings = tokio::time::timeout(DEADLINE, reading).await.unwrap_or_default();
        let number = before.as_ref().map_or(1, |before| before.number + 1);
        let sample = Arc::new(Sample {
            number,
            taken: Instant::now(),
            at,
            partitions,
            readings,
            more,
            unlisted,
            workers,
        });
        if sample.unlisted.is_none() {
            self.note(&sample, before.as_deref());
        }
        let is_new = before.is_none_or(|before| sample.differs(&before));
        self.latest.send_if_modified(|latest| {
            *latest = Some(sample.clone());
            is_new
        });
        sample
    }

    fn note(&self, sample: &Sample, before: Option<&Sample>) {
        let known: HashMap<&str, &QueueInfo> = before
            .iter()
            .flat_map(|before| &before.partitions)
            .map(|queue| (queue.partition.as_str(), queue))
            .collect();
        // If the readings did not come in time, a queue has none.
        let readings = sample.readings.iter().copied().chain(std::iter::repeat(Reading::default()));
        let looks: Vec<_> = sample
            .partitions
            .iter()
            .zip(readings)
            .map(|(now, reading)| Look { now, reading, before: known.get(now.partition.as_str()).copied() })
            .collect();
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.note(sample.at, before.map(|before| before.at), &looks);
    }
}
