//! The message: identity, payload, headers and options.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{Error, Result};

/// Headers of a message: names and values, both arbitrary Unicode text, stored unchanged and case-sensitive.
///
/// Names that begin with [`RESERVED_HEADER_PREFIX`] are reserved for anyqueue and are refused at push.
pub type Headers = BTreeMap<String, String>;

/// The prefix of header names that only anyqueue itself may write (see [`header`]).
pub const RESERVED_HEADER_PREFIX: &str = "anyqueue-";

/// Names of the headers that anyqueue reads and writes.
pub mod header {
    /// On a dead letter: why it died.
    pub const DEAD_REASON: &str = "anyqueue-dead-reason";
    /// On a dead letter: when it died, RFC 3339 in UTC.
    pub const DEAD_AT: &str = "anyqueue-dead-at";
    /// On a dead letter: its delivery count when it died, if the backend counts deliveries.
    pub const DEAD_DELIVERIES: &str = "anyqueue-dead-deliveries";
    /// On a dead letter: how many attempts had been made when it died, including the last one, as far as is
    /// known.
    pub const DEAD_ATTEMPTS: &str = "anyqueue-dead-attempts";
    /// On a dead letter: who ran it last, if that was [reported](crate::TaskReport::worker).
    pub const DEAD_WORKER: &str = "anyqueue-dead-worker";
    /// On a dead letter: how long its last attempt ran, such as `1s 250ms`.
    pub const DEAD_RAN: &str = "anyqueue-dead-ran";
    /// On a message that a redrive put back: when that run of the redrive began, RFC 3339 in UTC, with digits
    /// below the millisecond that tell runs apart. The message's expiry is no longer enforced.
    pub const REDRIVEN_AT: &str = "anyqueue-redriven-at";
    /// On a message that was delivered more often than its limit allows, where the server also counts
    /// releases: how many of its deliveries are taken to have been releases.
    pub const RELEASED: &str = "anyqueue-released";
    /// On a message that was put into the queue by something other than anyqueue: the server's own id for it.
    pub const FOREIGN_ID: &str = "anyqueue-foreign-id";
    /// On a message that a redrive put back: how often that has happened, so that a later end of the task
    /// outranks an earlier one.
    pub const GENERATION: &str = "anyqueue-generation";
    /// The kind of task, which selects its handler. Written by the pusher and read by a worker.
    pub const TASK_KIND: &str = "task-kind";
    /// The number of failed attempts so far, as counted by a worker.
    pub const TASK_ATTEMPTS: &str = "task-attempts";
    /// The last errors, as noted by a worker.
    pub const TASK_ERRORS: &str = "task-errors";
    /// How long the end of this task is kept if it succeeds, such as `36h` or `7d`; `0s` keeps nothing,
    /// `forever` keeps it until it is deleted. Takes precedence over [`Keep`](crate::Keep).
    pub const TASK_KEEP_SUCCESS: &str = "task-keep-success";
    /// Like [`TASK_KEEP_SUCCESS`], for a task that ends otherwise.
    pub const TASK_KEEP_FAILURE: &str = "task-keep-failure";
    /// W3C trace context of the pusher (<https://www.w3.org/TR/trace-context/>).
    pub const TRACEPARENT: &str = "traceparent";
}

/// The identity of a message: a `UUIDv7`, made together with the message. It survives copies, death, redrive
/// and moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Creates a new, unique id (`UUIDv7`: ids that one process makes later sort later).
    #[allow(clippy::new_without_default, reason = "a default that differs each time surprises")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Creates an id from its 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the 16 bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Derives the id of a message that was put into the queue by something other than anyqueue from the
    /// server's own id, so that every delivery of the message has the same one (`UUIDv8`, RFC 9562 section
    /// 5.8: 128-bit FNV-1a of the text).
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

/// A moment, given either relative to the push or as a time of day.
///
/// Storages only ever see [`In`](When::In): at push, core turns a time of day into the remaining duration, so
/// a client whose clock is wrong affects nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long after the push, by the server's clock.
    In(Duration),
    /// At this time, by the pusher's clock; a time in the past means at once.
    At(SystemTime),
}

