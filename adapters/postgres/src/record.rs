//! A message, encoded as its row will contain it.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::Envelope;
use anyqueue::{ErrorKind, MessageData, OnDuplicate, Result};
use uuid::Uuid;

use crate::error::ERRORS;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};

/// An encoded message that is within the limits.
#[derive(Debug)]
pub(crate) struct EncodedMessage {
    pub(crate) id: Uuid,
    pub(crate) lane: i16,
    pub(crate) delay: Duration,
    /// When it becomes urgent, counted from the push.
    pub(crate) urgent_after: Option<Duration>,
    pub(crate) group: Option<Vec<u8>>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) body: Vec<u8>,
    /// What it does if its key is taken, as a code of the schema's functions: 0 for nothing.
    pub(crate) over: i16,
}

impl EncodedMessage {
    /// Encodes a message, and checks it against the limits.
    pub(crate) fn of(message: &MessageData, message_bytes: u64, now: SystemTime) -> Result<Self> {
        let options = message.options();
        if options.priority >= PRIORITY_LEVELS {
            let highest = PRIORITY_LEVELS - 1;
            return Err(
                ERRORS.invalid(format!("priority {} is out of range: 0 to {highest}", options.priority))
            );
        }
        let encoded_bytes = Envelope::max_encoded_len(message);
        if encoded_bytes > message_bytes {
            let text =
                format!("the encoded message has {encoded_bytes} bytes: at most {message_bytes} are allowed");
            return Err(ERRORS.error(ErrorKind::TooLarge, text));
        }
        let delay = message.delay(now);
        if delay > MAX_DELAY {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        let urgent_after = message.urgent_after(now);
        if urgent_after.is_some_and(|wait| wait > MAX_DELAY) {
            return Err(
                ERRORS.invalid("the moment from which it is urgent is later than the capabilities allow")
            );
        }
        Ok(Self {
            id: Uuid::from_bytes(*message.id().as_bytes()),
            lane: first_lane(options.priority) + 1,
            delay,
            urgent_after,
            group: options.group.as_deref().map(|group| group.as_bytes().to_vec()),
            key: options.dedup_key.as_deref().map(|key| key.as_bytes().to_vec()),
            body: Envelope::new(message.clone(), now).encode()?,
            over: over(message)?,
        })
    }
}

/// The lane of returned messages of this priority, which is the first of its two lanes.
pub(crate) fn first_lane(priority: u8) -> i16 {
    i16::from((PRIORITY_LEVELS - 1).saturating_sub(priority)) * 2
}

fn over(message: &MessageData) -> Result<i16> {
    match message.options().on_duplicate {
        OnDuplicate::Keep => Ok(0),
        _ if message.options().dedup_key.is_none() => Ok(0),
        OnDuplicate::Replace => Ok(1),
        OnDuplicate::Earlier => Ok(2),
        OnDuplicate::Behind => Ok(3),
        other => Err(ERRORS.error(ErrorKind::Unsupported, format!("on_duplicate cannot be {other:?}"))),
    }
}
