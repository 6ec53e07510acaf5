//! Amending messages that wait.

use std::time::Instant;

use anyqueue::adapter::{AmendQueueStorage, async_trait};
use anyqueue::{Amend, AmendOutcome, MessageId, Operation, PartitionId, Result};

use crate::push::encoded_len;
use crate::state::{State, enter};
use crate::storage::MemoryQueue;

#[async_trait]
impl AmendQueueStorage for MemoryQueue {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Amend) {
            return vec![Err(closed); ids.len()];
        }
        self.store.run(|state, now| {
            let outcomes = ids.iter().map(|id| Ok(state.amend(now, partition, *id, change))).collect();
            state.tidy(partition);
            outcomes
        })
    }
}

impl State {
    fn amend(&mut self, now: Instant, id: &PartitionId, message: MessageId, change: &Amend) -> AmendOutcome {
        let Some(partition) = enter(&mut self.partitions, now, id) else {
            return self.unknown(id, message);
        };
        match partition.amend(now, message, change) {
            AmendOutcome::NotFound => self.unknown(id, message),
            AmendOutcome::Amended => {
                if let Some(amended) = partition.waiting(message) {
                    let (before, bytes) = (amended.bytes, encoded_len(&amended.data));
                    amended.bytes = bytes;
                    self.occupancy.resize(before, bytes);
                }
                AmendOutcome::Amended
            }
            outcome => outcome,
        }
    }

    /// The outcome for a message that is not in the partition.
    fn unknown(&self, partition: &PartitionId, message: MessageId) -> AmendOutcome {
        let dead = self.partitions.get(&partition.dead_letters());
        let is_dead = dead.is_some_and(|dead| dead.contains(message));
        if is_dead { AmendOutcome::Dead } else { AmendOutcome::NotFound }
    }
}