impl When {
    /// Returns how long after `now` the moment is; zero if it is in the past.
    pub fn from_now(self, now: SystemTime) -> Duration {
        match self {
            Self::In(duration) => duration,
            Self::At(time) => time.duration_since(now).unwrap_or_default(),
        }
    }
}

/// Options of a message. A backend that does not support one refuses the message with `Unsupported` before
/// storing anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// The priority level, from 0 (the default) to the backend's number of levels − 1. Higher is more urgent.
    pub priority: u8,
    /// The message is not delivered before this moment.
    pub delay: Option<When>,
    /// From this moment on the message has the highest priority level, whatever level it was pushed with. It
    /// keeps its place among the messages of that level, and it is not delivered before its
    /// [`delay`](Self::delay) is over. This affects only the order of waiting messages: a delivery does not
    /// show it.
    pub urgent_after: Option<When>,
    /// The message is not handed to a handler after this moment.
    pub expiry: Option<When>,
    /// The message's group. Members of a group are handed out one at a time, in push order. At most
    /// [`MAX_KEY_BYTES`] bytes.
    pub group: Option<Arc<str>>,
    /// The deduplication key. While a message with this key lives in the partition, pushing another one
    /// returns `Duplicate`. At most [`MAX_KEY_BYTES`] bytes.
    ///
    /// A backend that declares a [`Window`](crate::adapter::Dedup::Window), such as a FIFO queue of SQS,
    /// drops what is pushed with the same key within that time after the first push, even if the first
    /// message is already processed, and may return `Stored` for it.
    pub dedup_key: Option<Arc<str>>,
    /// What happens to this message if the key is taken.
    pub on_duplicate: OnDuplicate,
    /// For the worker: how often to retry a failed task.
    pub max_retries: Option<u32>,
    /// For the worker: how long one run of the task may take.
    pub max_duration: Option<Duration>,
}

/// What a push does if another message of the partition has its deduplication key.
///
/// A message that a consumer holds is never changed. A waiting message keeps its id, its place and all its
/// options, whatever the options of the new message are; only [`Earlier`](Self::Earlier) changes when it is
/// due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnDuplicate {
    /// Do nothing: the existing message stays as it is, and the push returns
    /// [`Duplicate`](crate::PushOutcome::Duplicate).
    #[default]
    Keep,
    /// If the existing message is waiting, it takes over the payload, headers, task id and session id of the
    /// new one, and the push returns [`Replaced`](crate::PushOutcome::Replaced). So the content is that of
    /// the last push with the key, and the place is that of the first.
    Replace,
    /// Like [`Replace`](Self::Replace) if the existing message would be due later than the new one: it then
    /// becomes due when the new one would be. Otherwise like [`Keep`](Self::Keep).
    Earlier,
    /// If a consumer holds the existing message, the new one is stored all the same, and takes over the key:
    /// a change during a run is thus followed by another run, and at most one such message waits. Otherwise
    /// like [`Keep`](Self::Keep). The two messages may be processed at the same time, unless they are in one
    /// group.
    Behind,
}

/// The maximum length of a task id, session id, group or deduplication key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// A message to push. Create it with [`MessageData::new`] and refine it with the other methods.
///
/// The id is generated here. Pushing the *same* `MessageData` (or a clone) again repeats one push, it does
/// not make a second message: backends with unique ids return `Duplicate`. To push a second message, create
/// another one.
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

