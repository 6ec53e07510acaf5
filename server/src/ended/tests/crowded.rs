//! Many queues, slow ones, ones that are too large, and people who ask for much: everybody sees something in
//! time, and in the end all of it.

use std::time::Duration;

use anyqueue::EndState::Succeeded;
use futures_util::future::{join, join_all};
use tokio::time::{Instant, timeout};

use super::super::answers::EVERY;
use super::super::counting::Counting;
use super::super::{Counted, DEADLINE, EndCounts, LEAST, MAX_KINDS, MAX_QUEUES};
use super::{asked, bed, told};
use crate::span::Span;

const QUEUES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn tasks(counted: &Counted) -> u64 {
    counted.steps.iter().map(|(_, step)| step.tasks()).sum()
}

async fn all(counts: &EndCounts) -> Counted {
    counts.over(Span::Hour, &QUEUES, None).await
}

/// Looks again, each time after a rest, until this many are seen; returns what was seen then.
async fn looks_until(counts: &EndCounts, ledger: &Counting, wanted: u64, most_looks: usize) -> Counted {
    for _ in 0..most_looks {
        ledger.clock.advance(Duration::from_secs(30));
        let seen = all(counts).await;
        if tasks(&seen) == wanted {
            return seen;
        }
    }
    panic!("{most_looks} looks did not show all {wanted}");
}

