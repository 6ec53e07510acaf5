//! The entry of a call.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::Entry;
use serde::{Deserialize, Serialize};

use super::call::{Call, Outcome};
use crate::entry::{FORMAT, decode};

/// What the entry of a call holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    /// When it was entered, in milliseconds of Unix time by the server's clock.
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    method: String,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    details: Vec<(String, String)>,
}

impl Record {
    pub(super) fn new(call: &Call, now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            format: FORMAT,
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            token: call.token.clone(),
            from: call.from.clone(),
            method: call.method.clone(),
            path: call.path.clone(),
            status: None,
            queues: Vec::new(),
            details: Vec::new(),
        }
    }

    pub(super) fn of(entry: &Entry) -> Result<Self> {
        decode(entry)
    }

    pub(super) fn ended(mut self, outcome: &Outcome) -> Self {
        self.status = Some(outcome.status);
        self.queues.clone_from(&outcome.queues);
        self.details.clone_from(&outcome.details);
        self
    }

    pub(super) fn entry(self, number: u64) -> AuditEntry {
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.at_ms));
        let outcome =
            self.status.map(|status| Outcome { status, queues: self.queues, details: self.details });
        AuditEntry {
            number,
            at: at.unwrap_or(SystemTime::UNIX_EPOCH),
            token: self.token,
            from: self.from,
            method: self.method,
            path: self.path,
            outcome,
        }
    }
}

/// A call in the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Which call it is: later ones have greater numbers.
    pub number: u64,
    /// When it was entered, by the server's clock.
    pub at: SystemTime,
    /// The name of the token; `None`: whoever runs the service, where no tokens are asked for or with one that it was started with.
    pub token: Option<String>,
    /// The address that it came from, as the service saw it.
    pub from: Option<String>,
    /// The method of HTTP.
    pub method: String,
    /// What was asked for: the path, without what follows a `?`.
    pub path: String,
    /// What came of it; `None` if it is under way, or nobody lived to tell: then it may have been done or not.
    pub outcome: Option<Outcome>,
}
