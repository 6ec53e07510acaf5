//! What the faults of the ledger share.

use std::sync::Arc;

use anyqueue::adapter::{LedgerQueueStorage as _, Settlement, TaskEnd};
use anyqueue::{MessageId, PartitionId, Result, SettleOutcome};
use anyqueue_conformance::Clause;

use crate::quirk::Client;

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
pub(super) const BREAKS: &[Clause] = &[];

/// Returns the settlement with another end, or with none.
pub(super) fn with_end(settlement: &Settlement, end: Option<Arc<TaskEnd>>) -> Settlement {
    settlement.clone().with_end(end)
}

pub(super) fn is_settled(answer: &Result<SettleOutcome>) -> bool {
    matches!(answer, Ok(SettleOutcome::Settled))
}

/// Returns the end of this task that the ledger shows.
pub(super) async fn find(client: &Client, partition: &PartitionId, id: MessageId) -> Option<Arc<TaskEnd>> {
    let found = client.right.find_ended(partition, &[id]).await;
    found.into_iter().next()?.ok()?.map(|ended| ended.end)
}

/// Stores an end, whatever its rank.
pub(super) async fn overwrite(
    client: &Client,
    partition: &PartitionId,
    id: MessageId,
    end: &Arc<TaskEnd>,
) -> Result<()> {
    client.right.delete_ended(partition, &[id]).await;
    let recorded = client.right.record_ended(partition, &[(id, Arc::clone(end))]).await;
    recorded.into_iter().collect()
}
