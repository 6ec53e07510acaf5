//! Tasks that had ended when their settlement was lost, and that are delivered again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::{Beside, LedgerDown, not_kept};
use crate::capabilities::DeliveryCount;
use crate::error::{Error, Result, RetryClass};
use crate::ledger::{EndedTask, LedgerQueueStorage, generation};
use crate::message::MessageId;
use crate::partition::PartitionId;
use crate::storage::{Action, RawDelivery, Settlement};

/// How much precision the moment of an end may have lost.
const MOMENT: Duration = Duration::from_millis(1);

impl Beside {
    /// Settles deliveries of tasks that have ended already, though their settlement was never sent or never
    /// arrived, and returns the others. If the ledger cannot tell, all are returned: a task that has ended
    /// would run again, and none could be settled.
    pub(super) async fn without_ended(
        &self,
        partition: &PartitionId,
        deliveries: Vec<RawDelivery>,
    ) -> Result<Vec<RawDelivery>> {
        // Where releases are not counted, a message that was released after its end looks new.
        let counts_all = self.capabilities.delivery_count == DeliveryCount::Deliveries;
        let is_repeated = |delivery: &RawDelivery| {
            delivery.unreadable.is_none() && !(counts_all && delivery.delivery_count == Some(1))
        };
        let ids: Vec<_> = deliveries.iter().filter(|it| is_repeated(it)).map(|it| it.message.id()).collect();
        if ids.is_empty() || partition.is_dead_letters() {
            return Ok(deliveries);
        }
        let found = self.find_ended(partition, &ids).await;
        if let Some(error) = self.out_of_reach(&found) {
            self.is_down.store(true, Ordering::Relaxed);
            let back: Vec<_> =
                deliveries.into_iter().map(|it| Settlement::new(it.lease, Action::Release)).collect();
            // What fails comes back when its lease ends.
            let _ = self.queue.settle(&back).await;
            return Err(not_kept(error));
        }
        let ends: HashMap<MessageId, EndedTask> =
            found.into_iter().flatten().flatten().map(|ended| (ended.id, ended)).collect();
        let now = SystemTime::now();
        let (ended, left): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(|delivery| {
            is_repeated(delivery)
                && ends.get(&delivery.message.id()).is_some_and(|ended| is_end_of(ended, delivery, now))
        });
        if !ended.is_empty() {
            tracing::debug!(count = ended.len(), "tasks that had ended came again and are settled");
            let settlements: Vec<_> =
                ended.into_iter().map(|delivery| Settlement::new(delivery.lease, Action::Remove)).collect();
            // What fails comes back when its lease ends.
            let answers = self.queue.settle(&settlements).await;
            self.note_settled(&settlements, &answers);
        }
        Ok(left)
    }

    /// Why the ledger could not tell about some tasks, if it may be able to later and that is worth waiting
    /// for. An end that cannot be read is no reason to wait.
    fn out_of_reach<'a>(&self, found: &'a [Result<Option<EndedTask>>]) -> Option<&'a Error> {
        let mut errors = found.iter().filter_map(|answer| answer.as_ref().err());
        errors.find(|error| self.when_down == LedgerDown::Hold && error.retry() != RetryClass::Never)
    }
}

/// Whether this is the end of the delivered task, and not an earlier one: from before a redrive, or of
/// another task with the same id.
fn is_end_of(ended: &EndedTask, delivery: &RawDelivery, now: SystemTime) -> bool {
    let is_newer = ended.end.generation >= generation(delivery.message.headers());
    let pushed_at = now.checked_sub(delivery.age).filter(|_| !delivery.age.is_zero());
    // Its successors may not have been stored: they are once it has run again.
    let is_complete = ended.end.successors == 0;
    is_newer && is_complete && pushed_at.is_none_or(|pushed_at| ended.ended_at + MOMENT > pushed_at)
}
