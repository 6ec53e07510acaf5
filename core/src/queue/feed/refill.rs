//! Deliveries that settlements bring to a stream, handed over in the order in which they were claimed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, RwLockReadGuard, RwLockWriteGuard};

use crate::partition::PartitionId;
use crate::queue::delivery::{Delivery, HandlerFeed, Slot};
use crate::storage::{Action, PullRequest, RawDelivery, Settlement};

/// One call's turn to bring a stream's next deliveries.
pub(crate) struct Refill<'a> {
    feed: &'a Arc<HandlerFeed>,
    held: OwnedSemaphorePermit,
    /// Its number, once it has begun and until its result has been heard.
    number: Option<u64>,
    _turn: Turn<'a>,
}

#[expect(dead_code, reason = "held, not looked at")]
enum Turn<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl HandlerFeed {
    /// Returns a pull for as many deliveries as are being settled, to be made together with their
    /// settlements. `None` while the pump itself waits for messages, as there is nothing to bring then, and
    /// while a consumer that does not poll has enough.
    pub(crate) fn refill(
        self: &Arc<Self>,
        settling: usize,
        settlements: &[Settlement],
    ) -> Option<Refill<'_>> {
        let shared = &self.queue.0;
        if !shared.capabilities.exchange || !self.open.load(Ordering::SeqCst) || shared.closing.is_cancelled()
        {
            return None;
        }
        self.batches.upgrade().filter(|batches| batches.capacity() > 0)?;
        let stays = |settlement: &Settlement| {
            let here = |partition: &PartitionId| *partition == self.terms.partition;
            here(&settlement.lease.partition)
                && !matches!(settlement.action, Action::Move { .. })
                && settlement.then.iter().all(|successor| here(&successor.partition))
        };
        let turn = if settlements.iter().all(stays) {
            Turn::Shared(self.turns.turn.try_read().ok()?)
        } else {
            // Settlements that concern other partitions may take calls of their own, so the claim may be made
            // some time after the beginning.
            Turn::Alone(self.turns.turn.try_write().ok()?)
        };
        let free = shared.slots.available_permits();
        let most = settling.min(shared.capabilities.limits.pull_batch.max(1)).min(free);
        let held = Arc::clone(&shared.slots).try_acquire_many_owned(u32::try_from(most).ok()?).ok()?;
        (most > 0).then_some(Refill { feed: self, held, number: None, _turn: turn })
    }

    pub(super) fn batch(&self, handlers: Vec<Delivery>, room: Vec<Slot>) -> Vec<Delivery> {
        // A delivery without a slot (if the server returned too many) is dropped, and so released.
        let batch: Vec<_> =
            handlers.into_iter().zip(room).map(|(handler, slot)| handler.with_window(slot)).collect();
        // A consumer that gets nothing (because everything had expired, say) is as starved as before.
        if !batch.is_empty() {
            self.window.fed();
        }
        batch
    }

    /// Hands over what a call brought, once all calls that began before it have been heard.
    fn hear(&self, number: u64, batch: Vec<Delivery>) {
        let mut refused = Vec::new();
        let mut begun = self.turns.begun();
        begun.answered(number, batch);
        while let Some(batch) = begun.next_heard() {
            if let Some(batches) = self.batches.upgrade().filter(|_| !batch.is_empty()) {
                // Refused if the stream is gone or nobody polls it: dropping the deliveries releases their
                // messages.
                refused.extend(batches.try_send(Ok(batch)).err());
            }
        }
        drop(begun);
    }
}

impl<'a> Refill<'a> {
    pub(crate) fn partition(&self) -> &'a PartitionId {
        &self.feed.terms.partition
    }

    pub(crate) fn request(&self) -> PullRequest {
        PullRequest::new(self.held.num_permits(), Duration::ZERO, self.feed.terms.lease)
    }

    /// Makes the call. It begins under the lock that assigns its number, so that the numbers are in the order
    /// in which the calls begin.
    pub(crate) async fn made<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let first = std::future::poll_fn(|cx| {
            let mut begun = self.feed.turns.begun();
            self.number = Some(begun.begin());
            Poll::Ready(call.as_mut().poll(cx))
        });
        match first.await {
            Poll::Ready(answer) => answer,
            Poll::Pending => call.await,
        }
    }

    /// Hands over the deliveries, in the room of those that were settled.
    pub(crate) fn deliver(mut self, deliveries: Vec<RawDelivery>, room: Vec<Slot>) {
        let Some(number) = self.number.take_if(|_| !deliveries.is_empty()) else { return };
        let handlers = self.feed.queue.0.accept(&self.feed.terms, deliveries);
        if let Some(used) = self.held.split(handlers.len()) {
            used.forget(); // each handler gives its slot back itself
        }
        self.feed.hear(number, self.feed.batch(handlers, room));
    }
}

/// However the call ended, those that began after it no longer wait for it.
impl Drop for Refill<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.feed.hear(number, Vec::new());
        }
    }
}
