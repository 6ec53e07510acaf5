//! The entries of a control store.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::error::{Error, Result};

/// The maximum length of a [`Key`], in bytes.
pub const MAX_CONTROL_KEY_BYTES: usize = 512;
/// The maximum length of the value of an [`Entry`], in bytes.
pub const MAX_CONTROL_VALUE_BYTES: usize = 256 << 10;

/// The key of an entry: 1 to [`MAX_CONTROL_KEY_BYTES`] bytes of UTF-8 without control characters. Keys are
/// ordered by their bytes. By convention their parts are separated by `/`, as in `worker/host-4711`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the key is empty, too long, or contains a control
    /// character.
    pub fn new(key: impl AsRef<str>) -> Result<Self> {
        let key = key.as_ref();
        if key.is_empty() || key.len() > MAX_CONTROL_KEY_BYTES {
            let length = key.len();
            return Err(Error::invalid(format!(
                "a key of {length} bytes: give it 1 to {MAX_CONTROL_KEY_BYTES}"
            )));
        }
        if key.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the key {key:?} has a control character: leave it out, or encode it"
            )));
        }
        Ok(Self(key.into()))
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Distinguishes one content of an entry from every other that it had or will have, even after the entry was
/// deleted and written again. The writer draws it at random, so that a server restored from a backup does not
/// hand out the same version again, and a writer that repeats a write recognises its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// Draws a new version.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u64(1..))
    }

    /// Creates a version from the number that [`get`](Self::get) returned.
    #[must_use]
    pub const fn from_u64(version: u64) -> Self {
        Self(version)
    }

    /// Returns the version as a number, for storing it.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An entry: what is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// The version of its content.
    pub version: Version,
    /// The content, at most [`MAX_CONTROL_VALUE_BYTES`].
    pub value: Bytes,
    /// When it expires, by the server's clock, to the millisecond; `None`: never.
    pub expires_at: Option<SystemTime>,
}

impl Entry {
    /// Creates an entry that does not expire.
    pub fn new(key: Key, version: Version, value: impl Into<Bytes>) -> Self {
        Self { key, version, value: value.into(), expires_at: None }
    }

    /// Sets [`expires_at`](Self::expires_at).
    #[must_use]
    pub fn with_expires_at(mut self, expires_at: Option<SystemTime>) -> Self {
        self.expires_at = expires_at;
        self
    }
}

/// A result, and the time by the server's clock when it was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped<T> {
    /// The server's time, to the millisecond.
    pub now: SystemTime,
    /// The result.
    pub value: T,
}

impl<T> Stamped<T> {
    /// Creates a result that was returned at this time.
    pub const fn new(now: SystemTime, value: T) -> Self {
        Self { now, value }
    }

    /// Converts the result, keeping the time.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Stamped<U> {
        Stamped { now: self.now, value: map(self.value) }
    }
}
