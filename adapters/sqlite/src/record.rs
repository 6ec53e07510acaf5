//! A message as it is stored in its row: an envelope and, for one that cannot be read, separate headers that
//! replace its own.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Decoded, Envelope};
use anyqueue::{Amend, Bytes, Clock, Error, ErrorKind, Headers, MessageData, MessageId, Result};
use rusqlite::Row;

use crate::error::ERRORS;

pub(crate) const STORED: &str = "SELECT seq, id, body, headers FROM anyqueue_message WHERE seq = ?";
pub(crate) const REPLACE: &str = "UPDATE anyqueue_message SET body = ?, headers = ? WHERE seq = ?";

/// The columns of a message's row.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) seq: i64,
    id: MessageId,
    body: Bytes,
    headers: Option<Bytes>,
}

/// A message, read as well as possible.
pub(crate) struct Read {
    pub(crate) message: MessageData,
    /// Zero if the age is unknown.
    pub(crate) age: Duration,
    /// Why the message cannot be read. Its payload is then the stored bytes.
    pub(crate) unreadable: Option<Error>,
}

impl Stored {
    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len() + self.headers.as_ref().map_or(0, Bytes::len)
    }

    /// Reads the columns `seq`, `id`, `body` and `headers`, of which `first` is the first.
    pub(crate) fn of(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let id = row.get_ref(first + 1)?.as_bytes()?;
        let body = Bytes::copy_from_slice(row.get_ref(first + 2)?.as_bytes()?);
        let headers = row.get_ref(first + 3)?.as_bytes_or_null()?.map(Bytes::copy_from_slice);
        Ok(Self::new(row.get(first)?, id, body, headers))
    }

    pub(crate) fn new(seq: i64, id: &[u8], body: Bytes, headers: Option<Bytes>) -> Self {
        let id = <[u8; 16]>::try_from(id).map_or_else(|_| foreign_id(seq), MessageId::from_bytes);
        Self { seq, id, body, headers }
    }

    /// Reads the message. One that this library did not write is returned as it is, and so is one that cannot
    /// be read, with the reason.
    pub(crate) fn read(&self, clock: &Clock) -> Read {
        let (message, pushed_at, unreadable) = match self.envelope() {
            Ok(envelope) => (envelope.message, envelope.pushed_at, None),
            Err(why) => (MessageData::with_id(self.id, self.body.clone()), None, Some(why)),
        };
        let age = pushed_at.and_then(|at| clock.wall().duration_since(at).ok()).unwrap_or_default();
        match self.headers.as_ref().map(Envelope::decode) {
            Some(Ok(carrier)) => {
                let headers = carrier.into_message("").headers().clone();
                Read { message: message.with_headers(headers), age, unreadable }
            }
            Some(Err(why)) => Read { message, age, unreadable: unreadable.or(Some(why)) },
            None => Read { message, age, unreadable },
        }
    }

    fn envelope(&self) -> Result<Envelope> {
        match Envelope::decode(&self.body)? {
            Decoded::Envelope(envelope) if envelope.message.id() == self.id => Ok(envelope),
            Decoded::Envelope(_) => {
                let text = "the id in a stored message is not the one that it is stored under";
                Err(ERRORS.error(ErrorKind::Corrupt, text))
            }
            foreign @ Decoded::Foreign(_) => {
                let mut envelope =
                    Envelope::new(foreign.into_message(&self.seq.to_string()), SystemTime::UNIX_EPOCH);
                envelope.pushed_at = None;
                Ok(envelope)
            }
        }
    }

    /// Returns the body and the headers to store in order to replace the headers. A body that cannot be read
    /// stays as it is.
    pub(crate) fn with_headers(&self, headers: Headers) -> Result<(Bytes, Option<Vec<u8>>)> {
        if let Ok(mut envelope) = self.envelope() {
            envelope.message = envelope.message.with_headers(headers);
            return Ok((envelope.encode()?.into(), None));
        }
        let carrier = MessageData::with_id(self.id, Vec::new()).with_headers(headers);
        let carrier = Envelope::new(carrier, SystemTime::UNIX_EPOCH).encode()?;
        Ok((self.body.clone(), Some(carrier)))
    }

    /// Returns the body with the content of another message; `None` if it cannot be read, and must stay as it
    /// is.
    pub(crate) fn with_content(&self, newer: &MessageData) -> Result<Option<Vec<u8>>> {
        let Ok(mut envelope) = self.envelope() else { return Ok(None) };
        let mut message = MessageData::with_id(self.id, newer.payload_bytes())
            .with_headers(newer.headers().clone())
            .with_options(envelope.message.options().clone());
        if let Some(task_id) = newer.task_id() {
            message = message.with_task_id(task_id);
        }
        if let Some(session_id) = newer.session_id() {
            message = message.with_session_id(session_id);
        }
        envelope.message = message;
        envelope.encode().map(Some)
    }

    /// Returns the body with the priority and the group of an amendment. Fails if it cannot be read.
    pub(crate) fn amended(&self, change: &Amend) -> Result<Vec<u8>> {
        let mut envelope = self.envelope()?;
        envelope.message = change.apply(envelope.message);
        envelope.encode()
    }
}

fn foreign_id(seq: i64) -> MessageId {
    MessageId::from_foreign(&seq.to_string())
}
