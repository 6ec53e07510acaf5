//! The stored form of a message: a part that scripts read, then core's envelope.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Decoded, Envelope};
use anyqueue::{Bytes, Error, ErrorKind, MessageData, MessageId, PartitionId, Result};

use crate::error::ERRORS;
use crate::limits::PRIORITY_LEVELS;
use crate::names::partition_kind;

/// Set if a message has a group.
pub(crate) const GROUPED: u8 = 16;
/// Set if a message has a deduplication key.
pub(crate) const KEYED: u8 = 32;
/// The size of the flag, the time, and the kind of partition.
const FIXED_BYTES: usize = 10;

/// A message to be stored.
pub(crate) struct Record {
    pub(crate) flag: u8,
    pub(crate) bytes: Vec<u8>,
}

/// Encodes a message that is pushed at this server time, in microseconds.
pub(crate) fn encode(message: &MessageData, partition: &PartitionId, at_us: u64) -> Result<Record> {
    let options = message.options();
    let group = options.group.as_deref();
    let key = options.dedup_key.as_deref().filter(|_| !partition.is_dead_letters());
    let flag =
        options.priority + if group.is_some() { GROUPED } else { 0 } + if key.is_some() { KEYED } else { 0 };
    let mut bytes = Vec::with_capacity(message.payload().len() + 128);
    bytes.push(flag);
    bytes.extend_from_slice(&at_us.to_be_bytes());
    bytes.push(partition_kind(partition));
    for text in [group, key].into_iter().flatten() {
        let length = u16::try_from(text.len()).map_err(|_| too_long())?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    let mut envelope = Envelope::new(message.clone(), SystemTime::UNIX_EPOCH);
    envelope.pushed_at = None; // the record has it, by the server's clock
    bytes.append(&mut envelope.encode()?);
    Ok(Record { flag, bytes })
}

fn too_long() -> Error {
    ERRORS.error(ErrorKind::InvalidInput, "a group or a key is longer than 65535 bytes")
}

/// A stored message.
pub(crate) struct Stored {
    pub(crate) flag: u8,
    /// When it was pushed, by the server's clock, in microseconds.
    pub(crate) pushed_us: u64,
    pub(crate) message: MessageData,
}

impl Stored {
    /// The age of the message at this server time.
    pub(crate) fn age(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us.saturating_sub(self.pushed_us))
    }
}

/// Reads a record. `headers` is the envelope with replaced headers, if there is one.
pub(crate) fn decode(record: &Bytes, headers: Option<Bytes>) -> Result<Stored> {
    let (flag, pushed_us, start) = read_front(record).ok_or_else(damaged)?;
    let Decoded::Envelope(envelope) = Envelope::decode(&record.slice(start..))? else {
        return Err(damaged());
    };
    let mut message = envelope.message;
    if let Some(headers) = headers {
        let replaced = Envelope::decode(&headers)?.into_message("");
        message = message.with_headers(replaced.headers().clone());
    }
    Ok(Stored { flag, pushed_us, message })
}

/// Returns what is known about a record that cannot be read. The payload is the stored form. `level` is the
/// level of the list that the record came from.
pub(crate) fn undecoded(
    id: MessageId,
    record: &Bytes,
    headers: Option<Bytes>,
    level: u8,
    now_us: u64,
) -> Stored {
    let front = read_front(record).filter(|(flag, ..)| flag % GROUPED < PRIORITY_LEVELS && *flag < 2 * KEYED);
    let (flag, pushed_us, start) = front.unwrap_or((level, now_us, 0));
    let mut message = MessageData::with_id(id, record.slice(start..));
    if let Some(Ok(Decoded::Envelope(replaced))) = headers.map(|headers| Envelope::decode(&headers)) {
        message = message.with_headers(replaced.message.headers().clone());
    }
    Stored { flag, pushed_us, message }
}

/// Reads the flag and the time, and returns where the envelope begins.
fn read_front(record: &[u8]) -> Option<(u8, u64, usize)> {
    let (flag, rest) = record.split_first()?;
    let pushed_us = u64::from_be_bytes(*rest.first_chunk()?);
    let mut start = FIXED_BYTES;
    for bit in [GROUPED, KEYED] {
        if flag & bit != 0 {
            let length = u16::from_be_bytes(*record.get(start..)?.first_chunk()?);
            start += 2 + usize::from(length);
        }
    }
    (start <= record.len()).then_some((*flag, pushed_us, start))
}

fn damaged() -> Error {
    ERRORS.error(ErrorKind::Corrupt, "a stored message cannot be parsed")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let partition = PartitionId::new("mail").unwrap();
        for message in [
            MessageData::new("plain"),
            MessageData::new("full")
                .with_group("g")
                .with_dedup_key("k")
                .with_priority(9)
                .with_header("a", "b"),
            MessageData::new("").with_dedup_key("key"),
        ] {
            for partition in [partition.clone(), partition.dead_letters()] {
                let record = encode(&message, &partition, 17).unwrap();
                let stored = decode(&Bytes::from(record.bytes), None).unwrap();
                assert_eq!((stored.flag, stored.pushed_us), (record.flag, 17));
                assert_eq!(stored.message, message);
            }
        }
    }

    #[test]
    fn what_is_cut_short_is_damaged() {
        let message = MessageData::new("x").with_group("group").with_dedup_key("key");
        let record = encode(&message, &PartitionId::new("p").unwrap(), 1).unwrap().bytes;
        for length in 0..record.len() {
            let cut = Bytes::copy_from_slice(record.get(..length).unwrap());
            assert!(decode(&cut, None).is_err(), "{length} bytes");
        }
    }

    fn options() -> impl Strategy<Value = MessageData> {
        let (payload, text) = (vec(any::<u8>(), 0..64), proptest::option::of(".{0,40}"));
        (payload, text.clone(), text, 0..PRIORITY_LEVELS).prop_map(|(payload, group, key, priority)| {
            let mut message = MessageData::new(payload).with_priority(priority);
            if let Some(group) = group {
                message = message.with_group(group);
            }
            if let Some(key) = key {
                message = message.with_dedup_key(key);
            }
            message
        })
    }

    /// Does what a pull does with a record: one that cannot be parsed is delivered as it is stored.
    fn read_or_refused(bytes: Vec<u8>) {
        let record = Bytes::from(bytes);
        if decode(&record, None).is_err() {
            let stored = undecoded(MessageId::new(), &record, Some(record.clone()), 0, 1);
            assert!(record.ends_with(stored.message.payload()));
            assert!(stored.flag % GROUPED < PRIORITY_LEVELS);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_stored_comes_back(message in options(), at in any::<u64>()) {
            let record = encode(&message, &PartitionId::new("p").unwrap(), at).unwrap();
            let stored = decode(&Bytes::from(record.bytes), None).unwrap();
            prop_assert_eq!((stored.flag, stored.pushed_us), (record.flag, at));
            prop_assert_eq!(stored.message, message);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            read_or_refused(bytes);
        }

        #[test]
        fn a_record_with_other_bytes_in_it_is_read_or_refused(
            message in options(),
            changes in vec((any::<Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = encode(&message, &PartitionId::new("p").unwrap(), 1).unwrap().bytes;
            for (place, byte) in changes {
                let length = bytes.len();
                if let Some(there) = bytes.get_mut(place.index(length)) {
                    *there = byte;
                }
            }
            read_or_refused(bytes);
        }
    }
}
