//! What settlements bring to a stream, handed over in the order in which it was claimed.

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
    /// Its number, while it was begun and not heard of.
    number: Option<u64>,
    _turn: Turn<'a>,
}

#[expect(dead_code, reason = "held, not looked at")]
enum Turn<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl HandlerFeed {
    /// A pull for as many deliveries as are being settled, to be made with their settlements. None while the pump itself is
    /// waiting for messages, as there is nothing to bring then, and while a consumer that does not look has enough.
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
            // What concerns other partitions may take calls of its own, and then the claim is made some time after the beginning.
            Turn::Alone(self.turns.turn.try_write().ok()?)
        };
        let free = shared.slots.available_permits();
        let most = settling.min(shared.capabilities.limits.pull_batch.max(1)).min(free);
        let held = Arc::clone(&shared.slots).try_acquire_many_owned(u32::try_from(most).ok()?).ok()?;
        (most > 0).then_some(Refill { feed: self, held, number: None, _turn: turn })
    }

    pub(super) fn batch(&self, handlers: Vec<Delivery>, room: Vec<Slot>) -> Vec<Delivery> {
        // A handler without a slot, should the server have answered too many, is dropped: released.
        let batch: Vec<_> =
            handlers.into_iter().zip(room).map(|(handler, slot)| handler.with_window(slot)).collect();
        // A consumer that gets nothing (all had expired, say) is as starved as before.
        if !batch.is_empty() {
            self.window.fed();
        }
        batch
    }

    /// Hands over what a call brought, once all that were begun before it have been heard of.
    fn hear(&self, number: u64, batch: Vec<Delivery>) {
        let mut refused = Vec::new();
        let mut begun = self.turns.begun();
        begun.answered(number, batch);
        while let Some(batch) = begun.next_heard() {
            if let Some(batches) = self.batches.upgrade().filter(|_| !batch.is_empty()) {
                // Refused if the stream is gone or nobody looks at it: the handlers give their messages back.
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

    /// Makes the call. It is begun under the lock that gives its number, so that the numbers are in the order of the beginnings.
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

    /// Hands over what came, into the room of what was settled.
    pub(crate) fn deliver(mut self, deliveries: Vec<RawDelivery>, room: Vec<Slot>) {
        let Some(number) = self.number.take_if(|_| !deliveries.is_empty()) else { return };
        let handlers = self.feed.queue.0.accept(&self.feed.terms, deliveries);
        if let Some(used) = self.held.split(handlers.len()) {
            used.forget(); // each handler gives its slot back itself
        }
        self.feed.hear(number, self.feed.batch(handlers, room));
    }
}

/// Whatever became of the call: those begun after it wait no longer.
impl Drop for Refill<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.feed.hear(number, Vec::new());
        }
    }
}
