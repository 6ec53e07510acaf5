//! Tokens in a store.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::time::Duration;

use anyqueue::control::{Change, ControlStore, Expect, Key, MAX_CONTROL_CHANGES};
use anyqueue::{ErrorKind, ManualClock, Queue};
use anyqueue_control::tokens::{Bound, Fingerprint, MAX_CERTIFICATES, Right, Rights, TokenInfo, Tokens};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

fn store() -> ControlStore {
    Queue::new(MemoryQueue::new()).unwrap().control().unwrap()
}

fn reads() -> Rights {
    Rights::new([Right::Read], ["mail"])
}

#[tokio::test]
async fn a_token_opens_until_it_is_deleted_and_the_store_does_not_hold_it() {
    let store = store();
    let tokens = Tokens::new(store.clone());
    let secret = tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    let verified = tokens.verify(&secret.text()).await.unwrap().unwrap();
    assert_eq!((verified.name.as_str(), &verified.rights), ("ci", &reads()));
    let entry = store.get(&Key::new("token/ci").unwrap()).await.unwrap().value.unwrap();
    let digits = secret.text().rsplit_once('_').unwrap().1.to_owned();
    assert!(!String::from_utf8_lossy(&entry.value).contains(&digits));

    assert!(tokens.create("ci", &Rights::everything(), None).await.unwrap().is_none(), "the name is taken");
    assert!(tokens.still(&verified).await.unwrap().is_some());
    assert!(tokens.delete("ci").await.unwrap() && !tokens.delete("ci").await.unwrap());
    assert!(tokens.verify(&secret.text()).await.unwrap().is_none());
    assert!(tokens.still(&verified).await.unwrap().is_none());

    let again = tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    assert!(tokens.verify(&secret.text()).await.unwrap().is_none(), "the old secret of a new token");
    assert!(tokens.still(&verified).await.unwrap().is_none(), "whoever entered with the old one");
    assert!(tokens.verify(&again.text()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_token_whose_time_is_over_opens_nothing_and_is_still_listed() {
    let tokens = Tokens::new(store());
    let short = Duration::from_millis(1);
    let secret = tokens.create("short", &reads(), Some(short)).await.unwrap().unwrap();
    let gone = async {
        while tokens.verify(&secret.text()).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.unwrap();
    let listed = tokens.list().await.unwrap().tokens;
    assert!(listed[0].expires_at.is_some());
    assert!(tokens.still(&listed[0]).await.unwrap().is_none());
}

#[tokio::test]
async fn what_cannot_be_read_opens_nothing_and_can_be_deleted() {
    let store = store();
    let tokens = Tokens::new(store.clone());
    let secret = tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    store.apply(Change::put(Key::new("token/ci").unwrap(), Expect::Any, "{")).await.unwrap();
    assert_eq!(tokens.verify(&secret.text()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(tokens.list().await.unwrap().unreadable[0].0, "ci");
    assert!(tokens.delete("ci").await.unwrap());
}

#[tokio::test]
async fn of_two_who_create_a_token_of_one_name_one_has_it() {
    let tokens = Tokens::new(store());
    let rights = reads();
    let (one, other) = tokio::join!(tokens.create("ci", &rights, None), tokens.create("ci", &rights, None));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(usize::from(one.is_some()) + usize::from(other.is_some()), 1);
    let secret = one.or(other).unwrap();
    assert!(tokens.verify(&secret.text()).await.unwrap().is_some());
}

#[tokio::test]
async fn bad_names_and_times_are_refused() {
    let tokens = Tokens::new(store());
    for name in ["", "A", "a_b", "a/b", &"a".repeat(65)] {
        let refused = tokens.create(name, &reads(), None).await.unwrap_err();
        assert!(refused.to_string().contains("token's name"), "{refused}");
    }
    for time in [Duration::ZERO, Duration::MAX] {
        let refused = tokens.create("a", &reads(), Some(time)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{time:?}");
    }
}

async fn name_of(tokens: &Tokens, certificate: &Fingerprint) -> Option<String> {
    tokens.of_certificate(certificate).await.unwrap().map(|token: TokenInfo| token.name)
}

#[tokio::test]
async fn a_certificate_stands_for_its_token_alone_until_it_is_unbound() {
    let store = store();
    let tokens = Tokens::new(store.clone());
    let (old, new, others) = (Fingerprint::of(b"old"), Fingerprint::of(b"new"), Fingerprint::of(b"others"));
    assert_eq!(tokens.bind("ci", &old).await.unwrap(), Bound::NoToken);
    let secret = tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    tokens.create("ops", &Rights::everything(), None).await.unwrap().unwrap();
    assert_eq!(name_of(&tokens, &old).await, None);
    for certificate in [&old, &new, &old] {
        assert_eq!(
            tokens.bind("ci", certificate).await.unwrap(),
            Bound::Done,
            "a new one beside the old one"
        );
    }
    assert_eq!(tokens.bind("ops", &others).await.unwrap(), Bound::Done);
    assert_eq!(tokens.bind("ops", &old).await.unwrap(), Bound::Taken("ci".to_owned()));
    let found = tokens.of_certificate(&new).await.unwrap().unwrap();
    assert_eq!(found, tokens.verify(&secret.text()).await.unwrap().unwrap(), "all of the token");
    let mut expected = vec![("ci".to_owned(), old), ("ci".to_owned(), new)];
    expected.sort_unstable();
    expected.push(("ops".to_owned(), others));
    assert_eq!(tokens.certificates().await.unwrap(), expected);

    assert!(tokens.unbind(&old).await.unwrap() && !tokens.unbind(&old).await.unwrap());
    assert_eq!(name_of(&tokens, &old).await, None);
    assert_eq!(name_of(&tokens, &new).await.as_deref(), Some("ci"));
    assert!(tokens.verify(&secret.text()).await.unwrap().is_some(), "the token is left");
    assert_eq!(tokens.bind("ops", &old).await.unwrap(), Bound::Done, "it is free");
}

#[tokio::test]
async fn a_certificate_stands_for_nobody_once_its_token_is_deleted_or_another_of_its_name() {
    let store = store();
    let tokens = Tokens::new(store.clone());
    let certificate = Fingerprint::of(b"x");
    let key = Key::new(format!("certificate/{certificate}")).unwrap();
    tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    assert_eq!(tokens.bind("ci", &certificate).await.unwrap(), Bound::Done);
    let binding = store.get(&key).await.unwrap().value.unwrap();
    assert!(tokens.delete("ci").await.unwrap());
    assert!(store.get(&key).await.unwrap().value.is_none(), "nothing is left of it");
    // As if somebody had bound it just as the token was deleted.
    store.apply(Change::put(key.clone(), Expect::Absent, binding.value)).await.unwrap();
    assert_eq!(name_of(&tokens, &certificate).await, None);
    tokens.create("ci", &Rights::everything(), None).await.unwrap().unwrap();
    assert_eq!(name_of(&tokens, &certificate).await, None, "another token");
    assert!(tokens.certificates().await.unwrap().is_empty());
    tokens.create("ops", &reads(), None).await.unwrap().unwrap();
    assert_eq!(tokens.bind("ops", &certificate).await.unwrap(), Bound::Done, "nobody has it");
    store.apply(Change::put(key, Expect::Any, "{")).await.unwrap();
    let refused = tokens.of_certificate(&certificate).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert_eq!(tokens.bind("ops", &certificate).await.unwrap(), Bound::Done, "it is written anew");
}

/// A store whose time a test sets.
fn clocked() -> (ManualClock, ControlStore) {
    let clock = ManualClock::new();
    let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
    (clock, Queue::new(memory).unwrap().control().unwrap())
}

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_certificate_stands_for_its_token_for_as_long_as_that_counts() {
    let (clock, store) = clocked();
    let tokens = Tokens::new(store);
    let (certificate, another) = (Fingerprint::of(b"x"), Fingerprint::of(b"y"));
    tokens.create("short", &reads(), Some(HOUR)).await.unwrap().unwrap();
    assert_eq!(tokens.bind("short", &certificate).await.unwrap(), Bound::Done);
    assert_eq!(name_of(&tokens, &certificate).await.as_deref(), Some("short"));
    clock.advance(HOUR);
    assert_eq!(name_of(&tokens, &certificate).await, None);
    for certificate in [&certificate, &another] {
        assert_eq!(tokens.bind("short", certificate).await.unwrap(), Bound::Expired);
        assert_eq!(name_of(&tokens, certificate).await, None);
    }
    tokens.create("ci", &reads(), None).await.unwrap().unwrap();
    assert_eq!(tokens.bind("ci", &certificate).await.unwrap(), Bound::Done, "it is free");
}

#[tokio::test]
async fn bindings_that_stand_for_nobody_make_room_for_others_and_no_others_do() {
    let (clock, store) = clocked();
    let tokens = Tokens::new(store.clone());
    let key = |certificate: &Fingerprint| Key::new(format!("certificate/{certificate}")).unwrap();
    let numbered = |number: usize| Fingerprint::of(&number.to_be_bytes());
    for (name, valid, certificate) in [("gone", None, 0), ("short", Some(HOUR), 1), ("ci", None, 2)] {
        tokens.create(name, &reads(), valid).await.unwrap().unwrap();
        assert_eq!(tokens.bind(name, &numbered(certificate)).await.unwrap(), Bound::Done);
    }
    let binding = async |number| store.get(&key(&numbered(number))).await.unwrap().value;
    let (gone, alive) = (binding(0).await.unwrap().value, binding(2).await.unwrap().value);
    assert!(tokens.delete("gone").await.unwrap());
    // As if somebody had bound it just as the token was deleted; one is damaged; and as many more as there is room for.
    let put = |number, value| Change::put(key(&numbered(number)), Expect::Absent, value);
    let rest = (4..MAX_CERTIFICATES).map(|number| put(number, alive.clone()));
    let all: Vec<_> = [put(0, gone), put(3, "{".into())].into_iter().chain(rest).collect();
    for some in all.chunks(MAX_CONTROL_CHANGES) {
        store.apply_all(some.to_vec()).await.unwrap();
    }
    let bind = async |number| tokens.bind("ci", &numbered(MAX_CERTIFICATES + number)).await;
    assert_eq!(bind(0).await.unwrap(), Bound::Done);
    assert!(binding(0).await.is_none(), "the one of the token that is gone made room");
    assert_eq!(bind(1).await.unwrap_err().kind(), ErrorKind::Full);
    clock.advance(HOUR);
    assert_eq!(bind(1).await.unwrap(), Bound::Done);
    assert!(binding(1).await.is_none(), "the one of the token whose time is over did");
    assert_eq!(bind(2).await.unwrap_err().kind(), ErrorKind::Full);
    assert!(binding(3).await.is_some(), "what cannot be read is left");
    let counting = tokens.certificates().await.unwrap();
    assert_eq!(counting.len(), MAX_CERTIFICATES - 1, "all others stand for their token");
}