/// Shared, so that a message is cheap to pass on and to keep; a builder method copies the parts only if
/// somebody else has them too.
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
    /// Creates a message with this payload, a new id, no headers and default options.
    pub fn new(payload: impl AsRef<[u8]>) -> Self {
        Self::from_bytes(Bytes::copy_from_slice(payload.as_ref()))
    }

    /// Like [`new`](Self::new), without copying the payload.
    pub fn from_bytes(payload: impl Into<Bytes>) -> Self {
        Self::with_id(MessageId::new(), payload)
    }

    /// Creates a message with a given id: for adapters that decode a stored message, and for repeating a push
    /// after a restart of the pusher.
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

    /// The parts, for changing them.
    fn parts(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    /// Sets the task id, a name for people and logs. It is not a key and need not be unique.
    pub fn with_task_id(mut self, task_id: impl Into<Arc<str>>) -> Self {
        self.parts().task_id = Some(task_id.into());
        self
    }

    /// Sets the id of the session that the task belongs to.
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

    /// Sets [`TaskOptions::priority`].
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.parts().options.priority = priority;
        self
    }

    /// Delays delivery until this long after the push.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.parts().options.delay = Some(When::In(delay));
        self
    }

    /// Delays delivery until this time.
    pub fn with_not_before(mut self, time: SystemTime) -> Self {
        self.parts().options.delay = Some(When::At(time));
        self
    }

    /// Raises the message to the highest priority level once this long has passed since the push, if it is
    /// still waiting then. See [`TaskOptions::urgent_after`].
    pub fn with_urgent_after(mut self, wait: Duration) -> Self {
        self.parts().options.urgent_after = Some(When::In(wait));
        self
    }

    /// Raises the message to the highest priority level at this time, if it is still waiting then. See
    /// [`TaskOptions::urgent_after`].
    pub fn with_urgent_at(mut self, time: SystemTime) -> Self {
        self.parts().options.urgent_after = Some(When::At(time));
        self
    }

    /// Lets the message expire this long after the push: from then on it is not handed to a handler.
    pub fn with_time_to_live(mut self, time_to_live: Duration) -> Self {
        self.parts().options.expiry = Some(When::In(time_to_live));
        self
    }

    /// Lets the message expire at this time: from then on it is not handed to a handler.
    pub fn with_expires_at(mut self, time: SystemTime) -> Self {
        self.parts().options.expiry = Some(When::At(time));
        self
    }

    /// Sets [`TaskOptions::group`].
    pub fn with_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.parts().options.group = Some(group.into());
        self
    }

    /// Sets [`TaskOptions::dedup_key`].
    pub fn with_dedup_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.parts().options.dedup_key = Some(key.into());
        self
    }

    /// Sets [`TaskOptions::on_duplicate`].
    pub fn with_on_duplicate(mut self, on_duplicate: OnDuplicate) -> Self {
        self.parts().options.on_duplicate = on_duplicate;
        self
    }

    /// Sets [`TaskOptions::max_retries`].
    pub fn with_max_retries(mut self, max_retries: u32) -> Self {
        self.parts().options.max_retries = Some(max_retries);
        self
    }

    /// Sets [`TaskOptions::max_duration`].
    pub fn with_max_duration(mut self, max_duration: Duration) -> Self {
        self.parts().options.max_duration = Some(max_duration);
        self
    }

    /// Returns the id of the message.
    pub fn id(&self) -> MessageId {
        self.0.id
    }

    /// Returns the user's name for the task.
    pub fn task_id(&self) -> Option<&str> {
        self.0.task_id.as_deref()
    }

    /// Returns the session that the task belongs to.
    pub fn session_id(&self) -> Option<&str> {
        self.0.session_id.as_deref()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// Returns the payload as shared [`Bytes`], without copying it.
    pub fn payload_bytes(&self) -> Bytes {
        self.0.payload.clone()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// Returns the options.
    pub fn options(&self) -> &TaskOptions {
        &self.0.options
    }

    /// Returns the delay at push; zero if there is none. `now` matters only before core has normalised
    /// [`When::At`].
    pub fn delay(&self, now: SystemTime) -> Duration {
        self.0.options.delay.map_or(Duration::ZERO, |delay| delay.from_now(now))
    }

    /// Returns how long after the push the message becomes urgent; `None` if never. `now` matters as in
    /// [`delay`](Self::delay).
    pub fn urgent_after(&self, now: SystemTime) -> Option<Duration> {
        self.0.options.urgent_after.map(|urgent| urgent.from_now(now))
    }

    /// Whether an option is given as a time of day, so that [`normalised`](Self::normalised) changes
    /// something.
    pub(crate) fn has_absolute_times(&self) -> bool {
        let says = |when: Option<When>| matches!(when, Some(When::At(_)));
        let options = &self.0.options;
        says(options.delay) || says(options.urgent_after) || says(options.expiry)
    }

    /// Turns times of day into durations from `now`. Core does this to every message before a storage sees
    /// it.
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

/// Shows only the sizes of the payload and headers, since they may contain what must not be logged.
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
