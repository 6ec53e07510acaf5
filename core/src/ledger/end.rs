//! How a task ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::error::{Error, ErrorKind, Result};

/// The largest result that is kept with a task's end, in bytes.
pub const MAX_RESULT_BYTES: usize = 256 << 10;

/// How much of what a handler logged is kept with a task's end, in bytes.
pub const MAX_LOG_BYTES: usize = 4 << 10;

/// The longest text about the progress of a task that is kept with its end, in bytes.
pub const MAX_PROGRESS_BYTES: usize = 1024;

/// How a task can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum EndState {
    /// The task was no longer wanted.
    Cancelled,
    /// The task failed for good, and was not kept as a dead letter.
    Failed,
    /// The task took too long, or expired before it was handled.
    TimedOut,
    /// The task is done.
    Succeeded,
}

impl EndState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Cancelled, Self::Failed, Self::TimedOut, Self::Succeeded];

    /// Returns the name used in logs, filters and output, in `snake_case`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Succeeded => "succeeded",
        }
    }

    /// Returns the number that the state is stored as, from 1. It never changes. Of two ends that are equal
    /// in all else, the greater one counts.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 1,
            Self::Failed => 2,
            Self::TimedOut => 3,
            Self::Succeeded => 4,
        }
    }

    /// Returns the state that is stored as this number.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) for a number that this release does not know.
    pub fn from_code(code: u8) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code).ok_or_else(|| {
            let text =
                format!("a task ended in state number {code}, which this release does not know: upgrade");
            Error::new(ErrorKind::Incompatible, text)
        })
    }
}

impl fmt::Display for EndState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of a task as it is kept: all that is known of it except its payload. Times are durations, so that
/// no client's clock matters; the storage stamps the moment of the end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskEnd {
    /// How the task ended.
    pub state: EndState,
    /// How long this is kept. `None`: until it is deleted; zero: it is only counted.
    pub keep: Option<Duration>,
    /// How often the task was put back from dead letters or moved, as far as is known.
    pub generation: u32,
    /// Which attempt this was, counted from 1; 0 if none was made.
    pub attempt: u32,
    /// The number of deliveries in all; 0 if unknown.
    pub delivery_count: u32,
    /// How many successors were stored with the end.
    pub successors: u32,
    /// The time from the push to the beginning of the last run.
    pub waited: Duration,
    /// How long the last run took.
    pub ran: Duration,
    /// Who ran the task.
    pub worker: Option<Arc<str>>,
    /// The kind of task, which selects its handler.
    pub kind: Option<Arc<str>>,
    /// The user's name for the task.
    pub task_id: Option<Arc<str>>,
    /// The session that the task belongs to.
    pub session_id: Option<Arc<str>>,
    /// W3C trace context of the pusher.
    pub trace: Option<Arc<str>>,
    /// Why it ended in this way, if it did not succeed.
    pub reason: Option<Arc<str>>,
    /// The failed attempts, as the worker writes them into the header `task-errors`.
    pub errors: Option<Arc<str>>,
    /// What the handler logged in its last run, as lines, at most [`MAX_LOG_BYTES`].
    pub log: Option<Arc<str>>,
    /// How far the last run had come, in the words of its handler, at most [`MAX_PROGRESS_BYTES`].
    pub progress: Option<Arc<str>>,
    /// What the handler returned, at most [`MAX_RESULT_BYTES`]. Lists leave this out, so that a page of them
    /// is small.
    pub result: Option<Bytes>,
    /// For a task that has not ended and that a [ledger beside the queue](crate::Beside) records: how long it
    /// waits from then on.
    pub due_in: Option<Duration>,
}

impl TaskEnd {
    /// Creates an end in this state that is kept until it is deleted and of which nothing else is known.
    #[must_use]
    pub const fn new(state: EndState) -> Self {
        Self {
            state,
            keep: None,
            generation: 0,
            attempt: 0,
            delivery_count: 0,
            successors: 0,
            waited: Duration::ZERO,
            ran: Duration::ZERO,
            worker: None,
            kind: None,
            task_id: None,
            session_id: None,
            trace: None,
            reason: None,
            errors: None,
            log: None,
            progress: None,
            result: None,
            due_in: None,
        }
    }

    /// Sets [`keep`](Self::keep).
    #[must_use]
    pub fn with_keep(mut self, keep: Option<Duration>) -> Self {
        self.keep = keep;
        self
    }

    /// Sets [`attempt`](Self::attempt).
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Sets [`generation`](Self::generation).
    #[must_use]
    pub fn with_generation(mut self, generation: u32) -> Self {
        self.generation = generation;
        self
    }

