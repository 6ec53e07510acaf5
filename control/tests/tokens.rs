//! Tokens in a store.

#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::time::Duration;

use anyqueue::control::{Change, ControlStore, Expect, Key};
use anyqueue::{ErrorKind, Queue};
use anyqueue_control::tokens::{Right, Rights, Tokens};
use anyqueue_memory::MemoryQueue;

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
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
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
