//! Messages that this handle has claimed and nobody was given yet.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyqueue::Error;
use anyqueue::adapter::{Delivery, Lease};

use crate::held::{Claim, Ledger};

/// One of them.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) claim: Claim,
    pub(crate) lease: Duration,
    pub(crate) age: Duration,
    pub(crate) arrived: Instant,
    /// Why the message cannot be read.
    pub(crate) unreadable: Option<Error>,
}

impl Taken {
    /// Hands it to somebody.
    pub(crate) fn deliver(self, ledger: &Ledger) -> Delivery {
        let Self { claim, age, unreadable, .. } = self;
        let (message, until, deliveries) = (claim.message.clone(), claim.until, claim.deliveries);
        let partition = claim.place.partition.clone();
        let lease = Lease { partition, id: message.id(), token: ledger.hold(claim) };
        let delivery = Delivery::new(lease, message).with_lease_until(until).with_age(age);
        delivery.with_delivery_count(deliveries).with_unreadable(unreadable)
    }
}

/// The first of each group, and those behind them: the server hands out several of a group at once.
pub(crate) fn heads(taken: Vec<Taken>) -> (Vec<Taken>, Vec<Taken>) {
    let mut groups = HashSet::new();
    taken
        .into_iter()
        .partition(|taken| taken.claim.group.as_ref().is_none_or(|group| groups.insert(group.clone())))
}
