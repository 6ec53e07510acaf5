//! Messages, in the form in which scripts store them.

use std::time::Duration;

use anyqueue::adapter::{Envelope, Hint};
use anyqueue::{ErrorKind, MessageData, MessageId, OnDuplicate, PartitionId, Result};

use crate::clock::millis;
use crate::config::Config;
use crate::error::ERRORS;
use crate::limits::{MAX_DELAY, PRIORITY_LEVELS};
use crate::link::Call;
use crate::record::{self, GROUPED, KEYED, Record};
use crate::window::runs;

/// Scripts treat records above this size as large. A call with a large one has no common level.
const LARGE_BYTES: usize = 256 * 1024;
/// Scripts store records above this size separately. A call says whether it has any.
const BULKY_BYTES: usize = 16 * 1024;
/// Added to a common level if there are bulky records.
const BULKY_BIT: u8 = 16;
/// By how much a copy of a message can outgrow its first form at most, because its numbers grow.
const GROWTH: u64 = 64;

/// A message to store.
pub(crate) struct Row {
    id: MessageId,
    record: Record,
    delay_us: u64,
    /// How long after the push it becomes urgent.
    urgent_us: Option<u64>,
    on_duplicate: OnDuplicate,
}

impl Row {
    /// Encodes a message that is stored at this server time, and checks it against the limits.
    pub(crate) fn encode(
        message: &MessageData,
        partition: &PartitionId,
        config: &Config,
        at_us: u64,
    ) -> Result<Self> {
        let delay = check(message, config)?;
        let record = record::encode(message, partition, at_us)?;
        if record.bytes.len() as u64 + GROWTH > config.message_bytes {
            check_size(message, config.message_bytes)?;
        }
        // Dead letters have no deduplication key.
        let is_keyed = record.flag & KEYED != 0;
        let on_duplicate = if is_keyed { message.options().on_duplicate } else { OnDuplicate::Keep };
        let urgent_us = message.urgent_after(config.clock.wall()).map(|wait| 1000 * millis(wait));
        Ok(Self { id: message.id(), record, delay_us: 1000 * millis(delay), urgent_us, on_duplicate })
    }

    pub(crate) fn id(&self) -> MessageId {
        self.id
    }

    /// The size of its record.
    pub(crate) fn bytes(&self) -> usize {
        self.record.bytes.len()
    }

    fn hint(&self) -> Hint {
        if self.delay_us == 0 { Hint::ready(1) } else { Hint::due(Duration::from_micros(self.delay_us)) }
    }
}

/// Messages that one call stores in one partition.
#[derive(Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// Whether any of them may change the message that has its key. Only then can an id occur twice.
    is_compacting: bool,
}

impl Rows {
    pub(crate) fn new(capacity: usize, is_compacting: bool) -> Self {
        Self { rows: Vec::with_capacity(capacity), is_compacting }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.is_compacting |= row.on_duplicate != OnDuplicate::Keep;
        self.rows.push(row);
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether any of them becomes urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        self.rows.iter().any(|row| row.urgent_us.is_some())
    }

    pub(crate) fn is_compacting(&self) -> bool {
        self.is_compacting
    }

    /// The approximate number and size of their arguments.
    pub(crate) fn size(&self) -> (usize, usize) {
        (4 * self.len() + 4, self.rows.iter().map(|row| row.bytes() + 32).sum())
    }

    /// The hint for this handle's waiting pulls, whether or not the server answered. Other handles get theirs
    /// from the server.
    pub(crate) fn hint(&self) -> Hint {
        let mut hint = Hint::default();
        for row in &self.rows {
            hint.add(row.hint());
        }
        hint
    }

    /// Adds the arguments: the common level, the script's own argument `besides`, and the messages.
    pub(crate) fn add_to(&self, call: &mut Call, besides: &[u8]) {
        let level = self.common_level();
        match level {
            Some(level) => call.int(level.into()),
            None if self.is_compacting => call.arg(b"-2"),
            None => call.arg(b"-1"),
        };
        call.arg(besides).arg(&runs(self.rows.iter().map(Row::id)));
        for row in &self.rows {
            call.arg(row.id.as_bytes()).arg(&row.record.bytes);
            if level.is_none() {
                match row.urgent_us {
                    Some(urgent_us) => call.arg(format!("{} {urgent_us}", row.delay_us).as_bytes()),
                    None => call.int(row.delay_us),
                };
            }
            if self.is_compacting {
                call.arg(code(row.on_duplicate));
            }
        }
    }

    /// Returns the level of all messages, and whether some are bulky, if the script needs to know nothing
    /// else about them.
    fn common_level(&self) -> Option<u8> {
        let level = self.rows.first()?.record.flag;
        let is_plain = |row: &Row| {
            row.record.flag == level
                && row.delay_us == 0
                && row.urgent_us.is_none()
                && row.bytes() <= LARGE_BYTES
        };
        let is_bulky = |row: &Row| row.bytes() > BULKY_BYTES;
        let bulky_bit = if self.rows.iter().any(is_bulky) { BULKY_BIT } else { 0 };
        (level < GROUPED && !self.is_compacting && self.rows.iter().all(is_plain))
            .then_some(level + bulky_bit)
    }
}

/// The code of the option for scripts. Core refuses options that this release does not know.
fn code(on_duplicate: OnDuplicate) -> &'static [u8] {
    match on_duplicate {
        OnDuplicate::Replace => b"R",
        OnDuplicate::Earlier => b"E",
        OnDuplicate::Behind => b"B",
        _ => b"",
    }
}

/// Checks a message's options against the limits, and returns its delay.
pub(crate) fn check(message: &MessageData, config: &Config) -> Result<Duration> {
    let priority = message.options().priority;
    if priority >= PRIORITY_LEVELS {
        return Err(
            ERRORS.invalid(format!("priority {priority} is out of range: 0 to {}", PRIORITY_LEVELS - 1))
        );
    }
    let delay = message.delay(config.clock.wall());
    if delay > MAX_DELAY {
        return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
    }
    if message.urgent_after(config.clock.wall()).is_some_and(|wait| wait > MAX_DELAY) {
        return Err(ERRORS
            .invalid("the moment from which the message is urgent is later than the capabilities allow"));
    }
    Ok(delay)
}

fn check_size(message: &MessageData, message_bytes: u64) -> Result<()> {
    let encoded_bytes = Envelope::max_encoded_len(message);
    if encoded_bytes <= message_bytes {
        return Ok(());
    }
    let text = format!("the encoded message has {encoded_bytes} bytes: at most {message_bytes} are allowed");
    Err(ERRORS.error(ErrorKind::TooLarge, text))
}
