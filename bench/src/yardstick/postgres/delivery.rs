//! A message that this client holds, and the proof that it does.

use anyqueue::Bytes;
use uuid::Uuid;

use super::place::Place;

pub(crate) struct RawDelivery {
    pub(super) proof: Proof,
    pub(super) payload: Bytes,
    pub(super) _deliveries: i32,
}

/// What a delivery is settled with. Nothing extends leases here, so a held row stays where it is.
#[derive(Clone, Copy)]
pub(super) struct Proof {
    pub(super) place: Place,
    pub(super) id: Uuid,
    pub(super) token: Uuid,
}
