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
    /// When the call was entered, in milliseconds of Unix time by the server's clock.
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

/// A call in the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The number of the call: later calls have greater numbers.
    pub number: u64,
    /// When the call was entered, by the server's clock.
    pub at: SystemTime,
    /// The name of the token; `None` for the operator of the service: either the service asks for no tokens,
    /// or the call had the token that the service was started with.
    pub token: Option<String>,
    /// The address of the client, as the service saw it.
    pub from: Option<String>,
    /// The HTTP method.
    pub method: String,
    /// The path of the request, without the query.
    pub path: String,
    /// The outcome; `None` if the call is under way, or if the service died before it could say: then the
    /// action may have been done or not.
    pub outcome: Option<Outcome>,
}
