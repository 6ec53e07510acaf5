//! The optional trait for keeping control entries.

use async_trait::async_trait;

use super::change::{Applied, Change};
use super::entry::{Entry, Key, Stamped};
use crate::error::Result;
use crate::inspect::Page;
use crate::lifecycle::QueueStorage;

/// The most [`Change`]s, or keys to read, in one call.
pub const MAX_CONTROL_CHANGES: usize = 100;
/// The most bytes, of keys and values together, that the changes of one call bring.
pub const MAX_CONTROL_CALL_BYTES: usize = 4 << 20;

/// Keeping small shared entries, apart from all partitions: declared by [`control`](crate::adapter::Capabilities::control).
///
/// # Time
/// Entries expire by the server's clock, to the millisecond, and each answer brings the server's time. What has expired is in no answer and in no
/// one's way, whether its place is free already or not. A storage frees it in time by itself, in bounded steps, with the calls that come.
///
/// # Durability
/// As durable as settlements. What is read was written by a change that is done; a change that is done is seen by every read that begins after it.
#[async_trait]
pub trait ControlStorage: QueueStorage {
    /// The entries under these keys, in order.
    ///
    /// Core guarantees: at most [`MAX_CONTROL_CHANGES`].
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>>;

    /// Entries whose keys begin with `prefix`, in the order of their keys. What stays meanwhile is seen exactly once over all pages. Fewer than asked
    /// for means that there are no more.
    ///
    /// Core guarantees: at most [`MAX_CONTROL_CHANGES`].
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>>;

    /// Makes changes, in order, each that finds what it expects; a later one finds what an earlier one left. One result for each, in order. No other
    /// change of an entry comes between the look at what is there and the write.
    ///
    /// Core guarantees: not empty, at most [`MAX_CONTROL_CHANGES`], values within [`MAX_CONTROL_VALUE_BYTES`](super::MAX_CONTROL_VALUE_BYTES), in all within
    /// [`MAX_CONTROL_CALL_BYTES`], and times to live in whole milliseconds.
    ///
    /// # Errors
    /// If the server cannot be asked. Then each change may have been made or not; core repeats them, since versions show which were.
    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>>;
}

const _: fn(&dyn ControlStorage) = |_| {};
