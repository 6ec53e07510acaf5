//! Messages that cannot be read, and faults in what happens to them. The correct backend beneath keeps them
//! undamaged.

use anyqueue::adapter::{Action, RawDelivery, Settlement};
use anyqueue::{Browsed, Error, ErrorKind, MessageData, Result};
use anyqueue_conformance::Fault;

use crate::basic::Basic;

impl Basic {
    /// Returns deliveries as a backend would that has stored damaged messages.
    pub(crate) async fn as_stored(&self, mut got: Vec<RawDelivery>) -> Result<Vec<RawDelivery>> {
        let corrupted = self.shared.lock().corrupted.clone();
        let is_damaged = |delivery: &RawDelivery| corrupted.contains(&delivery.lease.id);
        if !got.iter().any(is_damaged) {
            return Ok(got);
        }
        match self.fault {
            Some(Fault::UnreadableFailsPull) => return Err(unreadable()),
            Some(Fault::UnreadableComesForever) => got.retain(|delivery| !is_damaged(delivery)),
            Some(Fault::UnreadableDropped) => {
                let (damaged, right): (Vec<_>, Vec<_>) = got.into_iter().partition(is_damaged);
                let removals: Vec<_> = damaged
                    .into_iter()
                    .map(|delivery| Settlement::new(delivery.lease, Action::Remove))
                    .collect();
                self.inner.settle(&removals).await;
                return Ok(right);
            }
            _ => {}
        }
        for delivery in got.iter_mut().filter(|delivery| is_damaged(delivery)) {
            let dead = delivery.lease.partition.is_dead_letters();
            delivery.message = damaged(&delivery.message, dead && self.is(Fault::UnreadableLosesBytes));
            delivery.unreadable = Some(unreadable());
            if self.is(Fault::UnreadableNotCounted) {
                delivery.delivery_count = Some(1);
            }
        }
        Ok(got)
    }

    /// Returns a page as such a backend would show it.
    pub(crate) fn page_as_stored(&self, mut page: Vec<Browsed>) -> Result<Vec<Browsed>> {
        let corrupted = self.shared.lock().corrupted.clone();
        for shown in page.iter_mut().filter(|shown| corrupted.contains(&shown.message.id())) {
            if self.is(Fault::UnreadableFailsPage) {
                return Err(unreadable());
            }
            shown.message = damaged(&shown.message, false);
            shown.unreadable = Some(unreadable());
        }
        Ok(page)
    }
}

fn unreadable() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored message does not parse")
}

fn damaged(message: &MessageData, empty: bool) -> MessageData {
    let bytes = if empty { Vec::new() } else { [b"\xF6AQ\x01\xFF", message.payload()].concat() };
    MessageData::with_id(message.id(), bytes).with_headers(message.headers().clone())
}
