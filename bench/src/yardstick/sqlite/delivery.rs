//! A message that this client holds.

use anyqueue::{Bytes, MessageId};

pub(crate) struct RawDelivery {
    pub(super) place: i64,
    pub(super) id: MessageId,
    pub(super) token: [u8; 16],
    pub(super) payload: Bytes,
    pub(super) _deliveries: u32,
}
