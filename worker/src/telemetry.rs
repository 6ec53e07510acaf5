//! What a worker reports: metrics through the `metrics` facade, spans through `tracing`.
//!
//! | metric | kind | labels | is |
//! |---|---|---|---|
//! | `anyqueue_worker_started_total` | counter | partition, kind | attempts started |
//! | `anyqueue_worker_ended_total` | counter | partition, kind, outcome | deliveries that ended, by [outcome](#outcomes) |
//! | `anyqueue_worker_wait_seconds` | histogram | partition, kind | from the push, or the end of the delay, to the start of the first attempt |
//! | `anyqueue_worker_run_seconds` | histogram | partition, kind | duration of one attempt |
//! | `anyqueue_worker_attempts` | histogram | partition, kind | attempts of a task until it was processed or dead |
//! | `anyqueue_worker_running` | gauge | partition | occupied slots |
//! | `anyqueue_worker_ready` | gauge | partition | messages that are held and have not started |
//! | `anyqueue_worker_stuck` | gauge | | handlers that did not stop when asked |
//! | `anyqueue_worker_throttled` | gauge | | the share of the slots that the governor withholds: 1 while it stops the worker |
//! | `anyqueue_worker_pull_errors_total` | counter | partition | pulls that failed |
//!
//! # Outcomes
//!
//! | outcome | the task |
//! |---|---|
//! | `processed` | succeeded |
//! | `retried` | failed, and is retried later |
//! | `dead` | went to the dead letters |
//! | `cancelled` | was removed because of a cancellation request |
//! | `interrupted` | was released by a shutdown, uncounted |
//! | `lost` | was not settled, because its lease was lost |
//! | `deferred` | runs later: it is unknown here, its kind is full, or an earlier run has not ended |
//! | `unsettled` | could not be settled, and comes back when its lease ends |
//!
//! The labels `partition` and `kind` have a fixed set of values. `partition` is one of the partitions that
//! the worker was built with, such as `mail` or `mail (dead letters)`. `kind` is one of the kinds with a
//! handler of their own, or `other` for the rest.
//!
//! Each attempt is a `tracing` span of level INFO named `anyqueue.task`, with the fields `partition`, `kind`,
//! `id`, `attempt` and `traceparent`, the W3C trace context of the sender. A run of a batch handler is one
//! span named `anyqueue.batch` instead, with the fields `partition`, `kind`, `tasks` (how many) and the `id`
//! of the first task. Install a metrics recorder before you run a worker: series are registered when they are
//! first used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::PartitionId;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::summary::Outcome;

/// The metrics of one kind in one partition.
pub(crate) struct Series {
    partition: String,
    kind: String,
    started: Counter,
    processed: Counter,
    wait: Histogram,
    run: Histogram,
    attempts: Histogram,
}

impl Series {
    fn new(partition: &PartitionId, kind: &str) -> Self {
        let (partition, kind) = (partition.to_string(), kind.to_owned());
        let labels = [("partition", partition.clone()), ("kind", kind.clone())];
        Self {
            started: counter!("anyqueue_worker_started_total", &labels),
            processed: ended(&partition, &kind, Outcome::Processed),
            wait: histogram!("anyqueue_worker_wait_seconds", &labels),
            run: histogram!("anyqueue_worker_run_seconds", &labels),
            attempts: histogram!("anyqueue_worker_attempts", &labels),
            partition,
            kind,
        }
    }

    /// Notes that an attempt starts; `wait` is given if it is the first.
    pub(crate) fn started(&self, wait: Option<Duration>) {
        self.started.increment(1);
        if let Some(wait) = wait {
            self.wait.record(wait.as_secs_f64());
        }
    }

    pub(crate) fn ran(&self, took: Duration) {
        self.run.record(took.as_secs_f64());
    }

    /// Notes that a delivery ended.
    pub(crate) fn ended(&self, outcome: Outcome, attempts: u32) {
        match outcome {
            Outcome::Processed => self.processed.increment(1),
            other => ended(&self.partition, &self.kind, other).increment(1),
        }
        if attempts > 0 && matches!(outcome, Outcome::Processed | Outcome::Dead) {
            self.attempts.record(f64::from(attempts));
        }
    }
}

fn ended(partition: &str, kind: &str, outcome: Outcome) -> Counter {
    let labels = [
        ("partition", partition.to_owned()),
        ("kind", kind.to_owned()),
        ("outcome", outcome.as_str().to_owned()),
    ];
    counter!("anyqueue_worker_ended_total", &labels)
}

/// The series of a run by partition and kind, registered when they are first used.
#[derive(Default)]
pub(crate) struct SeriesCache {
    by_kind: HashMap<(usize, Option<String>), Arc<Series>>,
    /// The series used last: most messages of a batch share it.
    last: Option<(usize, Option<String>, Arc<Series>)>,
}

impl SeriesCache {
    /// The series of a kind that has a handler, or of all other kinds.
    pub(crate) fn of(&mut self, index: usize, partition: &PartitionId, kind: Option<&str>) -> Arc<Series> {
        if let Some((last, name, series)) = &self.last
            && *last == index
            && name.as_deref() == kind
        {
            return series.clone();
        }
        let key = (index, kind.map(str::to_owned));
        let series = self.by_kind.entry(key.clone()).or_insert_with(|| {
            Arc::new(Series::new(partition, kind.filter(|kind| !kind.is_empty()).unwrap_or("other")))
        });
        self.last = Some((key.0, key.1, series.clone()));
        series.clone()
    }
}

/// What the fetch loop reports about one partition.
pub(crate) struct PartitionMetrics {
    running: Gauge,
    ready: Gauge,
    pub(crate) pull_errors: Counter,
}

impl PartitionMetrics {
    pub(crate) fn new(partition: &PartitionId) -> Self {
        let label = partition.to_string();
        Self {
            running: gauge!("anyqueue_worker_running", "partition" => label.clone()),
            ready: gauge!("anyqueue_worker_ready", "partition" => label.clone()),
            pull_errors: counter!("anyqueue_worker_pull_errors_total", "partition" => label),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
    pub(crate) fn set(&self, running: usize, ready: usize) {
        self.running.set(running as f64);
        self.ready.set(ready as f64);
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of slots")]
pub(crate) fn stuck(handlers: usize) {
    gauge!("anyqueue_worker_stuck").set(handlers as f64);
}

pub(crate) fn throttled(withheld: f64) {
    gauge!("anyqueue_worker_throttled").set(withheld);
}
