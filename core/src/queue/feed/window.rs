//! How much of a stream's window is free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The most room that one pull of a stream takes: the room of a window without a bound is taken bit by bit.
const MOST_ROOM: usize = 16_384;

/// How much of a stream's window is free.
///
/// Not a semaphore: the pump waits for a quarter *or*, when the consumer has nothing left, for any room at all, and a fair
/// semaphore would let the first wish block the second.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    used: AtomicUsize,
    /// Whether the consumer waits and has nothing left.
    starved: AtomicBool,
    changed: Notify,
}

impl Window {
    pub(super) fn new(size: usize) -> Self {
        Self { size, used: AtomicUsize::new(0), starved: AtomicBool::new(false), changed: Notify::new() }
    }

    pub(super) fn starved(&self) {
        self.starved.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(super) fn fed(&self) {
        self.starved.store(false, Ordering::SeqCst);
    }

    /// Only the pump calls this; others pass on the room that they have.
    pub(super) async fn take_free(&self, alone: bool) -> usize {
        loop {
            let free = self.size - self.used.load(Ordering::SeqCst);
            if free > 0 && (free >= self.size.div_ceil(4) || alone && self.starved.load(Ordering::SeqCst)) {
                let taken = free.min(MOST_ROOM);
                self.used.fetch_add(taken, Ordering::SeqCst);
                return taken;
            }
            // A change since the look above is remembered, so this does not sleep through it.
            self.changed.notified().await;
        }
    }

    /// Takes room for a delivery that arrived in another way.
    pub(super) fn take_one(&self) {
        self.used.fetch_add(1, Ordering::SeqCst);
    }

    /// Frees the room of one delivery.
    pub(super) fn free_one(&self) {
        self.used.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_one();
    }
}
