//! What is pushed: identity, payload, headers and options.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{Error, Result};

/// Headers of a message: names and values, both any Unicode text, kept byte for byte and case-sensitive.
///
/// Names that begin with [`RESERVED_HEADER_PREFIX`] belong to anyqueue and are refused at push.
pub type Headers = BTreeMap<String, String>;

/// Header names that begin like this are written by anyqueue only (see [`header`]).
pub const RESERVED_HEADER_PREFIX: &str = "anyqueue-";

/// Names of the headers that anyqueue itself writes.
pub mod header {
    /// On a dead letter: why it died.
    pub const DEAD_REASON: &str = "anyqueue-dead-reason";
    /// On a dead letter: when it died, RFC 3339 in UTC.
    pub const DEAD_AT: &str = "anyqueue-dead-at";
    /// On a dead letter: its delivery count when it died, if the backend counts.
    pub const DEAD_DELIVERIES: &str = "anyqueue-dead-deliveries";
    /// On a dead letter: how many attempts had been made when it died, the last one included, as far as they are known.
    pub const DEAD_ATTEMPTS: &str = "anyqueue-dead-attempts";
    /// On a message that was put back from dead letters: when that run of the redrive began, RFC 3339 in UTC, with digits
    /// below the millisecond that tell runs apart. Its expiry is no longer enforced.
    pub const REDRIVEN_AT: &str = "anyqueue-redriven-at";
    /// On a message that came more often than its limit of deliveries allows, where the server counts releases too: how many of its
    /// deliveries are taken for releases.
    pub const RELEASED: &str = "anyqueue-released";
    /// On a message that something other than anyqueue put into the queue: the server's own id for it.
    pub const FOREIGN_ID: &str = "anyqueue-foreign-id";
    /// On a message that was put back from dead letters: how often, so that a later end of it outranks an earlier one.
    pub const GENERATION: &str = "anyqueue-generation";
    /// The kind of task, which selects its handler. Written by whoever pushes; a worker reads it.
    pub const TASK_KIND: &str = "task-kind";
    /// Failed attempts so far, as a worker counts them.
    pub const TASK_ATTEMPTS: &str = "task-attempts";
    /// The last errors, as a worker notes them.
    pub const TASK_ERRORS: &str = "task-errors";
    /// For how long the end of this task is kept if it succeeds, as in `36h` or `7d`; `0s` keeps nothing, `forever` keeps it until it is deleted.
    /// Goes before [`Keep`](crate::Keep).
    pub const TASK_KEEP_SUCCESS: &str = "task-keep-success";
    /// As [`TASK_KEEP_SUCCESS`], if it ends otherwise.
    pub const TASK_KEEP_FAILURE: &str = "task-keep-failure";
    /// W3C trace context of the pusher (<https://www.w3.org/TR/trace-context/>).
    pub const TRACEPARENT: &str = "traceparent";
}

/// A message's identity: a `UUIDv7` made where the message is made; it survives copies, death, redrive and moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A new, unique id (`UUIDv7`: ids made later by one process sort later).
    #[allow(clippy::new_without_default, reason = "a default that differs each time surprises")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id with these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id for a message that something other than anyqueue put there: derived from the server's own id, so that
    /// each delivery of it has the same one (`UUIDv8`, RFC 9562 section 5.8: 128-bit FNV-1a of the text).
    pub fn from_foreign(server_id: &str) -> Self {
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let hash = server_id.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
        Self(uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({})", self.0)
    }
}

impl FromStr for MessageId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|e| Error::invalid("a message id is a UUID, as push returned it").with_source(e))
    }
}

/// A moment, said either relative to the push or as a time of day.
///
/// Storages only ever see [`In`](When::In): core turns a time of day into the remaining duration at push, so a client
/// whose clock is wrong disturbs nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after the push, by the server's clock.
    In(Duration),
    /// At this time, by the pusher's clock; the past means at once.
    At(SystemTime),
}

impl When {
    /// How long from `now` on; zero for the past.
    pub fn from_now(self, now: SystemTime) -> Duration {
        match self {
            Self::In(duration) => duration,
            Self::At(time) => time.duration_since(now).unwrap_or_default(),
        }
    }
}

