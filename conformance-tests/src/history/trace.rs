//! A history as data: who asked what, when, and what was answered. Stored as JSON lines that people can read
//! and write.

use std::fmt::Write as _;
use std::time::Duration;

use anyqueue::{Error, ErrorKind, Headers, PartitionId, Result};
use serde::{Deserialize, Serialize};

use super::units::{is_default, is_one, ms, one, opt_ms, place};
use crate::check::Rules;

/// A history and the rules that it must obey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub(crate) head: Head,
    /// The calls, in the order in which they began.
    pub(crate) events: Vec<Event>,
}

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) rules: Rules,
    /// Kinds of operation of which at least one must have succeeded, so that the history proves something about them.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) planned: Vec<String>,
}

/// One call. Times count from the beginning of the history. No two are equal: so their order shows the order
/// within one instant of a controlled clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) process: String,
    /// How often the process had crashed or closed its client before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) instance: u32,
    #[serde(rename = "invoked_ms", with = "ms")]
    pub(crate) invoked: Duration,
    /// Missing if the call never ended because its future was dropped.
    #[serde(rename = "returned_ms", with = "opt_ms", default, skip_serializing_if = "Option::is_none")]
    pub(crate) returned: Option<Duration>,
    #[serde(flatten)]
    pub(crate) op: Op,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Op {
    Push {
        #[serde(with = "place")]
        partition: PartitionId,
        items: Vec<Pushed>,
    },
    Pull {
        #[serde(with = "place")]
        partition: PartitionId,
        max: usize,
        #[serde(rename = "wait_ms", with = "ms", default, skip_serializing_if = "is_default")]
        wait: Duration,
        #[serde(rename = "lease_ms", with = "ms")]
        lease: Duration,
        /// How many members of one group it may return.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        group_members: usize,
        /// Somebody asked the pull to finish early.
        #[serde(default, skip_serializing_if = "is_default")]
        stopped: bool,
        answer: Answer<Vec<Delivered>>,
    },
    Settle {
        items: Vec<Settled>,
    },
    Extend {
        items: Vec<Extended>,
    },
    Delete {
        #[serde(with = "place")]
        partition: PartitionId,
        items: Vec<ById<Deletion>>,
    },
    Cancel {
        #[serde(with = "place")]
        partition: PartitionId,
        items: Vec<ById<Cancellation>>,
    },
    Amend {
        #[serde(with = "place")]
        partition: PartitionId,
        #[serde(flatten)]
        change: Change,
        items: Vec<ById<Amendment>>,
    },
    Purge {
        #[serde(with = "place")]
        partition: PartitionId,
        limit: usize,
        answer: Answer<usize>,
    },
    Counts {
        #[serde(with = "place")]
        partition: PartitionId,
        answer: Answer<Numbers>,
    },
    Browse {
        #[serde(with = "place")]
        partition: PartitionId,
        /// Whether browsing began at the first message.
        #[serde(default, skip_serializing_if = "is_default")]
        from_start: bool,
        limit: usize,
        answer: Answer<Vec<Shown>>,
    },
    Pause {
        #[serde(with = "place")]
        partition: PartitionId,
        paused: bool,
        answer: Answer<()>,
    },
    Close,
    /// The process dropped its client without closing it.
    Crash,
    /// Another process reported that it holds the message.
    Took {
        message: usize,
        #[serde(rename = "lease_ms", with = "ms")]
        lease: Duration,
    },
    /// Another process reported that its removal of the message was confirmed.
    Removed {
        message: usize,
    },
    /// Everything was pulled and removed until nothing was left.
    Drained,
    Note {
        text: String,
    },
}

/// The result of one item: the answer, a failure that is known to have changed nothing, or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer<T> {
    Ok(T),
    Fail(String),
    Unknown,
    /// The call ended, but had no answer for this item.
    Missing,
}

impl<T> Answer<T> {
    pub(super) fn of(outcome: Option<Result<T>>, returned: bool) -> Self {
        match outcome {
            _ if !returned => Self::Unknown,
            Some(Ok(answer)) => Self::Ok(answer),
            Some(Err(error)) if changed_nothing(&error) => Self::Fail(error.kind().to_string()),
            Some(Err(_)) => Self::Unknown,
            None => Self::Missing,
        }
    }

    pub(crate) fn ok(&self) -> Option<&T> {
        if let Self::Ok(answer) = self { Some(answer) } else { None }
    }
}

fn changed_nothing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TooLarge | ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::Closed
    )
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pushed {
    pub(crate) message: usize,
    #[serde(flatten)]
    pub(crate) content: Content,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) answer: Answer<Push>,
}

/// What the push was to do if its deduplication key was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDuplicate {
    #[default]
    Keep,
    Replace,
    Earlier,
    Behind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Push {
    Stored,
    /// The answer says that it was stored under the id of another message.
    StoredAs(usize),
    Duplicate,
    /// Another message has its content.
    Replaced(usize),
}

