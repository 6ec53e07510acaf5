//! Whose turn it is to claim for a stream, so that deliveries can be handed over in the order in which they
//! were claimed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{RwLock, RwLockWriteGuard};

/// Whose turn it is to claim for a stream.
#[derive(Debug)]
pub(super) struct Turns<T> {
    /// The pump's pulls hold it exclusively. Calls that settle as well may share it:
    /// [`exchange`](crate::adapter::PullQueueStorage::exchange) guarantees that calls that begin one after
    /// another take effect in that order.
    pub(super) turn: RwLock<()>,
    begun: Mutex<Calls<T>>,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Self {
        Self {
            turn: RwLock::default(),
            begun: Mutex::new(Calls { last: 0, heard: 0, early: BTreeMap::new() }),
        }
    }

    pub(super) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().await
    }

    pub(super) fn begun(&self) -> MutexGuard<'_, Calls<T>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls that settle and claim, numbered in the order in which they begin.
#[derive(Debug)]
pub(super) struct Calls<T> {
    last: u64,
    /// All calls up to this number have been heard.
    heard: u64,
    /// What was brought by calls that returned before earlier ones.
    early: BTreeMap<u64, Vec<T>>,
}

impl<T> Calls<T> {
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn answered(&mut self, number: u64, brought: Vec<T>) {
        self.early.insert(number, brought);
    }

    pub(super) fn next_heard(&mut self) -> Option<Vec<T>> {
        let batch = self.early.remove(&(self.heard + 1))?;
        self.heard += 1;
        Some(batch)
    }
}