/// What a pusher may ask for. A backend that lacks a thing refuses it with `Unsupported`, before storing anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Level, higher is more urgent; from 0 (the default) to the backend's levels − 1.
    pub priority: u8,
    /// Not delivered before this moment.
    pub delay: Option<When>,
    /// Of the highest level from this moment on, however it was pushed. Among its equals it keeps its place, and it is not delivered before
    /// its [`delay`](Self::delay) is over. It is about the waiting: what is delivered does not tell it.
    pub urgent_after: Option<When>,
    /// Not handed to a handler after this moment.
    pub expiry: Option<When>,
    /// Members of a group are handed out one at a time, in push order. At most [`MAX_KEY_BYTES`] bytes.
    pub group: Option<Arc<str>>,
    /// While a message with this key lives in the partition, pushing another returns `Duplicate`. At most [`MAX_KEY_BYTES`] bytes.
    ///
    /// On a backend that declares a [`Window`](crate::adapter::Dedup::Window), as a FIFO queue of SQS does, what is pushed with the key within so long after
    /// the first push is dropped, also if the first is done, and may be answered as `Stored`.
    pub dedup_key: Option<Arc<str>>,
    /// What becomes of this message if the key is taken.
    pub on_duplicate: OnDuplicate,
    /// For the worker: how often a failed task is tried again.
    pub max_retries: Option<u32>,
    /// For the worker: how long one run of the task may take.
    pub max_duration: Option<Duration>,
}

/// What a push does whose deduplication key another message of the partition has.
///
/// A message that a consumer holds is never changed. One that waits keeps its id, its place and all its options, whatever those of the new one
/// are; [`Earlier`](Self::Earlier) alone changes when it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnDuplicate {
    /// Nothing: the message that is there stays as it is, and the push returns [`Duplicate`](crate::PushOutcome::Duplicate).
    #[default]
    Keep,
    /// If the one that is there waits, it gets the payload, the headers, the task id and the session id of the new one, and the push returns
    /// [`Replaced`](crate::PushOutcome::Replaced). So the last push of a key wins, and its place is that of the first.
    Replace,
    /// As [`Replace`](Self::Replace) if the one that is there would be due later than the new one, which then is due when the new one would be; else
    /// as [`Keep`](Self::Keep).
    Earlier,
    /// If the one that is there is held by a consumer, the new one is stored all the same, and takes over the key: so something that has changed
    /// during a run is followed by another run, and at most one waits. Else as [`Keep`](Self::Keep). The two may run at once; members of one
    /// group do not.
    Behind,
}

/// The longest task id, session id, group or deduplication key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// One message to push. Made by [`MessageData::new`], refined by its methods.
///
/// The id is made here. Pushing the *same* `MessageData` (or a clone) again is a repetition of one message, not a
/// second message: backends with unique ids return `Duplicate`. For a second message make another one.
///
/// ```
/// use anyqueue::MessageData;
/// use std::time::Duration;
/// let message = MessageData::new(b"cat.png")
///     .with_task_id("thumbnail of cat")
///     .with_header("content-type", "image/png")
///     .with_priority(3)
///     .with_delay(Duration::from_secs(5));
/// assert_eq!(message.payload(), b"cat.png");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct MessageData(Arc<Parts>);

/// Shared, so that a message is cheap to hand on and to keep; a builder's method copies them only if somebody else has them.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    id: MessageId,
    task_id: Option<Arc<str>>,
    session_id: Option<Arc<str>>,
    payload: Bytes,
    headers: Headers,
    options: TaskOptions,
}

impl MessageData {
    /// A message with this payload, a new id, no headers and default options.
    pub fn new(payload: impl AsRef<[u8]>) -> Self {
        Self::from_bytes(Bytes::copy_from_slice(payload.as_ref()))
    }

    /// As [`new`](Self::new), without copying the payload.
    pub fn from_bytes(payload: impl Into<Bytes>) -> Self {
        Self::with_id(MessageId::new(), payload)
    }

    /// For adapters that decode a stored message, and for repeating a push across restarts of the pusher.
    pub fn with_id(id: MessageId, payload: impl Into<Bytes>) -> Self {
        Self(Arc::new(Parts {
            id,
            task_id: None,
            session_id: None,
            payload: payload.into(),
            headers: Headers::new(),
            options: TaskOptions::default(),
        }))
    }

    /// The parts, for writing.
    fn parts(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    /// Names the task, for people and logs; not a key, need not be unique.
    pub fn with_task_id(mut self, task_id: impl Into<Arc<str>>) -> Self {
        self.parts().task_id = Some(task_id.into());
        self
    }

    /// Names the session the task belongs to.
    pub fn with_session_id(mut self, session_id: impl Into<Arc<str>>) -> Self {
        self.parts().session_id = Some(session_id.into());
        self
    }

    /// Adds or replaces one header.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parts().headers.insert(name.into(), value.into());
        self
    }