/// Everything about a message except its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Content {
    /// The payload, or its length and a hash if it is long or not text.
    pub(crate) body: String,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) headers: Headers,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) task_id: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) priority: u8,
    #[serde(rename = "delay_ms", with = "opt_ms", skip_serializing_if = "is_default")]
    pub(crate) delay: Option<Duration>,
    #[serde(rename = "urgent_after_ms", with = "opt_ms", skip_serializing_if = "is_default")]
    pub(crate) urgent_after: Option<Duration>,
    #[serde(rename = "expiry_ms", with = "opt_ms", skip_serializing_if = "is_default")]
    pub(crate) expiry: Option<Duration>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) dedup_key: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) max_retries: Option<u32>,
    #[serde(rename = "max_duration_ms", with = "opt_ms", skip_serializing_if = "is_default")]
    pub(crate) max_duration: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    /// The delivery's number among all deliveries of the history; settlements refer to it.
    pub(crate) delivery: usize,
    pub(crate) message: usize,
    #[serde(flatten)]
    pub(crate) content: Content,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) count: Option<u32>,
    #[serde(rename = "lease_until_ms", with = "opt_ms", default, skip_serializing_if = "is_default")]
    pub(crate) lease_until: Option<Duration>,
    /// What is wrong with the lease's own id or partition.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) mislabelled: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub(crate) message: usize,
    /// Missing if the history does not know the lease.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) delivery: Option<usize>,
    pub(crate) action: Action,
    pub(crate) answer: Answer<Settlement>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) then: Vec<Successor>,
}

/// A message that a settlement brought. Its answer is [`Stored`](Push::Stored) if it certainly was, and a
/// failure if it certainly was not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Successor {
    #[serde(with = "place")]
    pub(crate) partition: PartitionId,
    #[serde(flatten)]
    pub(crate) pushed: Pushed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Remove,
    Release,
    Retry,
    Postpone {
        #[serde(rename = "delay_ms", with = "ms")]
        delay: Duration,
        #[serde(default, skip_serializing_if = "is_default")]
        headers: Option<Headers>,
    },
    Move {
        #[serde(with = "place")]
        to: PartitionId,
        #[serde(default, skip_serializing_if = "is_default")]
        headers: Option<Headers>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Settlement {
    Settled,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extended {
    pub(crate) message: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) delivery: Option<usize>,
    #[serde(rename = "duration_ms", with = "ms")]
    pub(crate) duration: Duration,
    pub(crate) answer: Answer<Extension>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extension {
    Extended,
    CancelRequested,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ById<T> {
    pub(crate) message: usize,
    pub(crate) answer: Answer<T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Deletion {
    Deleted,
    Leased,
    NotFound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cancellation {
    Removed,
    Requested,
    NotFound,
}

/// What an amendment was to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Change {
    #[serde(rename = "to_priority", skip_serializing_if = "is_default")]
    pub(crate) priority: Option<u8>,
    #[serde(rename = "due_ms", with = "opt_ms", skip_serializing_if = "is_default")]
    pub(crate) due: Option<Duration>,
    #[serde(rename = "to_group", skip_serializing_if = "is_default")]
    pub(crate) group: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ungroup: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) disabled: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Amendment {
    Amended,
    Leased,
    Dead,
    NotFound,
}

/// The counts of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Numbers {
    pub(crate) ready: Option<u64>,
    pub(crate) delayed: Option<u64>,
    pub(crate) leased: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) disabled: Option<u64>,
    pub(crate) dead: Option<u64>,
}

/// A message as browsing shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) message: usize,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Ready,
    Delayed,
    Leased,
    Disabled,
}

impl Trace {
    /// Reads what [`to_jsonl`](Self::to_jsonl) or a person wrote: the rules, then one line per call.
    ///
    /// # Errors
    /// Names the line that cannot be read.
    pub fn from_jsonl(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let at = |number: usize, error: serde_json::Error| format!("line {}: {error}", number + 1);
        let (number, first) = lines.next().ok_or("an empty file is no history")?;
        let head = serde_json::from_str(first).map_err(|error| at(number, error))?;
        let events =
            lines.map(|(number, line)| serde_json::from_str(line).map_err(|error| at(number, error)));
        let mut events: Vec<Event> = events.collect::<std::result::Result<_, _>>()?;
        events.sort_by_key(|event| event.invoked);
        Ok(Self { head, events })
    }

    /// Returns the history as JSON lines.
    pub fn to_jsonl(&self) -> String {
        let mut text = String::new();
        let head = serde_json::to_string(&self.head);
        let lines = self.events.iter().map(serde_json::to_string);
        for line in std::iter::once(head).chain(lines) {
            // Plain data with string keys: JSON can represent all of it.
            let _ = writeln!(text, "{}", line.unwrap_or_default());
        }
        text
    }
}
