//! Deliveries that stay with this instance: their leases belong to its connection, or they are too large to hand out sealed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::{Delivery, PartitionId};

/// The deliveries that this instance keeps, under names that nobody can guess.
#[derive(Default)]
pub(crate) struct Pins(Mutex<HashMap<u128, (PartitionId, Arc<Pinned>)>>);

/// A kept delivery; locked while it is settled or extended.
pub(crate) type Pinned = tokio::sync::Mutex<Delivery>;

impl Pins {
    /// Keeps a delivery until it is settled or lost.
    pub(crate) fn keep(&self, delivery: Delivery) -> u128 {
        let pin = uuid::Uuid::new_v4().as_u128();
        let partition = delivery.partition().clone();
        self.lock().insert(pin, (partition, Arc::new(tokio::sync::Mutex::new(delivery))));
        pin
    }

    pub(crate) fn get(&self, pin: u128) -> Option<Arc<Pinned>> {
        self.lock().get(&pin).map(|(_, pinned)| pinned.clone())
    }

    /// The queue that the delivery came from.
    pub(crate) fn partition(&self, pin: u128) -> Option<PartitionId> {
        self.lock().get(&pin).map(|(partition, _)| partition.clone())
    }

    /// Lets go of the delivery. If it is dropped unsettled, it goes back.
    pub(crate) fn remove(&self, pin: u128) {
        let removed = self.lock().remove(&pin);
        drop(removed);
    }

    /// Forgets deliveries whose leases have ended.
    pub(crate) fn sweep(&self) {
        let lost: Vec<_> = {
            let mut pins = self.lock();
            let is_lost = |pinned: &Arc<Pinned>| pinned.try_lock().is_ok_and(|delivery| delivery.is_lost());
            pins.extract_if(|_, (_, pinned)| is_lost(pinned)).collect()
        };
        drop(lost);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u128, (PartitionId, Arc<Pinned>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
