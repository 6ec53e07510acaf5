//! Changes to the entries of a control store.

use std::time::Duration;

use bytes::Bytes;

use super::entry::{Entry, Key, MAX_CONTROL_VALUE_BYTES, Version};
use crate::clock::CENTURY;
use crate::error::{Error, ErrorKind, Result};

/// A change of one entry, made only if the entry is as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a change does nothing until it is applied"]
pub enum Change {
    /// Writes the entry.
    Put {
        /// The key of the entry.
        key: Key,
        /// What must be stored under the key for the change to be made.
        expect: Expect,
        /// The version of the new content; a new one for each change.
        version: Version,
        /// The content.
        value: Bytes,
        /// How long the entry is kept, counted from when the server handles the change, in whole milliseconds
        /// and at least one; `None`: until it is deleted.
        ttl: Option<Duration>,
    },
    /// Deletes the entry. If there is no entry and the change expects nothing in particular, this succeeds
    /// too.
    Delete {
        /// The key of the entry.
        key: Key,
        /// What must be stored under the key for the change to be made.
        expect: Expect,
    },
}

/// What a change requires to be stored under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Any content, or none.
    Any,
    /// No entry; an expired entry does not count.
    Absent,
    /// An entry with this version.
    Version(Version),
}

impl Change {
    /// Creates a change that writes an entry, to be kept until it is deleted.
    pub fn put(key: Key, expect: Expect, value: impl Into<Bytes>) -> Self {
        Self::Put { key, expect, version: Version::random(), value: value.into(), ttl: None }
    }

    /// Creates a change that deletes an entry.
    pub const fn delete(key: Key, expect: Expect) -> Self {
        Self::Delete { key, expect }
    }

    /// Sets how long the written entry is kept; [`Duration::MAX`] keeps it until it is deleted. Has no effect
    /// on a deletion.
    pub fn with_ttl(mut self, keep: Duration) -> Self {
        if let Self::Put { ttl, .. } = &mut self {
            *ttl = Some(keep);
        }
        self
    }

    /// The key of the entry.
    #[must_use]
    pub const fn key(&self) -> &Key {
        let (Self::Put { key, .. } | Self::Delete { key, .. }) = self;
        key
    }

    /// What must be stored under the key for the change to be made.
    #[must_use]
    pub const fn expect(&self) -> Expect {
        let (Self::Put { expect, .. } | Self::Delete { expect, .. }) = self;
        *expect
    }

    /// Returns the version that the entry will have; `None` for a deletion.
    #[must_use]
    pub const fn version(&self) -> Option<Version> {
        match self {
            Self::Put { version, .. } => Some(*version),
            Self::Delete { .. } => None,
        }
    }

    /// The number of bytes of key and value that are sent.
    pub(crate) fn bytes(&self) -> usize {
        let value = if let Self::Put { value, .. } = self { value.len() } else { 0 };
        self.key().as_str().len() + value
    }

    /// The change with its time to live rounded up to whole milliseconds; a very long one is dropped, so that
    /// the entry does not expire.
    ///
    /// # Errors
    /// If the value is too large, the time to live is zero, or the change deletes an entry that it expects to
    /// be absent.
    pub(crate) fn normalised(mut self) -> Result<Self> {
        match &mut self {
            Self::Put { key, value, ttl, .. } => {
                let bytes = value.len();
                if bytes > MAX_CONTROL_VALUE_BYTES {
                    let text =
                        format!("{key}: a value of {bytes} bytes; at most {MAX_CONTROL_VALUE_BYTES} fit");
                    return Err(Error::new(ErrorKind::TooLarge, text));
                }
                if *ttl == Some(Duration::ZERO) {
                    return Err(Error::invalid(format!("{key}: a time to live of 0: delete it instead")));
                }
                *ttl = ttl.filter(|ttl| *ttl < CENTURY).map(whole_millis);
            }
            Self::Delete { key, expect: Expect::Absent } => {
                return Err(Error::invalid(format!(
                    "{key}: what is expected to be absent cannot be deleted"
                )));
            }
            Self::Delete { .. } => {}
        }
        Ok(self)
    }
}

fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// The outcome of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// The change was made.
    Done,
    /// The change was not made; this is the current entry, if there is one.
    Conflict(Option<Entry>),
}

impl Applied {
    /// Returns whether the change was made.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The outcome of a change that may already have been made: if its own content is there, it wrote it; if
    /// a repeated deletion finds nothing, the first attempt may have deleted it.
    pub(crate) fn of_own(self, change: &Change, repeated: bool) -> Self {
        match (&self, change.version()) {
            (Self::Conflict(Some(entry)), Some(version)) if entry.version == version => Self::Done,
            (Self::Conflict(None), None) if repeated => Self::Done,
            _ => self,
        }
    }
}
