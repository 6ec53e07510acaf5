//! The entries of limits: what may be put, what others have put there, and several who put at once.

use anyqueue::ErrorKind;
use anyqueue::control::{Change, Expect, Key};
use anyqueue_control::limits::{Limit, PermitOptions, Scope};
use anyqueue_worker::Permits;

use crate::bed::{Bed, mail, secs};

fn partition() -> Limit {
    Limit::partition("mail").unwrap()
}

#[tokio::test]
async fn what_makes_no_limit_is_refused_and_says_why() {
    let bed = Bed::new();
    let bad = [
        (partition(), "it limits nothing"),
        (partition().cap(0), "pause the partition"),
        (partition().cap(2_000_000), "at most 1000000"),
        (partition().rate(0.0, 1), "a rate of 0"),
        (partition().rate(f64::NAN, 1), "a rate of NaN"),
        (partition().rate(-1.0, 1), "a rate of -1"),
        (partition().rate(1.0, 0), "a burst of 0"),
        (partition().rate(0.000_001, 1_000_000), "set a smaller one"),
    ];
    for (limit, why) in bad {
        let error = bed.limits.put("l", &limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{error}");
    }
    for name in ["", "a\nb", &"x".repeat(500)] {
        assert!(bed.limits.put(name, &partition().cap(1)).await.is_err(), "{name:?}");
    }
    assert!(bed.limits.list().await.unwrap().limits.is_empty());
    let short = PermitOptions::default().with_valid_for(secs(14));
    assert!(bed.limits.permits(short).unwrap_err().to_string().contains("three times"));
}

#[tokio::test]
async fn of_many_who_put_at_once_one_is_last_and_no_permit_is_lost() {
    let bed = Bed::new();
    bed.limits.put("l", &partition().cap(3)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 3).await, 3);
    let puts = (1..9).map(|cap| {
        let limits = bed.limits.clone();
        async move { limits.put("l", &partition().cap(cap)).await.unwrap() }
    });
    futures_util::future::join_all(puts).await;
    let info = bed.info().await;
    assert_eq!((info.revision, info.held), (9, 3));
    assert_eq!(info.of, Scope::Partition("mail".to_owned()));
    bed.limits.put("l", &Limit::partition("other").unwrap().cap(3)).await.unwrap();
    assert_eq!(bed.info().await.held, 0, "those were of another partition");
}

#[tokio::test]
async fn what_nobody_can_read_is_told_and_stops_nobody_else() {
    let bed = Bed::new();
    bed.limits.put("l", &partition().cap(3)).await.unwrap();
    for (name, value) in [("broken", "{"), ("newer", r#"{"format":9}"#)] {
        let key = Key::new(format!("limit/{name}")).unwrap();
        assert!(bed.store.apply(Change::put(key, Expect::Absent, value)).await.unwrap().value.is_done());
    }
    let list = bed.limits.list().await.unwrap();
    assert_eq!((list.limits.len(), list.unreadable.len()), (1, 2));
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 9).await, 3);
    let problem = a.permits.problem().unwrap();
    assert!(problem.contains("the limit broken") && problem.contains("upgrade"), "{problem}");
    assert!(bed.limits.put("newer", &partition().cap(1)).await.is_err());
    bed.limits.put("broken", &partition().cap(1)).await.unwrap();
}

#[tokio::test]
async fn a_limit_that_becomes_unreadable_is_obeyed_by_starting_nothing_more() {
    let bed = Bed::new();
    bed.limits.put("l", &partition().cap(3)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 1).await, 1);
    let key = Key::new("limit/l").unwrap();
    assert!(bed.store.apply(Change::put(key, Expect::Any, "{")).await.unwrap().value.is_done());
    bed.pass(secs(20)).await;
    assert_eq!((a.take(1), a.permits.can_start(&mail(), 1)), (0, false));
    bed.limits.put("l", &partition().cap(3)).await.unwrap();
    bed.pass(secs(12)).await;
    assert_eq!((a.get(&bed, 1).await, a.permits.can_start(&mail(), 1)), (1, true));
}
