//! Releases deliveries without a decision of their handler: lost, dropped, or still held when the queue closes.

use super::keeper::Held;
use super::shared::Shared;
use crate::capabilities::LeaseKind;
use crate::message::MessageData;
use crate::storage::{Action, Settlement};

impl Shared {
    /// Handles a lease that ran out by core's own clock. If it is held by a connection, the server does not
    /// know: tell it.
    pub(super) fn lost_here(&self, held: &Held) {
        self.deliveries.failed(held.lease.id);
        if self.capabilities.lease.kind == LeaseKind::Connection {
            self.hand_back(held, Action::Release);
        }
    }

    /// Releases a delivery without waiting.
    pub(super) fn release(&self, held: &Held, message: &MessageData, delivery_count: Option<u32>) {
        let action = self.returned(message, delivery_count);
        self.deliveries.note(held.lease.id, &action);
        self.hand_back(held, action);
    }

    fn hand_back(&self, held: &Held, action: Action) {
        let settlement = Settlement::new(held.lease.clone(), action);
        self.settler.submit_detached(&self.exec, self.settle_lane(&held.lease.partition), settlement.into());
    }

    pub(super) async fn release_all(&self) {
        let held = self.keeper.drain();
        let settlements: Vec<_> =
            held.iter().map(|held| Settlement::new(held.lease.clone(), Action::Release)).collect();
        for held in &held {
            held.fire_lost();
        }
        for part in settlements.chunks(self.capabilities.limits.settle_batch.max(1)) {
            for error in
                self.settle_apart(part.to_vec()).await.iter().filter_map(|answer| answer.as_ref().err())
            {
                // The end of the lease releases it instead.
                tracing::debug!(%error, "a delivery could not be released at close");
            }
        }
    }
}
