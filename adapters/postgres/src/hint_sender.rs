//! Hints for waiting pulls, in this process and elsewhere.

use std::sync::Arc;

use anyqueue::PartitionId;
use anyqueue::adapter::{Hint, Waiters};

use crate::notifier::Outbox;

/// Sends hints to the waiting pulls of this handle and, by notifications, of others.
#[derive(Clone, Debug)]
pub(crate) struct HintSender {
    pub(crate) waiters: Arc<Waiters>,
    /// `None` if notifications are off.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

impl HintSender {
    pub(crate) fn send(&self, partition: &PartitionId, hint: Hint) {
        if hint.is_empty() {
            return;
        }
        self.waiters.hint(partition, hint);
        if let Some(outbox) = &self.outbox {
            outbox.put(partition, hint);
        }
    }
}
