//! The metrics and spans that core reports, through the crates `metrics` and `tracing`.
//!
//! | metric | kind | labels | is |
//! |---|---|---|---|
//! | `anyqueue_pushed_total` | counter | backend, partition | messages stored |
//! | `anyqueue_duplicates_total` | counter | backend, partition | pushes that returned `Duplicate` |
//! | `anyqueue_replaced_total` | counter | backend, partition | pushes that changed a waiting message |
//! | `anyqueue_pulled_total` | counter | backend, partition | deliveries handed to handlers |
//! | `anyqueue_settled_total` | counter | backend | settlements confirmed |
//! | `anyqueue_successors_total` | counter | backend | messages that confirmed settlements brought, including duplicates |
//! | `anyqueue_lost_total` | counter | backend | settlements and extensions that came too late |
//! | `anyqueue_ledger_dropped_total` | counter | backend | ends and other reports about tasks that a [ledger beside](crate::Beside) the queue did not keep |
//! | `anyqueue_errors_total` | counter | backend, operation, kind | failed items |
//! | `anyqueue_call_seconds` | histogram | backend, operation | duration of one call to push, settle or extend; pulls alone are not measured |
//! | `anyqueue_batch_items` | histogram | backend, operation | items in one call |
//! | `anyqueue_held` | gauge | backend | deliveries held by this process |
//!
//! The label `partition` holds the names of the first partitions that the queue saw, as many as
//! [`QueueBuilder::metric_partitions`](crate::QueueBuilder::metric_partitions) allows; all others are counted
//! together, under `(other)`.
//!
//! Each call to the backend is a `tracing` span of level DEBUG named `anyqueue.call`, with the fields
//! `backend`, `operation` and, for batches, `items`. Install a metrics recorder before you build queues: the
//! gauge is registered when the queue is built.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use metrics::{SharedString, counter, histogram};

use crate::error::{Error, Operation};
use crate::partition::PartitionId;

/// The label for all further partitions. No partition can have this name.
const OTHER: &str = "(other)";

/// Values of the label `partition`, up to a limit: a recorder keeps each series forever.
#[derive(Debug)]
pub(crate) struct PartitionLabels {
    most: usize,
    known: RwLock<HashMap<PartitionId, SharedString>>,
}

impl PartitionLabels {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, known: RwLock::default() }
    }

    fn of(&self, partition: &PartitionId) -> SharedString {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = known.get(partition) {
            return label.clone();
        }
        if known.len() >= self.most {
            return SharedString::const_str(OTHER);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most && !known.contains_key(partition) {
            return SharedString::const_str(OTHER);
        }
        let label = || SharedString::from_shared(partition.to_string().into());
        known.entry(partition.clone()).or_insert_with(label).clone()
    }

    /// Adds to a counter of messages by partition.
    pub(crate) fn count(
        &self,
        name: &'static str,
        backend: &'static str,
        partition: &PartitionId,
        count: u64,
    ) {
        if count > 0 {
            counter!(name, "backend" => backend, "partition" => self.of(partition)).increment(count);
        }
    }
}

/// Adds to a counter without a partition.
pub(crate) fn count(name: &'static str, backend: &'static str, count: u64) {
    if count > 0 {
        counter!(name, "backend" => backend).increment(count);
    }
}

/// Counts one failed item.
pub(crate) fn count_error(backend: &'static str, operation: Operation, error: &Error) {
    counter!("anyqueue_errors_total", "backend" => backend, "operation" => operation.as_str(), "kind" => error.kind().as_str())
        .increment(1);
}

/// Records one call.
pub(crate) fn observe_call(backend: &'static str, operation: Operation, items: usize, took: Duration) {
    histogram!("anyqueue_call_seconds", "backend" => backend, "operation" => operation.as_str())
        .record(took.as_secs_f64());
    #[allow(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
    histogram!("anyqueue_batch_items", "backend" => backend, "operation" => operation.as_str())
        .record(items as f64);
}
