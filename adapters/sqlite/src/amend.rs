//! Asking the writer for amendments.

use anyqueue::adapter::{AmendQueueStorage, async_trait};
use anyqueue::{Amend, AmendOutcome, Error, MessageId, Operation, PartitionId, Result};

use crate::SqliteQueue;
use crate::admin::{Admin, AdminAnswer};
use crate::error::NAME;

#[async_trait]
impl AmendQueueStorage for SqliteQueue {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Amend);
        let request = Admin::Amend {
            partition: partition.clone(),
            ids: ids.to_vec(),
            change: Box::new(change.clone()),
        };
        match self.admin(request, Operation::Amend).await {
            Ok(AdminAnswer::Amended(outcomes)) => {
                outcomes.into_iter().map(|outcome| outcome.map_err(stamp)).collect()
            }
            Ok(_) => vec![Ok(AmendOutcome::NotFound); ids.len()],
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
