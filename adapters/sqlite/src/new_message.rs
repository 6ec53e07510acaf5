//! Messages, prepared to be stored.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Envelope;
use anyqueue::{Clock, ErrorKind, MessageData, MessageId, OnDuplicate, Result};

use crate::error::ERRORS;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::now::Now;

/// The rank of a priority: 0 is that of the highest one.
pub(crate) fn rank(priority: u8) -> i64 {
    i64::from(PRIORITY_LEVELS - 1) - i64::from(priority)
}

/// A message, prepared to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub(crate) id: MessageId,
    pub(crate) rank: i64,
    pub(crate) delay: Duration,
    /// When it becomes urgent, unless it is urgent from the beginning.
    urgent_after: Option<Duration>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) dedup: Option<Arc<str>>,
    pub(crate) body: Vec<u8>,
    /// What it was encoded from. Its content may replace that of another message.
    pub(crate) message: MessageData,
}

impl NewMessage {
    /// Encodes a message, and checks it against the limits.
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
        let (delay, urgent_after) = (message.delay(now), message.urgent_after(now));
        if delay > MAX_DELAY || urgent_after > Some(MAX_DELAY) {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        let is_urgent = urgent_after.is_some_and(|wait| wait.is_zero());
        let envelope = Envelope::new(message.clone(), now);
        Ok(Self {
            id: message.id(),
            rank: if is_urgent { 0 } else { rank(options.priority) },
            delay,
            urgent_after: urgent_after.filter(|_| !is_urgent),
            group: options.group.clone(),
            dedup: options.dedup_key.clone(),
            body: envelope.encode()?,
            message: envelope.message,
        })
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// When it is due, if it is pushed now.
    pub(crate) fn due_ms(&self, now: Now) -> i64 {
        if self.delay.is_zero() { now.ms } else { now.after(self.delay) }
    }

    /// When it becomes urgent, if it is pushed now.
    pub(crate) fn urgent_ms(&self, now: Now) -> Option<i64> {
        self.urgent_after.map(|wait| now.after(wait))
    }

    /// Whether it may change the message that has its id or key. It never changes itself.
    pub(crate) fn may_change(&self, holder: MessageId) -> bool {
        holder != self.id && self.message.options().on_duplicate != OnDuplicate::Keep
    }
}
