//! Whatever bytes come from outside: they are read, or refused with an error; nothing panics, and no password is shown.
//!
//! `PROPTEST_CASES=1000000 cargo test --package anyqueue --test hostile` looks longer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Decoded, Envelope, StorageUrl};
use anyqueue::{Bytes, ErrorKind, MessageData, MessageId, PartitionId};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// Fields of every kind, also such as no guard of ours would let in.
fn envelopes() -> impl Strategy<Value = Envelope> {
    let texts = (option::of(".*"), option::of(".*"), option::of(".*"), option::of(".*"));
    let numbers = (any::<u8>(), option::of(any::<u64>()), option::of(any::<u32>()), option::of(any::<u64>()));
    let headers = btree_map(".*", ".*", 0..4);
    let rest = (any::<[u8; 16]>(), vec(any::<u8>(), 0..200), any::<u32>(), any::<u32>());
    (texts, numbers, headers, rest).prop_map(|(texts, numbers, headers, rest)| {
        let (id, payload, pushed_s, prior) = rest;
        let mut message = MessageData::with_id(MessageId::from_bytes(id), payload).with_priority(numbers.0);
        message = message.with_headers(headers.into_iter().collect::<BTreeMap<_, _>>());
        message = texts.0.into_iter().fold(message, MessageData::with_task_id);
        message = texts.1.into_iter().fold(message, MessageData::with_session_id);
        message = texts.2.into_iter().fold(message, MessageData::with_group);
        message = texts.3.into_iter().fold(message, MessageData::with_dedup_key);
        let millis = Duration::from_millis;
        message = numbers.1.into_iter().fold(message, |message, ms| message.with_time_to_live(millis(ms)));
        message = numbers.2.into_iter().fold(message, MessageData::with_max_retries);
        message = numbers.3.into_iter().fold(message, |message, ms| message.with_max_duration(millis(ms)));
        let pushed_at = SystemTime::UNIX_EPOCH + Duration::from_secs(pushed_s.into());
        let mut envelope = Envelope::new(message, pushed_at);
        envelope.prior_deliveries = prior;
        envelope
    })
}

/// One change to some bytes: another byte, one more, one less, an end that comes early.
#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Cut(prop::sample::Index),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Set(at, byte) => bytes[at.index(length)] = *byte,
            Self::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            Self::Remove(at) => drop(bytes.remove(at.index(length))),
            Self::Cut(at) => bytes.truncate(at.index(length)),
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = any::<prop::sample::Index>;
    let change = prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place(), any::<u8>()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        place().prop_map(Change::Remove),
        place().prop_map(Change::Cut),
    ];
    vec(change, 1..6)
}

/// Reads stored bytes; what can be read says the same when it is stored again.
fn read(bytes: Vec<u8>) {
    let stored = Bytes::from(bytes);
    match Envelope::decode(&stored) {
        Ok(Decoded::Foreign(payload)) => assert_eq!(payload, stored),
        Ok(Decoded::Envelope(envelope)) => {
            let again = Bytes::from(envelope.encode().unwrap());
            assert_eq!(again.len() as u64, envelope.encoded_len());
            assert!(Envelope::max_encoded_len(&envelope.message) >= envelope.encoded_len());
            assert_eq!(Envelope::decode(&again).unwrap(), Decoded::Envelope(envelope));
        }
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible)),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        read(bytes);
    }

    #[test]
    fn any_bytes_behind_the_mark_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        read([b"\xF6AQ\x01".as_slice(), &bytes].concat());
    }

    #[test]
    fn an_envelope_says_the_same_when_it_is_read(envelope in envelopes()) {
        let stored = Bytes::from(envelope.encode().unwrap());
        prop_assert_eq!(Envelope::decode(&stored).unwrap(), Decoded::Envelope(envelope));
    }

    #[test]
    fn a_damaged_envelope_is_read_or_refused(envelope in envelopes(), changes in changes()) {
        let mut bytes = envelope.encode().unwrap();
        for change in &changes {
            change.apply(&mut bytes);
        }
        read(bytes);
    }

    #[test]
    fn any_text_is_a_url_or_refused(text in ".*") {
        if let Ok(url) = StorageUrl::parse(&text) {
            let _ = (url.scheme(), url.path(), url.duration("wait"), url.option::<u32>("n"), format!("{url:?}"));
        }
    }

    #[test]
    fn no_password_of_a_url_is_shown(
        scheme in "(redis|amqp|postgres|rediss|x-y)", user in "[a-z]{0,5}", password in "[A-Z0-9]{8,20}", rest in "[a-z/?=&:.0-9]{0,20}",
    ) {
        let text = format!("{scheme}://{user}:{password}@host{rest}");
        match StorageUrl::parse(&text) {
            Ok(url) => prop_assert!(!format!("{url:?}").contains(&password), "{url:?}"),
            Err(error) => prop_assert!(!format!("{error} {error:?}").contains(&password), "{error:?}"),
        }
    }

    #[test]
    fn a_name_is_taken_exactly_as_it_is_documented(text in prop_oneof![".*", "[A-Za-z0-9._-]{0,70}"]) {
        let is_valid = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        match PartitionId::new(&text) {
            Ok(partition) => prop_assert!(is_valid && partition.name() == text),
            Err(error) => prop_assert!(!is_valid && error.kind() == ErrorKind::InvalidInput),
        }
    }

    #[test]
    fn any_text_is_an_id_or_refused(text in prop_oneof![".*", "[0-9a-fA-F-]{30,40}"]) {
        if let Ok(id) = text.parse::<MessageId>() {
            prop_assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
        }
    }
}
