//! The optional trait for keeping control entries.

use async_trait::async_trait;

use super::change::{Applied, Change};
use super::entry::{Entry, Key, Stamped};
use crate::error::Result;
use crate::inspect::Page;
use crate::lifecycle::QueueStorage;

/// The maximum number of [`Change`]s, or of keys to read, in one call.
pub const MAX_CONTROL_CHANGES: usize = 100;
/// The maximum number of bytes, of keys and values together, in the changes of one call.
pub const MAX_CONTROL_CALL_BYTES: usize = 4 << 20;

/// Keeping small shared entries, apart from all partitions. Declared by
/// [`control`](crate::adapter::Capabilities::control).
///
/// # Time
/// Entries expire by the server's clock, to the millisecond, and each result brings the server's time. An
/// expired entry is never returned and never in the way, whether its space has been freed or not. A storage
/// frees that space in time by itself, in bounded steps, as part of the calls that it gets.
///
/// # Durability
/// Entries are as durable as settlements. A read returns only content written by completed changes, and a
/// read that begins after a change has completed sees that change.
#[async_trait]
pub trait ControlStorage: QueueStorage {
    /// Returns the entries under these keys, in order.
    ///
    /// Core guarantees: at most [`MAX_CONTROL_CHANGES`].
    ///
    /// # Errors
    /// The server's error.
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>>;

    /// Returns the entries whose keys begin with `prefix`, in the order of their keys. An entry that stays
    /// meanwhile is seen exactly once over all pages. Fewer entries than asked for means that there are no
    /// more.
    ///
    /// Core guarantees: at most [`MAX_CONTROL_CHANGES`].
    ///
    /// # Errors
    /// The server's error.
    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>>;

    /// Makes changes in order, each one only if it finds what it expects; a later change sees what an earlier
    /// one left. Returns one result per change, in order. No other change of the same entry comes between the
    /// check and the write.
    ///
    /// Core guarantees: at least one change and at most [`MAX_CONTROL_CHANGES`], values within
    /// [`MAX_CONTROL_VALUE_BYTES`](super::MAX_CONTROL_VALUE_BYTES), all changes together within
    /// [`MAX_CONTROL_CALL_BYTES`], and times to live in whole milliseconds.
    ///
    /// # Errors
    /// The server's error. Each change may then have been made or not; core repeats the call, since versions
    /// show which were made.
    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>>;
}

const _: fn(&dyn ControlStorage) = |_| {};
