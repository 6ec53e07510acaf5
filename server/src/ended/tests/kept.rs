//! What is known, and what is asked to know it.

use std::time::Duration;

use anyqueue::EndState::{Cancelled, Failed, Succeeded};
use tokio::time::Instant;

use super::super::answers::EVERY;
use super::super::{DEADLINE, LEAST};
use super::{asked, bed, told};
use crate::span::Span;

#[tokio::test(start_paused = true)]
async fn each_span_has_the_steps_that_end_now() {
    let (counts, ledger) = bed();
    for minutes in [0, 4, 59, 60, 61, 23 * 60, 24 * 60 + 10, 24 * 60 + 11, 7 * 24 * 60 + 70, 7 * 24 * 60 + 71]
    {
        ledger.ended("p", minutes, Succeeded, 1, (1, 1));
    }
    // It is ten past one.
    assert_eq!(told(&counts, Span::Hour).await, [(0, 1), (1, 1), (12, 2)]);
    assert_eq!(told(&counts, Span::Day).await, [(0, 2), (1, 3), (23, 1), (24, 1)]);
    assert_eq!(told(&counts, Span::Week).await, [(0, 5), (4, 3), (28, 1)]);
}

#[tokio::test(start_paused = true)]
async fn what_has_passed_is_asked_for_once_and_nothing_within_a_pause() {
    let (counts, ledger) = bed();
    ledger.ended("p", 30, Succeeded, 3, (1, 1));
    told(&counts, Span::Hour).await;
    assert_eq!(asked(&ledger), [(-10, 5), (-60, -10)]);
    for _ in 0..20 {
        assert_eq!(told(&counts, Span::Hour).await, [(6, 3)]);
    }
    assert_eq!(asked(&ledger), []);
    ledger.clock.advance(Duration::from_mins(7));
    assert_eq!(told(&counts, Span::Hour).await, [(7, 3)]);
    assert_eq!(asked(&ledger), [(-17, 5)]);
    // A longer time is another question; a shorter one within it is none.
    told(&counts, Span::Week).await;
    assert_eq!(asked(&ledger).len(), 1 + 85);
    assert_eq!(told(&counts, Span::Day).await, [(1, 3)]);
    assert_eq!(asked(&ledger), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_late_is_counted() {
    let (counts, ledger) = bed();
    told(&counts, Span::Hour).await;
    ledger.clock.advance(Duration::from_mins(9));
    ledger.ended("p", 14, Failed, 1, (1, 1));
    for _ in 0..2 {
        assert_eq!(told(&counts, Span::Hour).await, [(2, 1)], "once");
        ledger.clock.advance(EVERY);
    }
}

#[tokio::test(start_paused = true)]
async fn questions_take_a_tenth_of_the_time() {
    let (counts, ledger) = bed();
    ledger.told(|told| told.takes = Duration::from_millis(700));
    told(&counts, Span::Hour).await;
    assert_eq!(asked(&ledger).len(), 2);
    for (seconds, questions) in [(3, 0), (1, 1), (6, 0), (1, 1)] {
        ledger.clock.advance(Duration::from_secs(seconds));
        told(&counts, Span::Hour).await;
        assert_eq!(asked(&ledger).len(), questions, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_fails_is_left_alone_and_what_was_known_stays() {
    let (counts, ledger) = bed();
    ledger.ended("p", 30, Succeeded, 3, (1, 1));
    told(&counts, Span::Hour).await;
    ledger.told(|told| told.problem = Some("it is away"));
    ledger.clock.advance(EVERY);
    asked(&ledger);
    for _ in 0..3 {
        let counted = counts.over(Span::Hour, &["p"], None).await;
        assert_eq!(counted.missing, [("p".to_owned(), "it is away".to_owned())]);
        assert_eq!(told(&counts, Span::Hour).await, [(6, 3)]);
    }
    assert_eq!(asked(&ledger).len(), 1);
    ledger.told(|told| told.problem = None);
    ledger.clock.advance(EVERY);
    assert_eq!(counts.over(Span::Hour, &["p"], None).await.missing, []);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_ledger_that_hangs() {
    let (counts, ledger) = bed();
    ledger.told(|told| told.hangs = vec!["p", "q"]);
    let begun = Instant::now();
    let counted = counts.over(Span::Day, &["p", "q"], None).await;
    assert!(begun.elapsed() < DEADLINE + LEAST);
    let late = "the backend did not tell in time".to_owned();
    assert_eq!(counted.missing, [("p".to_owned(), late.clone()), ("q".to_owned(), late)]);
    assert!(!counted.is_whole);
    ledger.told(|told| told.hangs.clear());
    ledger.clock.advance(EVERY);
    let counted = counts.over(Span::Day, &["p", "q"], None).await;
    assert_eq!((counted.is_whole, counted.missing), (true, vec![]));
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_it_begins_anew() {
    let (counts, ledger) = bed();
    ledger.ended("p", 0, Succeeded, 1, (1, 1));
    told(&counts, Span::Day).await;
    ledger.clock.advance(Duration::from_hours(20));
    ledger.ended("p", 600, Cancelled, 1, (1, 1));
    asked(&ledger);
    assert_eq!(told(&counts, Span::Day).await, [(10, 1), (20, 1)]);
    assert!(asked(&ledger).iter().all(|(first, end)| end - first <= 135), "never much at once");
}
