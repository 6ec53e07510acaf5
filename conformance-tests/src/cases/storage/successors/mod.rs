//! Messages that a settlement brings.

pub(super) mod fenced;
pub(super) mod keys;
pub(super) mod killed;
pub(super) mod stored;

use anyqueue::adapter::{Action, RawDelivery, Settlement, Successor};
use anyqueue::{MessageData, PartitionId};

use crate::context::settlement;

/// A settlement with successors, all for one partition.
pub(super) fn followed(
    delivery: &RawDelivery,
    action: Action,
    partition: &PartitionId,
    messages: impl IntoIterator<Item = MessageData>,
) -> Settlement {
    let successor = |message| Successor { partition: partition.clone(), message };
    settlement(delivery, action).with_then(messages.into_iter().map(successor).collect())
}
