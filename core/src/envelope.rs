//! The format in which adapters store messages on servers that keep bytes.
//!
//! Four bytes of mark (`F6 41 51` and the version, `01`; `F6` never begins UTF-8 text), then a CBOR map with
//! small integer keys (RFC 8949). Readers skip keys that they do not know, so a later release can add some; a
//! change that an older reader must not ignore gets a new version, which older readers refuse with
//! `Incompatible`. Bytes without the mark are a *foreign* message: put there by something else, and delivered
//! as plain payload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use minicbor::{CborLen, Decode, Encode};

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Headers, MessageData, MessageId, OnDuplicate, TaskOptions, When, header};

const MARK: [u8; 3] = [0xF6, b'A', b'Q'];
const VERSION: u8 = 1;
const MARK_BYTES: usize = 4;

/// A message in its stored form: what the pusher gave, and what copies must carry along.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope {
    /// The message. Its delay is not stored, nor when it becomes urgent: the adapter keeps those where the
    /// server can act on them.
    pub message: MessageData,
    /// When it was pushed, by the clock of the process that first encoded it.
    pub pushed_at: Option<SystemTime>,
    /// The number of deliveries before this copy was made, for backends that start a new count with each
    /// copy.
    pub prior_deliveries: u32,
}

/// What stored bytes turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and nearly always the large one")]
pub enum Decoded {
    /// A message of anyqueue.
    Envelope(Envelope),
    /// A message of something else.
    Foreign(Bytes),
}

impl Decoded {
    /// Returns the message to deliver. A foreign message gets an id derived from the server's own id, and
    /// that one as a header.
    pub fn into_message(self, server_id: &str) -> MessageData {
        match self {
            Self::Envelope(envelope) => envelope.message,
            Self::Foreign(payload) => MessageData::with_id(MessageId::from_foreign(server_id), payload)
                .with_header(header::FOREIGN_ID, server_id),
        }
    }
}

#[derive(Encode, Decode, CborLen)]
#[cbor(map)]
struct Wire<'a> {
    #[cbor(n(0), with = "minicbor::bytes")]
    id: [u8; 16],
    #[b(1)]
    task_id: Option<&'a str>,
    #[b(2)]
    session_id: Option<&'a str>,
    #[b(3)]
    headers: Option<BTreeMap<&'a str, &'a str>>,
    #[n(4)]
    priority: Option<u8>,
    #[b(5)]
    group: Option<&'a str>,
    #[b(6)]
    dedup_key: Option<&'a str>,
    #[n(7)]
    expiry_ms: Option<u64>,
    #[n(8)]
    max_retries: Option<u32>,
    #[n(9)]
    max_duration_ms: Option<u64>,
    #[n(10)]
    pushed_at_ms: Option<u64>,
    #[n(11)]
    prior_deliveries: Option<u32>,
    #[cbor(b(12), with = "minicbor::bytes")]
    payload: &'a [u8],
}

impl Envelope {
    /// Creates an envelope for a message that is pushed now.
    pub fn new(message: MessageData, pushed_at: SystemTime) -> Self {
        Self { message, pushed_at: Some(pushed_at), prior_deliveries: 0 }
    }

    /// Encodes the stored form.
    ///
    /// # Errors
    /// Only [`Internal`](ErrorKind::Internal); writing to memory does not fail.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let wire = self.wire();
        let mut out = Vec::with_capacity(MARK_BYTES + minicbor::len(&wire));
        out.extend_from_slice(&MARK);
        out.push(VERSION);
        minicbor::encode(&wire, &mut out)
            .map_err(|e| Error::new(ErrorKind::Internal, "a message could not be encoded").with_source(e))?;
        Ok(out)
    }

    /// Returns the length of what [`encode`](Self::encode) returns, without encoding.
    pub fn encoded_len(&self) -> u64 {
        (MARK_BYTES + minicbor::len(self.wire())) as u64
    }

    /// Returns an upper bound of the length of this message's stored form, whenever it is pushed and however
    /// often it is copied.
    pub fn max_encoded_len(message: &MessageData) -> u64 {
        let mut wire = wire(message);
        wire.pushed_at_ms = Some(u64::MAX);
        wire.prior_deliveries = Some(u32::MAX);
        (MARK_BYTES + minicbor::len(wire)) as u64
    }

    /// Decodes stored bytes. The payload shares their memory.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) for a version that this release does not know,
    /// [`Corrupt`](ErrorKind::Corrupt) for bytes that have the mark but cannot be parsed.
    pub fn decode(bytes: &Bytes) -> Result<Decoded> {
        let Some((mark, body)) = bytes.split_first_chunk::<MARK_BYTES>() else {
            return Ok(Decoded::Foreign(bytes.clone()));
        };
        let [a, b, c, version] = *mark;
        if [a, b, c] != MARK {
            return Ok(Decoded::Foreign(bytes.clone()));
        }
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "message envelope of version {version}: this release reads version {VERSION}; upgrade the consumer"
                ),
            ));
        }
        let wire: Wire<'_> = minicbor::decode(body)
            .map_err(|e| Error::new(ErrorKind::Corrupt, "a stored message does not parse").with_source(e))?;
        Ok(Decoded::Envelope(wire.into_envelope(bytes)))
    }

    fn wire(&self) -> Wire<'_> {
        let mut wire = wire(&self.message);
        wire.pushed_at_ms =
            self.pushed_at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok()).map(millis);
        wire.prior_deliveries = (self.prior_deliveries > 0).then_some(self.prior_deliveries);
        wire
    }
}

