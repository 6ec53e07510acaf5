//! The entry of a token.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::Entry;
use serde::{Deserialize, Serialize};

use super::rights::Rights;
use super::secret::Secret;
use crate::entry::{FORMAT, decode};

/// The longest validity of a token that expires.
pub(super) const MAX_VALID: Duration = Duration::from_hours(24 * 365 * 100);

/// What the entry of a token holds, which is not the token itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    /// SHA-256 of the token, in hexadecimal digits.
    sha256: String,
    #[serde(flatten)]
    rights: Rights,
    created_ms: u64,
    /// Until when the token is valid, in milliseconds of Unix time by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

impl Record {
    pub(super) fn new(
        rights: &Rights,
        secret: &Secret,
        now: SystemTime,
        expires: Option<SystemTime>,
    ) -> Self {
        Self {
            format: FORMAT,
            sha256: secret.digest(),
            rights: rights.clone(),
            created_ms: millis(now),
            expires_ms: expires.map(millis),
        }
    }

    pub(super) fn of(entry: &Entry) -> Result<Self> {
        decode(entry)
    }

    pub(super) fn is_of(&self, secret: &Secret) -> bool {
        secret.has_digest(&self.sha256)
    }

    pub(super) fn info(&self, name: &str) -> TokenInfo {
        let at = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        TokenInfo {
            name: name.to_owned(),
            rights: self.rights.clone(),
            created_at: at(self.created_ms).unwrap_or(SystemTime::UNIX_EPOCH),
            // A time that cannot be represented counts as past: in doubt the token grants nothing.
            expires_at: self.expires_ms.map(|ms| at(ms).unwrap_or(SystemTime::UNIX_EPOCH)),
            fingerprint: self.sha256.clone(),
        }
    }
}

/// A token as its entry describes it, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// The name of the token.
    pub name: String,
    /// What the token may do.
    pub rights: Rights,
    /// When it was created, by the server's clock.
    pub created_at: SystemTime,
    /// Until when the token is valid, by the server's clock; `None` if until it is deleted.
    pub expires_at: Option<SystemTime>,
    fingerprint: String,
}

impl TokenInfo {
    /// Returns whether the token has expired, at this time of the server.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }

    /// Distinguishes this token from one that was created later under the same name. It grants nothing.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
