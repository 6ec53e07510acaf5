//! Messages that this handle has received, and that were not given to a pull yet.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyqueue::Error;
use anyqueue::adapter::{Lease, RawDelivery};

use crate::in_flight::{Claim, InFlight};

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) claim: Claim,
    pub(crate) lease: Duration,
    pub(crate) age: Duration,
    pub(crate) arrived: Instant,
    /// Why the message cannot be read.
    pub(crate) unreadable: Option<Error>,
}

impl Received {
    /// Turns the message into a delivery.
    pub(crate) fn deliver(self, in_flight: &InFlight) -> RawDelivery {
        let Self { claim, age, unreadable, .. } = self;
        let (message, until, deliveries) = (claim.message.clone(), claim.until, claim.deliveries);
        let partition = claim.level_queue.partition.clone();
        let lease = Lease { partition, id: message.id(), token: in_flight.hold(claim) };
        let delivery = RawDelivery::new(lease, message).with_lease_until(until).with_age(age);
        delivery.with_delivery_count(deliveries).with_unreadable(unreadable)
    }
}

/// Splits off the first message of each group, since the server delivers several of a group at once.
pub(crate) fn split_groups(received: Vec<Received>) -> (Vec<Received>, Vec<Received>) {
    let mut groups = HashSet::new();
    received
        .into_iter()
        .partition(|received| received.claim.group.as_ref().is_none_or(|group| groups.insert(group.clone())))
}
