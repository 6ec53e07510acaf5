//! Where the deliveries of a stream come from and go to. It does not know what a delivery is, since
//! deliveries hold room in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::terms::Terms;
use super::turns::Turns;
use super::window::Window;
use crate::error::Result;
use crate::queue::handle::Queue;

pub(crate) type Batch<T> = Result<Vec<T>>;

/// Where the deliveries of a stream, or of [`SettlePulls`](crate::SettlePulls), come from and go to.
#[derive(Debug)]
pub(crate) struct Feed<T> {
    pub(super) queue: Queue,
    pub(super) terms: Terms,
    /// Whether settlements may bring deliveries.
    pub(super) open: AtomicBool,
    pub(super) window: Window,
    pub(super) turns: Turns<T>,
    /// Ends with the pump, even if deliveries live on.
    pub(super) batches: mpsc::WeakSender<Batch<T>>,
}

impl<T> Feed<T> {
    pub(crate) fn new(queue: Queue, terms: Terms, window: usize, batches: &mpsc::Sender<Batch<T>>) -> Self {
        Self {
            queue,
            terms,
            open: AtomicBool::new(true),
            window: Window::new(window),
            turns: Turns::new(),
            batches: batches.downgrade(),
        }
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Takes room for a delivery that arrived in another way.
    pub(crate) fn slot(self: Arc<Self>) -> WindowSlot<T> {
        self.window.take_one();
        WindowSlot::new(self)
    }

    /// Takes the free room, up to [`MOST_ROOM`], once a quarter of the window is free; or any room at all,
    /// for a consumer that has nothing left and for which no other pull is in flight.
    pub(super) async fn room(self: &Arc<Self>, alone: bool) -> Vec<WindowSlot<T>> {
        let free = self.window.take_free(alone).await;
        (0..free).map(|_| WindowSlot::new(self.clone())).collect()
    }

    /// Notes that the consumer waits and has nothing left.
    pub(crate) fn starved(&self) {
        self.window.starved();
    }
}

/// Room for one delivery in a stream's window, shared by the delivery and its settlement in flight.
#[derive(Debug)]
pub(crate) struct WindowSlot<T> {
    feed: Arc<Feed<T>>,
    passed_on: AtomicBool,
}

impl<T> WindowSlot<T> {
    fn new(feed: Arc<Feed<T>>) -> Self {
        Self { feed, passed_on: AtomicBool::new(false) }
    }

    pub(crate) fn feed(&self) -> &Arc<Feed<T>> {
        &self.feed
    }

    /// Passes the same room on to another delivery; works once.
    pub(crate) fn pass_on(&self) -> Option<Self> {
        (!self.passed_on.swap(true, Ordering::SeqCst)).then(|| Self::new(self.feed.clone()))
    }
}

impl<T> Drop for WindowSlot<T> {
    fn drop(&mut self) {
        if !*self.passed_on.get_mut() {
            self.feed.window.free_one();
        }
    }
}
