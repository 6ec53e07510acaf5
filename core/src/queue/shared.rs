//! What all parts of a queue share and need. This module knows none of them.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::caller::StorageCaller;
use super::coalesce::Coalescer;
use super::deliveries::DeliveryCounts;
use super::keeper::LeaseKeeper;
use super::options::Options;
use crate::capabilities::Capabilities;
use crate::error::{Error, Operation, Result, RetryClass};
use crate::exec::{Exec, runtime_ended};
use crate::partition::PartitionId;
use crate::storage::{SettleOutcome, Settlement, Storage};

/// What all clones, handlers and streams of a queue share.
pub(crate) struct Shared {
    pub(super) caller: StorageCaller,
    pub(super) capabilities: Capabilities,
    pub(super) options: Options,
    pub(super) exec: Exec,
    pub(super) pusher: Coalescer<PushCall>,
    pub(super) settler: Coalescer<SettleCall>,
    pub(super) keeper: Arc<LeaseKeeper>,
    pub(super) deliveries: DeliveryCounts,
    /// A permit for each delivery that may be held.
    pub(super) slots: Arc<Semaphore>,
    pub(super) held: metrics::Gauge,
    /// A permit for each KiB that may wait in a push.
    pub(super) push_room: Arc<Semaphore>,
    pub(super) push_room_permits: u32,
    pub(super) closing: CancellationToken,
    /// Calls in flight, for `close` to wait for.
    pub(super) active: TaskTracker,
    /// Ends the heartbeat with the last clone.
    pub(super) _gone: DropGuard,
}

/// Joined pushes to one partition; the call itself is implemented with the pushes.
pub(super) struct PushCall(pub(super) StorageCaller);

/// Joined settlements; the call itself is implemented with the settlements.
pub(super) struct SettleCall(pub(super) StorageCaller);

impl Shared {
    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.caller.storage
    }

    pub(super) fn name(&self) -> &'static str {
        self.caller.name()
    }

    /// Registers a call that `close` waits for, or refuses it.
    pub(super) fn enter(
        &self,
        operation: Operation,
    ) -> Result<tokio_util::task::task_tracker::TaskTrackerToken> {
        let token = self.active.token();
        // After taking the token, so that `close` either sees the call or the call sees `close`.
        if self.closing.is_cancelled() {
            return Err(self.refusal(operation));
        }
        Ok(token)
    }

    /// The error for when nothing is done any more.
    pub(super) fn refusal(&self, operation: Operation) -> Error {
        let error = if self.exec.has_ended() { runtime_ended() } else { Error::closed() };
        self.stamp(error, operation)
    }

    pub(super) fn stamp(&self, error: Error, operation: Operation) -> Error {
        error.with_backend(self.name()).with_operation(operation)
    }

    /// Makes a call with one result in the place where the queue's connections live.
    pub(super) async fn bounded<T, F>(
        &self,
        operation: Operation,
        call: impl FnOnce(Arc<dyn Storage>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        if self.exec.has_ended() && operation != Operation::Close {
            return Err(self.refusal(operation));
        }
        let (caller, timeout) = (self.caller.clone(), self.options.call_timeout);
        let call = async move { caller.bounded(operation, timeout, call(caller.storage.clone())).await };
        self.exec.call(call).await.map_err(|error| self.stamp(error, operation))?
    }

    /// Settles in a call of its own, without joining others.
    pub(super) async fn settle_apart(&self, settlements: Vec<Settlement>) -> Vec<Result<SettleOutcome>> {
        let (caller, items) = (self.caller.clone(), settlements.len());
        let call = self.exec.call(async move { caller.settle(&settlements).await });
        // Settling twice is harmless.
        let failed = |error: Error| self.stamp(error.with_retry(RetryClass::Safe), Operation::Settle);
        call.await.unwrap_or_else(|error| vec![Err(failed(error)); items])
    }

    /// The lane in which settlements of a partition share calls.
    pub(super) fn settle_lane(&self, partition: &PartitionId) -> Option<PartitionId> {
        (!self.capabilities.coalesce_settle.across_partitions).then(|| partition.clone())
    }
}
