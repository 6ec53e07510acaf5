//! Messages on their way into the file.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Envelope;
use anyqueue::{Clock, ErrorKind, MessageData, MessageId, OnDuplicate, Result};

use crate::error::ERRORS;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::now::Now;

/// A message ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub(crate) id: MessageId,
    pub(crate) rank: i64,
    pub(crate) delay: Duration,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) dedup: Option<Arc<str>>,
    pub(crate) body: Vec<u8>,
    /// What it was encoded from: its content may be given to another.
    pub(crate) message: MessageData,
}

impl NewMessage {
    /// Encodes a message, if it is within the limits.
    pub(crate) fn prepare(message: &MessageData, message_bytes: u64, clock: &Clock) -> Result<Self> {
        let options = message.options();
        if options.priority >= PRIORITY_LEVELS {
            let highest = PRIORITY_LEVELS - 1;
            return Err(
                ERRORS.invalid(format!("priority {} is out of range: 0 to {highest}", options.priority))
            );
        }
        let encoded_bytes = Envelope::max_encoded_len(message);
        if encoded_bytes > message_bytes {
            let text = format!(
                "the message takes {encoded_bytes} bytes in encoded form: at most {message_bytes} are allowed"
            );
            return Err(ERRORS.error(ErrorKind::TooLarge, text));
        }
        let now = clock.wall();
        let delay = message.delay(now);
        if delay > MAX_DELAY {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        let envelope = Envelope::new(message.clone(), now);
        Ok(Self {
            id: message.id(),
            rank: i64::from(PRIORITY_LEVELS - 1 - options.priority),
            delay,
            group: options.group.clone(),
            dedup: options.dedup_key.clone(),
            body: envelope.encode()?,
            message: envelope.message,
        })
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// When it is due if it is pushed now.
    pub(crate) fn due_ms(&self, now: Now) -> i64 {
        if self.delay.is_zero() { now.ms } else { now.after(self.delay) }
    }

    /// Whether it may do something to this message, which is in its way: not if that is itself.
    pub(crate) fn may_change(&self, holder: MessageId) -> bool {
        holder != self.id && self.message.options().on_duplicate != OnDuplicate::Keep
    }
}
