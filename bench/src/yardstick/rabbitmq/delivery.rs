//! A message that this client holds.

use std::sync::Arc;

use anyqueue::{Bytes, MessageId};

use super::acks::Acks;

/// The length of the message's id, which each body begins with.
pub(super) const ID_BYTES: usize = 16;

pub(crate) struct RawDelivery {
    pub(super) id: MessageId,
    pub(super) payload: Bytes,
    pub(super) number: u64,
    pub(super) acks: Arc<Acks>,
}
