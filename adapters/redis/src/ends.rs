//! The ends of tasks, in the form in which scripts store them.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{EndedTask, SeriesCell, TaskEnd};
use anyqueue::{Bytes, Error, ErrorKind, MessageId, Result};

use crate::clock::millis;
use crate::error::ERRORS;
use crate::link::Call;

/// The expiry of ends that are kept until they are deleted, in milliseconds since 1970: all bits of six bytes
/// are set. Scripts have the same constant.
const NEVER_MS: u64 = (1 << 48) - 1;
/// Ends that would be kept for longer than this, about four thousand years, are kept until they are deleted.
const LONGEST_MS: u64 = 1 << 47;
/// Added to the state of an end that has a result.
const WITH_RESULT: u8 = 16;
/// The size of the moment, the expiry, the rank and the state.
const FRONT_BYTES: usize = 6 + 6 + 8 + 1;

/// An end, prepared to be stored.
#[derive(Clone)]
pub(crate) struct StoredEnd {
    /// Empty if the end is only counted.
    bytes: Vec<u8>,
    result: Option<Bytes>,
    /// What is counted.
    count: Vec<u8>,
    /// Whether it expires.
    pub(crate) lapses: bool,
}

impl StoredEnd {
    /// Encodes an end that is counted and, unless its time to be kept is zero, stored.
    pub(crate) fn encode(end: &TaskEnd) -> Result<Self> {
        if !end.is_kept() {
            return Ok(Self::only_counted(end));
        }
        let keep_ms = end.keep.map(millis).filter(|keep_ms| *keep_ms <= LONGEST_MS);
        let has_result = if end.result.is_some() { WITH_RESULT } else { 0 };
        let mut bytes = six_bytes(keep_ms.unwrap_or(NEVER_MS)).to_vec();
        bytes.extend_from_slice(&end.rank().to_be_bytes());
        bytes.push(end.state.code() + has_result);
        bytes.append(&mut end.encode()?);
        Ok(Self { bytes, result: end.result.clone(), count: counted(end), lapses: keep_ms.is_some() })
    }

    pub(crate) fn only_counted(end: &TaskEnd) -> Self {
        Self { bytes: Vec::new(), result: None, count: counted(end), lapses: false }
    }
}

/// Encodes what scripts count of an end: the name of its counter, its generation, its durations, and its
/// kind.
fn counted(end: &TaskEnd) -> Vec<u8> {
    // The server determines the minute.
    let SeriesCell { key, ran, waited, .. } = SeriesCell::of(end, SystemTime::UNIX_EPOCH);
    let [generation @ .., _, _, _, _, _, _] = end.rank().to_be_bytes();
    let kind = key.kind.as_deref().unwrap_or_default();
    // Core truncates kinds long before this limit.
    let length = u16::try_from(kind.len()).unwrap_or(u16::MAX);
    let micros = |time: Duration| six_bytes(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let mut bytes = vec![key.state.code(), key.ran_bucket, key.waited_bucket];
    bytes.extend_from_slice(&generation);
    bytes.extend_from_slice(&micros(ran));
    bytes.extend_from_slice(&micros(waited));
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend(kind.bytes().take(usize::from(length)));
    bytes
}

/// Adds the ends that one call stores. Each has the number of the settlement that brings it: the position of
/// its answer, from 1.
pub(crate) fn add_to<'e>(
    call: &mut Call,
    ends: impl Iterator<Item = (u16, MessageId, &'e StoredEnd)> + Clone,
) {
    let heads: Vec<u8> = ends
        .clone()
        .flat_map(|(number, id, _)| number.to_be_bytes().into_iter().chain(*id.as_bytes()))
        .collect();
    call.arg(&heads);
    call.arg(&ends.clone().flat_map(|(_, _, end)| end.count.iter().copied()).collect::<Vec<u8>>());
    for (_, _, end) in ends {
        call.arg(&end.bytes);
        if let Some(result) = &end.result {
            call.arg(result);
        }
    }
}

/// Returns the approximate number and size of the arguments of these ends.
pub(crate) fn size<'e>(ends: impl Iterator<Item = &'e StoredEnd>) -> (usize, usize) {
    ends.fold((2, 64), |(args, bytes), end| {
        let result = end.result.as_ref().map_or(0, Bytes::len);
        (args + 2, bytes + end.bytes.len() + end.count.len() + result + 64)
    })
}

