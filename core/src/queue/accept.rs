//! Taking charge of deliveries, except for those that core itself has to refuse.

use std::sync::Arc;

use super::delivery::{Delivery, Receipt};
use super::feed::Terms;
use super::keeper::Hold;
use super::refuse::Fate;
use super::shared::Shared;
use crate::clock::far;
use crate::storage::{RawDelivery, Settlement};

impl Shared {
    /// Takes charge of deliveries; those that have expired or were delivered too often are settled instead.
    pub(super) fn accept(self: &Arc<Self>, terms: &Terms, deliveries: Vec<RawDelivery>) -> Vec<Delivery> {
        let received = self.caller.clock.now();
        let received_at = self.caller.clock.wall();
        let options = self.options.of(terms.partition.name());
        let max_hold =
            self.capabilities.lease.max_hold.map_or(options.max_hold, |most| most.min(options.max_hold));
        let mut accepted = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            match self.refuse(&terms.partition, &delivery) {
                Fate::Handed => accepted.push(delivery),
                Fate::LeftToItsLease => {}
                Fate::Settled(action) => {
                    self.deliveries.note(delivery.lease.id, &action);
                    let lane = self.settle_lane(&terms.partition);
                    let end = self.end_unhandled(&terms.partition, &delivery, &action);
                    let settlement = Settlement::new(delivery.lease, action).with_end(end);
                    self.settler.submit_detached(&self.exec, lane, settlement.into());
                }
            }
        }
        let holds = accepted.iter().map(|delivery| {
            let hold = Hold {
                lease: terms.lease,
                received,
                trusted_until: delivery.lease_until.unwrap_or_else(|| far(received, terms.lease)),
                extend_until: far(received, max_hold),
                keep_alive: terms.keep_alive,
            };
            (delivery.lease.clone(), hold)
        });
        let held = self.keeper.hold(holds);
        if self.exec.has_ended() {
            for held in &held {
                self.keeper.release(held);
                held.fire_lost();
            }
        }
        self.caller.labels.count(
            "anyqueue_pulled_total",
            self.name(),
            &terms.partition,
            accepted.len() as u64,
        );
        #[allow(clippy::cast_precision_loss, reason = "bounded by max_held")]
        self.held.increment(accepted.len() as f64);
        accepted
            .into_iter()
            .zip(held)
            .map(|(delivery, held)| {
                let receipt = Receipt {
                    delivery_count: delivery.delivery_count,
                    age: delivery.age,
                    received,
                    received_at,
                };
                Delivery::new(self.clone(), held, delivery.message, receipt)
            })
            .collect()
    }
}
