//! Changes to what a control store keeps.

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
    /// Writes it.
    Put {
        /// Which entry.
        key: Key,
        /// What has to be there.
        expect: Expect,
        /// Which content this is: new for each change.
        version: Version,
        /// The content.
        value: Bytes,
        /// How long it is kept, counted from when the server handles this; `None`: until it is deleted. In whole milliseconds, at least one.
        ttl: Option<Duration>,
    },
    /// Deletes it. If nothing is there, and nothing in particular is expected, that is done too.
    Delete {
        /// Which entry.
        key: Key,
        /// What has to be there.
        expect: Expect,
    },
}

/// What has to be under a key for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// Nothing; what has expired is nothing.
    Absent,
    /// This content.
    Version(Version),
}

impl Change {
    /// Writes an entry that is kept until it is deleted.
    pub fn put(key: Key, expect: Expect, value: impl Into<Bytes>) -> Self {
        Self::Put { key, expect, version: Version::random(), value: value.into(), ttl: None }
    }

    /// Deletes an entry.
    pub const fn delete(key: Key, expect: Expect) -> Self {
        Self::Delete { key, expect }
    }

    /// Sets how long what is written is kept; [`Duration::MAX`] is for good.
    pub fn with_ttl(mut self, keep: Duration) -> Self {
        if let Self::Put { ttl, .. } = &mut self {
            *ttl = Some(keep);
        }
        self
    }

    /// Which entry.
    #[must_use]
    pub const fn key(&self) -> &Key {
        let (Self::Put { key, .. } | Self::Delete { key, .. }) = self;
        key
    }

    /// What has to be there.
    #[must_use]
    pub const fn expect(&self) -> Expect {
        let (Self::Put { expect, .. } | Self::Delete { expect, .. }) = self;
        *expect
    }

    /// What the entry's version will be.
    #[must_use]
    pub const fn version(&self) -> Option<Version> {
        match self {
            Self::Put { version, .. } => Some(*version),
            Self::Delete { .. } => None,
        }
    }

    /// Bytes that travel.
    pub(crate) fn bytes(&self) -> usize {
        let value = if let Self::Put { value, .. } = self { value.len() } else { 0 };
        self.key().as_str().len() + value
    }

    /// With its time to live in whole milliseconds, rounded up; what would outlive everybody is kept for good.
    ///
    /// # Errors
    /// If its value is too large, it is to live for no time, or it deletes what it expects not to be there.
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

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// Made.
    Done,
    /// Not made: this is there instead, or nothing.
    Conflict(Option<Entry>),
}

impl Applied {
    /// Whether it was made.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// What a change has come to that may have been made before: who finds its own content there has written it, and who finds nothing left to delete when
    /// it asks again may have deleted it.
    pub(crate) fn of_own(self, change: &Change, repeated: bool) -> Self {
        match (&self, change.version()) {
            (Self::Conflict(Some(entry)), Some(version)) if entry.version == version => Self::Done,
            (Self::Conflict(None), None) if repeated => Self::Done,
            _ => self,
        }
    }
}
