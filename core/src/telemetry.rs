//! What core reports: metrics by the `metrics` facade, spans by `tracing`.
//!
//! | metric | kind | labels | is |
//! |---|---|---|---|
//! | `anyqueue_pushed_total` | counter | backend, partition | messages stored |
//! | `anyqueue_duplicates_total` | counter | backend, partition | pushes answered `Duplicate` |
//! | `anyqueue_pulled_total` | counter | backend, partition | deliveries handed to handlers |
//! | `anyqueue_settled_total` | counter | backend | settlements confirmed |
//! | `anyqueue_lost_total` | counter | backend | settlements and extensions that came too late |
//! | `anyqueue_errors_total` | counter | backend, operation, kind | failed items |
//! | `anyqueue_call_seconds` | histogram | backend, operation | time of one call to the backend; long polls are not measured |
//! | `anyqueue_batch_items` | histogram | backend, operation | items in one call |
//! | `anyqueue_held` | gauge | backend | deliveries held by this process |
//!
//! Each call to the backend is a `tracing` span of level DEBUG named `anyqueue.call`, with the fields `backend`, `operation` and, for
//! batches, `items`. Install a metrics recorder before making queues: the gauge is registered when the queue is made.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::error::{Error, Operation};
use crate::partition::PartitionId;

/// Counters of messages by partition.
pub(crate) fn count_messages(name: &'static str, backend: &'static str, partition: &PartitionId, count: u64) {
    if count > 0 {
        counter!(name, "backend" => backend, "partition" => partition.to_string()).increment(count);
    }
}

/// Counters without a partition.
pub(crate) fn count(name: &'static str, backend: &'static str, count: u64) {
    if count > 0 {
        counter!(name, "backend" => backend).increment(count);
    }
}

/// One failed item.
pub(crate) fn count_error(backend: &'static str, operation: Operation, error: &Error) {
    counter!("anyqueue_errors_total", "backend" => backend, "operation" => operation.as_str(), "kind" => error.kind().as_str())
        .increment(1);
}

/// One call.
pub(crate) fn observe_call(backend: &'static str, operation: Operation, items: usize, took: Duration) {
    histogram!("anyqueue_call_seconds", "backend" => backend, "operation" => operation.as_str())
        .record(took.as_secs_f64());
    #[allow(clippy::cast_precision_loss, reason = "batches are far below 2^52")]
    histogram!("anyqueue_batch_items", "backend" => backend, "operation" => operation.as_str())
        .record(items as f64);
}