#[tokio::test(start_paused = true)]
async fn queues_that_take_longer_than_a_look_are_all_known_in_turn() {
    let (counts, ledger) = bed();
    for name in QUEUES {
        ledger.ended(name, 2, Succeeded, 1, (1, 1));
        ledger.ended(name, 40, Succeeded, 1, (1, 1));
    }
    ledger.told(|told| told.takes = Duration::from_millis(700));
    // A look has room for three questions, and each queue takes two.
    let seen = looks_until(&counts, &ledger, 16, 6).await;
    assert!(!seen.is_whole, "some were read too long ago for that");
    for name in QUEUES {
        ledger.ended(name, 0, Succeeded, 10, (1, 1));
    }
    let seen = looks_until(&counts, &ledger, 96, 3).await;
    assert!(!seen.is_whole, "three looks are more than a minute");
    ledger.told(|told| told.takes = Duration::ZERO);
    ledger.clock.advance(Duration::from_secs(30));
    assert!(all(&counts).await.is_whole);
    ledger.clock.advance(Duration::from_secs(50));
    ledger.told(|told| told.problem = Some("it is away"));
    assert!(all(&counts).await.is_whole, "that was less than a minute ago");
    ledger.clock.advance(Duration::from_secs(11));
    assert!(!all(&counts).await.is_whole);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_never_answers_keeps_no_other_one_from_being_known() {
    let (counts, ledger) = bed();
    ledger.told(|told| told.hangs = vec!["p"]);
    ledger.ended("q", 1, Succeeded, 1, (1, 1));
    ledger.ended("r", 30, Succeeded, 2, (1, 1));
    let seen = counts.over(Span::Hour, &["p", "q", "r"], None).await;
    assert_eq!(tasks(&seen), 3);
    let missing: Vec<_> = seen.missing.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((missing, seen.is_whole), (vec!["p"], false));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_at_once_is_asked_for_in_parts_and_counted_once() {
    let (counts, ledger) = bed();
    for minutes in [0, 3, 5, 9, 12, 13, 30, 59, 60] {
        ledger.ended("p", minutes, Succeeded, 1, (1, 1));
    }
    ledger.told(|told| (told.most_minutes, told.takes) = (Some(3), Duration::from_millis(100)));
    let mut looks = 0;
    loop {
        let seen = counts.over(Span::Hour, &["p"], None).await;
        if seen.is_whole {
            assert_eq!(tasks(&seen), 9, "after {looks} looks");
            break;
        }
        looks += 1;
        assert!(looks < 20, "{seen:?}");
        ledger.clock.advance(Duration::from_secs(16));
    }
    assert!(looks > 0, "that is more than a look has time for");
    // What cannot be asked for in smaller parts is reported as missing.
    let (counts, ledger) = bed();
    ledger.told(|told| told.most_minutes = Some(0));
    let seen = counts.over(Span::Hour, &["p"], None).await;
    assert_eq!(seen.missing, [("p".to_owned(), "it is too much".to_owned())]);
    assert!(asked(&ledger).len() < 10, "not again and again in one look");
}

#[tokio::test(start_paused = true)]
async fn many_who_look_at_what_hangs_keep_nobody_waiting_for_longer_than_one() {
    let (counts, ledger) = bed();
    ledger.ended("p", 30, Succeeded, 3, (1, 1));
    told(&counts, Span::Hour).await;
    ledger.clock.advance(EVERY);
    let strange = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
    ledger.told(|told| told.hangs = strange.to_vec());
    let look = async |name| counts.over(Span::Hour, &[name], None).await;
    let begun = Instant::now();
    let (others, seen) = join(join_all(strange.map(look)), told(&counts, Span::Hour)).await;
    assert!(begun.elapsed() < DEADLINE + LEAST, "{:?}", begun.elapsed());
    assert_eq!(seen, [(6, 3)], "what is known is shown");
    assert!(others.iter().all(|seen| !seen.is_whole));
}

#[tokio::test(start_paused = true)]
async fn what_is_new_takes_a_quarter_of_the_time_and_keeps_nothing_known_from_being_asked_for() {
    let (counts, ledger) = bed();
    told(&counts, Span::Hour).await;
    asked(&ledger);
    ledger.told(|told| told.takes = Duration::from_millis(700));
    let look = async |number: usize| {
        counts.over(Span::Hour, &[&format!("made-up-{number}")], None).await;
    };
    for number in 0..20 {
        look(number).await;
    }
    assert_eq!(asked(&ledger).len(), 2, "of the first one");
    ledger.clock.advance(Duration::from_millis(4_100));
    look(20).await;
    assert_eq!(asked(&ledger).len(), 0);
    told(&counts, Span::Hour).await;
    assert_eq!(asked(&ledger).len(), 1, "it has paused");
    ledger.clock.advance(Duration::from_millis(200));
    look(21).await;
    assert_eq!(asked(&ledger).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_it_is_asked_has_used_the_time() {
    let (counts, ledger) = bed();
    ledger.told(|told| (told.takes, told.hangs) = (Duration::from_secs(1), vec!["p"]));
    let look = async |name| counts.over(Span::Hour, &[name], None).await;
    assert!(timeout(Duration::from_millis(50), look("p")).await.is_err());
    ledger.told(|told| (told.takes, told.hangs) = (Duration::ZERO, vec![]));
    assert_eq!(asked(&ledger).len(), 1);
    assert!(!look("q").await.is_whole);
    assert_eq!(asked(&ledger).len(), 0);
    ledger.clock.advance(Duration::from_secs(3));
    assert!(look("q").await.is_whole);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_has_room_and_what_is_made_up_goes_first() {
    let (counts, ledger) = bed();
    ledger.ended("p", 30, Succeeded, 3, (1, 1));
    told(&counts, Span::Hour).await;
    for number in 0..MAX_QUEUES + 10 {
        ledger.clock.advance(Duration::from_millis(1));
        let name = format!("made-up-{number}");
        counts.over(Span::Hour, &["q"], Some(&name)).await;
        counts.over(Span::Hour, &[&name], None).await;
    }
    asked(&ledger);
    assert_eq!(told(&counts, Span::Hour).await, [(6, 3)]);
    assert_eq!(asked(&ledger), [], "it was kept");
    for (kept, room) in [(&counts.queues, MAX_QUEUES), (&counts.kinds, MAX_KINDS)] {
        let answers = kept.answers();
        let last = format!("made-up-{}", MAX_QUEUES + 9);
        let is_last = |of: &super::super::Of| of.kind.as_ref() == Some(&last) || of.partition == last;
        assert_eq!(answers.known.len(), room);
        assert!(answers.known.keys().any(is_last));
    }
}