    /// Sets [`delivery_count`](Self::delivery_count).
    #[must_use]
    pub fn with_delivery_count(mut self, delivery_count: u32) -> Self {
        self.delivery_count = delivery_count;
        self
    }

    /// Sets [`result`](Self::result).
    #[must_use]
    pub fn with_result(mut self, result: impl Into<Bytes>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Sets [`reason`](Self::reason).
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Returns whether the end is stored. An end that is kept for no time is only
    /// [counted](crate::Queue::series).
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keep != Some(Duration::ZERO)
    }

    /// Returns its rank among ends of the same task, less than 2⁶³: by generation, then attempt, then
    /// deliveries, then state. The end with the greatest rank counts, in whatever order they arrive. Each
    /// number is capped to its own bits.
    #[must_use]
    pub fn rank(&self) -> u64 {
        let cut = |number: u32, bits: u32| u64::from(number.min((1 << bits) - 1));
        cut(self.generation, 15) << 48
            | cut(self.attempt, 16) << 32
            | cut(self.delivery_count, 24) << 8
            | u64::from(self.state.code())
    }

    /// Encodes the stored form: one byte of version, then a CBOR map (RFC 8949) with small integer keys.
    /// Readers skip keys that they do not know. It contains everything except [`keep`](Self::keep), which the
    /// storage turns into a moment, and [`result`](Self::result), which it keeps apart. Core makes ends of at
    /// most 20 KiB.
    ///
    /// # Errors
    /// Only [`Internal`](ErrorKind::Internal); writing to memory does not fail.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = vec![VERSION];
        minicbor::encode(self.wire(), &mut out).map_err(|error| {
            Error::new(ErrorKind::Internal, "the end of a task could not be encoded").with_source(error)
        })?;
        Ok(out)
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) for a version or a state that this release does not know,
    /// [`Corrupt`](ErrorKind::Corrupt) for bytes that cannot be parsed.
    pub fn decode(stored: &[u8]) -> Result<Self> {
        let corrupt = || Error::new(ErrorKind::Corrupt, "the stored end of a task does not parse");
        match stored.split_first() {
            Some((&VERSION, body)) => {
                let wire: Wire<'_> = minicbor::decode(body).map_err(|error| corrupt().with_source(error))?;
                wire.into_end()
            }
            Some((version, _)) => Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the end of a task of version {version}: this release reads version {VERSION}; upgrade"
                ),
            )),
            None => Err(corrupt()),
        }
    }

    fn wire(&self) -> Wire<'_> {
        let known = |number: u32| (number > 0).then_some(number);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Wire {
            state: self.state.code(),
            generation: known(self.generation),
            attempt: known(self.attempt),
            delivery_count: known(self.delivery_count),
            successors: known(self.successors),
            waited_us: micros(self.waited),
            ran_us: micros(self.ran),
            worker: self.worker.as_deref(),
            kind: self.kind.as_deref(),
            task_id: self.task_id.as_deref(),
            session_id: self.session_id.as_deref(),
            trace: self.trace.as_deref(),
            reason: self.reason.as_deref(),
            errors: self.errors.as_deref(),
            log: self.log.as_deref(),
            progress: self.progress.as_deref(),
            due_in_us: self.due_in.map(micros),
        }
    }
}

const VERSION: u8 = 1;

#[derive(Encode, Decode)]
#[cbor(map)]
struct Wire<'a> {
    #[n(0)]
    state: u8,
    #[n(1)]
    generation: Option<u32>,
    #[n(2)]
    attempt: Option<u32>,
    #[n(3)]
    delivery_count: Option<u32>,
    #[n(4)]
    waited_us: u64,
    #[n(5)]
    ran_us: u64,
    #[b(6)]
    worker: Option<&'a str>,
    #[b(7)]
    kind: Option<&'a str>,
    #[b(8)]
    task_id: Option<&'a str>,
    #[b(9)]
    session_id: Option<&'a str>,
    #[b(10)]
    trace: Option<&'a str>,
    #[b(11)]
    reason: Option<&'a str>,
    #[b(12)]
    errors: Option<&'a str>,
    #[n(13)]
    successors: Option<u32>,
    #[b(14)]
    log: Option<&'a str>,
    #[n(15)]
    due_in_us: Option<u64>,
    #[b(16)]
    progress: Option<&'a str>,
}