    /// Replaces all headers.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.parts().headers = headers;
        self
    }

    /// Replaces all options.
    pub fn with_options(mut self, options: TaskOptions) -> Self {
        self.parts().options = options;
        self
    }

    /// See [`TaskOptions::priority`].
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.parts().options.priority = priority;
        self
    }

    /// Not delivered before this long after the push.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.parts().options.delay = Some(When::In(delay));
        self
    }

    /// Not delivered before this time.
    pub fn with_not_before(mut self, time: SystemTime) -> Self {
        self.parts().options.delay = Some(When::At(time));
        self
    }

    /// Of the highest level once this long has passed since the push, if it still waits then. See [`TaskOptions::urgent_after`].
    pub fn with_urgent_after(mut self, wait: Duration) -> Self {
        self.parts().options.urgent_after = Some(When::In(wait));
        self
    }

    /// Of the highest level from this time on, if it still waits then. See [`TaskOptions::urgent_after`].
    pub fn with_urgent_at(mut self, time: SystemTime) -> Self {
        self.parts().options.urgent_after = Some(When::At(time));
        self
    }

    /// Not handed to a handler once this long has passed since the push.
    pub fn with_time_to_live(mut self, time_to_live: Duration) -> Self {
        self.parts().options.expiry = Some(When::In(time_to_live));
        self
    }

    /// Not handed to a handler after this time.
    pub fn with_expires_at(mut self, time: SystemTime) -> Self {
        self.parts().options.expiry = Some(When::At(time));
        self
    }

    /// See [`TaskOptions::group`].
    pub fn with_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.parts().options.group = Some(group.into());
        self
    }

    /// See [`TaskOptions::dedup_key`].
    pub fn with_dedup_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.parts().options.dedup_key = Some(key.into());
        self
    }

    /// See [`TaskOptions::on_duplicate`].
    pub fn with_on_duplicate(mut self, on_duplicate: OnDuplicate) -> Self {
        self.parts().options.on_duplicate = on_duplicate;
        self
    }

    /// See [`TaskOptions::max_retries`].
    pub fn with_max_retries(mut self, max_retries: u32) -> Self {
        self.parts().options.max_retries = Some(max_retries);
        self
    }

    /// See [`TaskOptions::max_duration`].
    pub fn with_max_duration(mut self, max_duration: Duration) -> Self {
        self.parts().options.max_duration = Some(max_duration);
        self
    }

    /// The identity.
    pub fn id(&self) -> MessageId {
        self.0.id
    }

    /// The user's name for the task.
    pub fn task_id(&self) -> Option<&str> {
        self.0.task_id.as_deref()
    }

    /// The session.
    pub fn session_id(&self) -> Option<&str> {
        self.0.session_id.as_deref()
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// The payload, shared, without copying.
    pub fn payload_bytes(&self) -> Bytes {
        self.0.payload.clone()
    }

    /// The headers.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// The options.
    pub fn options(&self) -> &TaskOptions {
        &self.0.options
    }

    /// The push delay; zero if none. `now` matters only before core has normalised [`When::At`].
    pub fn delay(&self, now: SystemTime) -> Duration {
        self.0.options.delay.map_or(Duration::ZERO, |delay| delay.from_now(now))
    }

    /// How long from the push it becomes urgent; `None` if never. As for [`delay`](Self::delay).
    pub fn urgent_after(&self, now: SystemTime) -> Option<Duration> {
        self.0.options.urgent_after.map(|urgent| urgent.from_now(now))
    }

    /// Whether an option is said as a time of day, so that [`normalised`](Self::normalised) changes something.
    pub(crate) fn has_absolute_times(&self) -> bool {
        let says = |when: Option<When>| matches!(when, Some(When::At(_)));
        let options = &self.0.options;
        says(options.delay) || says(options.urgent_after) || says(options.expiry)
    }

    /// Turns times of day into durations from `now`, as every message is before a storage sees it.
    pub fn normalised(mut self, now: SystemTime) -> Self {
        if self.has_absolute_times() {
            let options = &mut self.parts().options;
            options.delay = options.delay.map(|delay| When::In(delay.from_now(now)));
            options.urgent_after = options.urgent_after.map(|urgent| When::In(urgent.from_now(now)));
            options.expiry = options.expiry.map(|expiry| When::In(expiry.from_now(now)));
        }
        self
    }
}

/// Payload and headers may hold what must not be logged: only their sizes are shown.
impl fmt::Debug for MessageData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageData")
            .field("id", &self.0.id)
            .field("task_id", &self.0.task_id)
            .field("session_id", &self.0.session_id)
            .field("payload_bytes", &self.0.payload.len())
            .field("headers", &self.0.headers.len())
            .field("options", &self.0.options)
            .finish()
    }
}