fn wire(message: &MessageData) -> Wire<'_> {
    let options = message.options();
    let headers = message.headers();
    Wire {
        id: *message.id().as_bytes(),
        task_id: message.task_id(),
        session_id: message.session_id(),
        headers: (!headers.is_empty())
            .then(|| headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()),
        priority: (options.priority > 0).then_some(options.priority),
        group: options.group.as_deref(),
        dedup_key: options.dedup_key.as_deref(),
        expiry_ms: match options.expiry {
            Some(When::In(duration)) => Some(millis_up(duration)),
            Some(When::At(_)) | None => None, // core has normalised it
        },
        max_retries: options.max_retries,
        max_duration_ms: options.max_duration.map(millis_up),
        pushed_at_ms: None,
        prior_deliveries: None,
        payload: message.payload(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Rounded up, so that a short time does not become none.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Wire<'_> {
    fn into_envelope(self, stored: &Bytes) -> Envelope {
        let headers: Headers = self
            .headers
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut message =
            MessageData::with_id(MessageId::from_bytes(self.id), stored.slice_ref(self.payload))
                .with_headers(headers)
                .with_options(TaskOptions {
                    priority: self.priority.unwrap_or(0),
                    delay: None,
                    urgent_after: None,
                    expiry: self.expiry_ms.map(|ms| When::In(Duration::from_millis(ms))),
                    group: self.group.map(Arc::from),
                    dedup_key: self.dedup_key.map(Arc::from),
                    on_duplicate: OnDuplicate::Keep,
                    max_retries: self.max_retries,
                    max_duration: self.max_duration_ms.map(Duration::from_millis),
                });
        if let Some(task_id) = self.task_id {
            message = message.with_task_id(task_id);
        }
        if let Some(session_id) = self.session_id {
            message = message.with_session_id(session_id);
        }
        let pushed_at =
            self.pushed_at_ms.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        Envelope { message, pushed_at, prior_deliveries: self.prior_deliveries.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Envelope {
        let message = MessageData::with_id(MessageId::from_bytes([7; 16]), &b"\0payload\xff"[..])
            .with_task_id("task")
            .with_session_id("session")
            .with_header("Name", " value ")
            .with_priority(9)
            .with_time_to_live(Duration::from_mins(1))
            .with_group("g")
            .with_dedup_key("k")
            .with_max_retries(3)
            .with_max_duration(Duration::from_secs(5));
        let mut envelope = Envelope::new(message, SystemTime::UNIX_EPOCH + Duration::from_millis(1234));
        envelope.prior_deliveries = 2;
        envelope
    }

    #[test]
    fn every_field_comes_back() {
        let stored = Bytes::from(full().encode().unwrap());
        assert_eq!(Envelope::decode(&stored).unwrap(), Decoded::Envelope(full()));
    }

    #[test]
    fn times_shorter_than_the_form_can_say_are_rounded_up() {
        let short = Duration::from_micros(1);
        let message = MessageData::new("x").with_time_to_live(short).with_max_duration(short * 1500);
        let stored = Envelope::new(message, SystemTime::now()).encode().unwrap();
        let read = Envelope::decode(&Bytes::from(stored)).unwrap().into_message("");
        assert_eq!(read.options().expiry, Some(When::In(Duration::from_millis(1))));
        assert_eq!(read.options().max_duration, Some(Duration::from_millis(2)));
    }

    /// The file was written by hand from the description of the format, and never changes: queues hold such
    /// messages.
    #[test]
    fn the_first_form_is_written_and_read_for_ever() {
        let first = include_bytes!("../tests/fixtures/envelope-1.bin");
        assert_eq!(Envelope::decode(&Bytes::from_static(first)).unwrap(), Decoded::Envelope(full()));
        assert_eq!(full().encode().unwrap(), first, "a new form needs a new version and a file of its own");
    }

    #[test]
    fn declared_lengths_are_exact_and_an_upper_bound() {
        let stored = full().encode().unwrap();
        assert_eq!(stored.len() as u64, full().encoded_len());
        assert!(Envelope::max_encoded_len(&full().message) >= stored.len() as u64);
        let small = Envelope::new(MessageData::new(b"x"), SystemTime::now());
        assert!(small.encoded_len() < 48, "overhead is small: {}", small.encoded_len());
    }

    #[test]
    fn bytes_without_the_mark_are_foreign_and_keep_one_id() {
        for bytes in [&b""[..], b"{}", b"hello world", b"\xF6AX\x01"] {
            let stored = Bytes::copy_from_slice(bytes);
            let message = Envelope::decode(&stored).unwrap().into_message("server-17");
            assert_eq!(message.payload(), bytes);
            assert_eq!(message.id(), MessageId::from_foreign("server-17"));
            assert_eq!(message.headers()[header::FOREIGN_ID], "server-17");
        }
    }

    #[test]
    fn a_newer_version_is_refused_and_a_damaged_body_is_corrupt() {
        let newer = Envelope::decode(&Bytes::from_static(b"\xF6AQ\x02\xA0")).unwrap_err();
        assert_eq!(newer.kind(), ErrorKind::Incompatible);
        let damaged = Envelope::decode(&Bytes::from_static(b"\xF6AQ\x01\xA1\x00")).unwrap_err();
        assert_eq!(damaged.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_key_of_a_later_release_is_skipped() {
        let mut stored = full().encode().unwrap();
        stored[4] += 1; // one more entry in the map
        stored.extend_from_slice(&[0x18, 0x63, 0x82, 0x01, 0x61, b'x']); // 99: [1, "x"]
        assert_eq!(Envelope::decode(&Bytes::from(stored)).unwrap(), Decoded::Envelope(full()));
    }
}