/// Reads a stored end, and its result, if that was fetched.
pub(crate) fn decode(id: MessageId, record: &[u8], result: Option<Vec<u8>>) -> Result<EndedTask> {
    let (ended_ms, lapses_ms, flag, body) = split(record).ok_or_else(damaged)?;
    let mut end = TaskEnd::decode(body)?;
    if flag & WITH_RESULT != 0 {
        end.result = result.map(Bytes::from);
    }
    let expires_at = (lapses_ms < NEVER_MS).then(|| time(lapses_ms));
    Ok(EndedTask::new(id, time(ended_ms), expires_at, end.into()))
}

fn split(record: &[u8]) -> Option<(u64, u64, u8, &[u8])> {
    let (front, body) = record.split_at_checked(FRONT_BYTES)?;
    let (ended, rest) = front.split_first_chunk()?;
    let (lapses, rest) = rest.split_first_chunk()?;
    Some((number(*ended), number(*lapses), *rest.last()?, body))
}

fn damaged() -> Error {
    ERRORS.error(ErrorKind::Corrupt, "the stored end of a task cannot be parsed")
}

fn number(bytes: [u8; 6]) -> u64 {
    bytes.into_iter().fold(0, |number, byte| number << 8 | u64::from(byte))
}

fn time(since_1970_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(since_1970_ms)
}

/// Returns the last six bytes of a number.
pub(crate) fn six_bytes(number: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = number.to_be_bytes();
    bytes
}

/// Returns the first whole millisecond that is not before this time, as it is stored in lists, and whether it
/// is exactly that time.
pub(crate) fn moment(at: SystemTime) -> ([u8; 6], bool) {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since_ms = millis(since).min(NEVER_MS);
    (six_bytes(since_ms), time(since_ms) == at)
}

#[cfg(test)]
mod tests {
    use anyqueue::EndState;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a script stores of an end at this moment.
    fn stored(end: &TaskEnd, ended_ms: u64) -> Vec<u8> {
        let sent = StoredEnd::encode(end).unwrap().bytes;
        let keep_ms = number(*sent.first_chunk().unwrap());
        let lapses_ms = if keep_ms == NEVER_MS { NEVER_MS } else { ended_ms + keep_ms };
        [&six_bytes(ended_ms), &six_bytes(lapses_ms), &sent[6..]].concat()
    }

    #[test]
    fn what_is_stored_comes_back() {
        let end = TaskEnd::new(EndState::Failed).with_attempt(3).with_result("x");
        let id = MessageId::new();
        for (keep, kept) in [
            (Some(Duration::from_micros(1)), Some(time(1001))),
            (Some(Duration::from_millis(LONGEST_MS)), Some(time(LONGEST_MS + 1000))),
            (Some(Duration::MAX), None),
            (None, None),
        ] {
            let end = end.clone().with_keep(keep);
            let ended = decode(id, &stored(&end, 1000), Some(b"x".to_vec())).unwrap();
            assert_eq!((ended.id, ended.ended_at, ended.expires_at), (id, time(1000), kept));
            assert_eq!(*ended.end, end.with_keep(None));
        }
    }

    #[test]
    fn what_is_cut_short_is_damaged() {
        let record = stored(&TaskEnd::new(EndState::Succeeded), 1);
        for length in 0..record.len() {
            let error = decode(MessageId::new(), &record[..length], None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{length} bytes");
        }
    }

    #[test]
    fn a_time_between_two_milliseconds_is_the_second_one() {
        for (at_ns, at_ms, is_exact) in
            [(0, 0, true), (1, 1, false), (1_000_000, 1, true), (1_000_001, 2, false)]
        {
            let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(at_ns);
            assert_eq!(moment(at), (six_bytes(at_ms), is_exact));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            drop(decode(MessageId::new(), &bytes, Some(bytes.clone())));
        }
    }
}