impl Wire<'_> {
    fn into_end(self) -> Result<TaskEnd> {
        let text = |text: Option<&str>| text.map(Arc::from);
        Ok(TaskEnd {
            state: EndState::from_code(self.state)?,
            keep: None,
            generation: self.generation.unwrap_or(0),
            attempt: self.attempt.unwrap_or(0),
            delivery_count: self.delivery_count.unwrap_or(0),
            successors: self.successors.unwrap_or(0),
            waited: Duration::from_micros(self.waited_us),
            ran: Duration::from_micros(self.ran_us),
            worker: text(self.worker),
            kind: text(self.kind),
            task_id: text(self.task_id),
            session_id: text(self.session_id),
            trace: text(self.trace),
            reason: text(self.reason),
            errors: text(self.errors),
            log: text(self.log),
            progress: text(self.progress),
            result: None,
            due_in: self.due_in_us.map(Duration::from_micros),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> TaskEnd {
        TaskEnd {
            state: EndState::TimedOut,
            keep: None,
            generation: 1,
            attempt: 3,
            delivery_count: 5,
            successors: 2,
            waited: Duration::from_micros(1_234_567),
            ran: Duration::from_micros(89),
            worker: Some("host-1".into()),
            kind: Some("mail".into()),
            task_id: Some("order 7".into()),
            session_id: Some("".into()),
            trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            reason: Some("took too long".into()),
            errors: Some("[]".into()),
            log: Some("+0.001s begun\n".into()),
            progress: Some("8 of 9".into()),
            result: None,
            due_in: Some(Duration::from_secs(7)),
        }
    }

    #[test]
    fn every_field_comes_back_but_how_long_it_is_kept_and_the_result() {
        for end in [full(), TaskEnd::new(EndState::Succeeded)] {
            let given = end.clone().with_keep(Some(Duration::from_secs(5))).with_result("42");
            assert_eq!(TaskEnd::decode(&given.encode().unwrap()).unwrap(), end);
        }
    }

    #[test]
    fn a_newer_form_is_refused_and_damage_is_told() {
        let mut stored = full().encode().unwrap();
        stored[0] = VERSION + 1;
        assert_eq!(TaskEnd::decode(&stored).unwrap_err().kind(), ErrorKind::Incompatible);
        for damaged in [&b""[..], b"\x01", b"\x01\xa1\x00"] {
            assert_eq!(TaskEnd::decode(damaged).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(EndState::from_code(0).unwrap_err().kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn a_key_of_a_later_release_is_skipped() {
        let end = TaskEnd::new(EndState::Failed);
        let mut stored = end.encode().unwrap();
        stored[1] += 1; // one more entry in the map
        stored.extend_from_slice(&[0x18, 0x63, 0x82, 0x01, 0x61, b'x']); // 99: [1, "x"]
        assert_eq!(TaskEnd::decode(&stored).unwrap(), end);
    }

    #[test]
    fn progress_takes_no_room_where_there_is_none_and_an_older_end_is_read() {
        let older = [VERSION, 0xa3, 0x00, 0x04, 0x04, 0x00, 0x05, 0x00]; // state, waited, ran
        let mut end = TaskEnd::new(EndState::Succeeded);
        assert_eq!(end.encode().unwrap(), older);
        assert_eq!(TaskEnd::decode(&older).unwrap(), end);
        end.progress = Some("8 of 9".into());
        let stored = end.encode().unwrap();
        // Key 16 and a text of six bytes, which a release that does not know the key skips.
        assert_eq!(
            stored.strip_prefix(&[VERSION, 0xa4]).unwrap(),
            [&older[2..], b"\x10\x668 of 9".as_slice()].concat()
        );
        assert_eq!(TaskEnd::decode(&stored).unwrap(), end);
    }

    #[test]
    fn later_generations_attempts_and_deliveries_outrank_in_that_order() {
        let end = |generation, attempt, deliveries, state| {
            let end = TaskEnd::new(state).with_generation(generation);
            end.with_attempt(attempt).with_delivery_count(deliveries).rank()
        };
        let most = u32::MAX;
        let ascending = [
            end(0, 0, 0, EndState::Cancelled),
            end(0, 0, 0, EndState::Succeeded),
            end(0, 0, 1, EndState::Cancelled),
            end(0, 0, most, EndState::Succeeded),
            end(0, 1, 0, EndState::Cancelled),
            end(0, most, most, EndState::Succeeded),
            end(1, 0, 0, EndState::Cancelled),
            end(most, most, most, EndState::Succeeded),
        ];
        assert!(ascending.is_sorted_by(|a, b| a < b), "{ascending:?}");
        assert!(i64::try_from(ascending[7]).is_ok());
    }
}
