//! Telling waiting pulls, in this process and elsewhere, what can be pulled.

use std::sync::Arc;

use anyqueue::PartitionId;

use crate::notifier::Outbox;
use crate::waiters::{Hint, Wake};

/// Reaches the waiting pulls of this handle and, by notifications, those of others.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub(crate) wake: Arc<Wake>,
    /// `None` where notifications are off.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

impl Teller {
    pub(crate) fn tell(&self, partition: &PartitionId, hint: Hint) {
        if hint.is_empty() {
            return;
        }
        self.wake.hint(partition, hint);
        if let Some(outbox) = &self.outbox {
            outbox.put(partition, hint);
        }
    }
}
