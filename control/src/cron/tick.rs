//! The message that keeps a schedule going, and the ids that are the same whichever process makes them.

use std::time::{Duration, SystemTime};

use anyqueue::{Delivery, Error, ErrorKind, MessageData, MessageId, Result, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::entry::FORMAT;

/// The partition that holds one message for each schedule, due when the schedule is due next.
pub const TICKS: &str = "anyqueue.cron";

/// The content of a tick. It never changes: the next time has a tick of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    format: u32,
    pub(super) name: String,
    /// The content of the schedule that the tick belongs to. A tick of another content does nothing.
    pub(super) revision: String,
    /// The first time that has not been dealt with, in milliseconds of Unix time.
    pub(super) at_ms: u64,
    /// The task that was pushed together with this tick. The entry may name it later, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) earlier: Option<String>,
}

impl Tick {
    pub(super) fn new(name: &str, revision: &str, at: SystemTime) -> Self {
        let (name, revision) = (name.to_owned(), revision.to_owned());
        Self { format: FORMAT, name, revision, at_ms: millis(at), earlier: None }
    }

    /// The tick, which names this task as the earlier one.
    pub(super) fn behind(mut self, task: Option<MessageId>) -> Self {
        self.earlier = task.map(|task| task.to_string());
        self
    }

    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) if a newer release wrote it, [`Corrupt`](ErrorKind::Corrupt)
    /// if it is not a tick.
    pub(super) fn of(delivery: &Delivery) -> Result<Self> {
        #[derive(Deserialize)]
        struct Formatted {
            format: u32,
        }
        let damaged = |error: serde_json::Error| {
            Error::new(ErrorKind::Corrupt, format!("a message in {TICKS} is not the tick of a schedule"))
                .with_source(error)
        };
        let Formatted { format } = serde_json::from_slice(delivery.payload()).map_err(damaged)?;
        if format > FORMAT {
            let text = format!("a tick is of a newer release (format {format}): upgrade");
            return Err(Error::new(ErrorKind::Incompatible, text));
        }
        serde_json::from_slice(delivery.payload()).map_err(damaged)
    }

    pub(super) fn at(&self) -> SystemTime {
        time(self.at_ms)
    }

    pub(super) fn id(&self) -> MessageId {
        id("tick", &self.name, &self.revision, self.at())
    }

    /// The tick as a message that is due after this delay. Its key allows at most one tick for each content
    /// of a schedule. A settlement hands the key on, so that it is always taken.
    pub(super) fn message(&self, delay: Duration) -> Result<MessageData> {
        let payload = crate::entry::encode(self)?;
        // If ends are kept, the ends of ticks would hide those of tasks.
        Ok(MessageData::with_id(self.id(), payload)
            .with_dedup_key(self.revision.as_str())
            .with_task_id(format!("tick/{}", self.name))
            .with_header(header::TASK_KEEP_SUCCESS, "0s")
            .with_header(header::TASK_KEEP_FAILURE, "0s")
            .with_delay(delay))
    }
}

/// The id of what a schedule pushes at a time (`UUIDv8`), so that a repetition is recognized as such.
pub(super) fn task_id(name: &str, revision: &str, at: SystemTime) -> MessageId {
    id("task", name, revision, at)
}

fn id(what: &str, name: &str, revision: &str, at: SystemTime) -> MessageId {
    // No part holds a control character, so the parts cannot run into each other.
    let text = format!("{what}\n{name}\n{revision}\n{}", millis(at));
    let hash = Sha256::digest(text.as_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
    MessageId::from_bytes(*uuid::Builder::from_custom_bytes(bytes).as_uuid().as_bytes())
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_for_all_and_another_for_each_time_content_and_name() {
        let at = time(1_700_000_000_000);
        let later = at + Duration::from_secs(1);
        let ids = [
            task_id("a", "r", at),
            task_id("a", "r", later),
            task_id("a", "s", at),
            task_id("b", "r", at),
            Tick::new("a", "r", at).id(),
        ];
        for (place, id) in ids.iter().enumerate() {
            assert!(!ids[..place].contains(id));
            assert_eq!((id.as_bytes()[6] >> 4, id.as_bytes()[8] >> 6), (8, 2), "a UUIDv8");
        }
        assert_eq!(task_id("a", "r", at), ids[0]);
    }
}
