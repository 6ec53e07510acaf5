//! Clocks that are wrong, or set: the server's, and those of processes.

use std::time::Duration;

use anyqueue::{CancellationToken, Skew};
use anyqueue_control::limits::Limit;
use anyqueue_worker::{Admission, Permits, Ticket, task};

use crate::bed::{Bed, Process, millis, secs};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const BEAT: Duration = Duration::from_secs(5);
/// How long permits count, and a step of the time that a test lets pass.
const VALID: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(250);

async fn two_with_a_cap(most: u64) -> (Bed, Process, Process) {
    let bed = Bed::new();
    bed.limits.put("l", &Limit::partition("mail").unwrap().cap(most)).await.unwrap();
    let (a, b) = (bed.process("a").await, bed.process("b").await);
    (bed, a, b)
}

/// Takes a permit and starts a task with it.
async fn start(bed: &Bed, process: &Process) -> CancellationToken {
    assert_eq!(process.get(bed, 1).await, 1);
    process.start().unwrap()
}

async fn admitted(process: &Process) -> Option<Vec<Ticket>> {
    let message = task("send", &1).unwrap().with_header("customer", "x");
    match process.permits.admit(&message).await {
        Admission::Open(tickets) => Some(tickets),
        _ => None,
    }
}

#[tokio::test]
async fn a_clock_that_is_put_forward_stops_what_runs_too_much_within_a_beat_and_nothing_else() {
    for (jump, is_wanted) in [(HOUR, true), (HOUR, false), (DAY, true), (DAY, false)] {
        let (bed, a, b) = two_with_a_cap(1).await;
        let of_a = start(&bed, &a).await;
        bed.server.set(Skew::Ahead(jump));
        let of_b = if is_wanted { Some(start(&bed, &b).await) } else { None };
        let mut time = Duration::ZERO;
        while time < BEAT + STEP && !of_a.is_cancelled() {
            bed.pass(STEP).await;
            time += STEP;
        }
        assert_eq!(of_a.is_cancelled(), is_wanted, "after {time:?}");
        assert!(of_b.as_ref().is_none_or(|of_b| !of_b.is_cancelled()), "who has the permit goes on");
        a.end(1);
        bed.pass(BEAT * 2).await;
        assert_eq!(bed.info().await.held, u64::from(is_wanted));
        if of_b.is_some() {
            assert_eq!(a.get(&bed, 1).await, 0);
            b.end(1);
            bed.pass(BEAT * 2).await;
        }
        drop(start(&bed, &a).await);
        a.end(1);
        bed.pass(BEAT * 2).await;
        assert_eq!(bed.info().await.held, 0, "nothing leaks");
    }
}

#[tokio::test]
async fn a_clock_that_is_put_back_stops_nothing_and_keeps_no_permit_of_a_dead_process() {
    for jump in [HOUR, DAY] {
        let (bed, a, b) = two_with_a_cap(2).await;
        let mut dead = bed.process("dead").await;
        let of_a = start(&bed, &a).await;
        start(&bed, &dead).await;
        dead.freeze().await;
        bed.server.set(Skew::Behind(jump));
        let (mut time, mut of_b) = (Duration::ZERO, 0);
        while of_b == 0 {
            of_b = b.take(1);
            bed.pass(STEP).await;
            time += STEP;
            assert!(time <= VALID + BEAT, "the permit of the dead one counts still");
        }
        bed.pass(VALID * 2).await;
        assert!(!of_a.is_cancelled());
        assert_eq!(bed.info().await.held, 2);
    }
}

#[tokio::test]
async fn a_rate_grants_at_most_one_more_burst_when_the_clock_is_set_and_never_stands_still() {
    const RATE: f64 = 4.0;
    const BURST: u64 = 8;
    let jumps = [Skew::Ahead(HOUR), Skew::Ahead(DAY), Skew::Behind(HOUR), Skew::Behind(DAY)];
    for jump in jumps {
        let bed = Bed::new();
        let limit = Limit::each("customer").unwrap().rate(RATE, BURST);
        bed.limits.put("l", &limit).await.unwrap();
        let a = bed.process("a").await;
        let (mut begun, half) = (0_u64, secs(30));
        let mut last = Duration::ZERO;
        let mut time = Duration::ZERO;
        while time < half * 2 {
            if time == half {
                bed.server.set(jump);
            }
            while admitted(&a).await.is_some() {
                (begun, last) = (begun + 1, time);
            }
            assert!(time.saturating_sub(last) <= secs(3), "{jump:?}: nothing since {last:?}, now {time:?}");
            bed.pass(STEP).await;
            time += STEP;
        }
        let most = 2.0 * BURST as f64 + RATE * time.as_secs_f64();
        assert!((begun as f64) <= most && begun as f64 >= most * 0.8, "{jump:?}: {begun} of {most}");
    }
}

#[tokio::test]
async fn a_value_of_a_header_is_held_by_one_whatever_the_clock_is_set_to() {
    for jump in [Skew::Ahead(HOUR), Skew::Ahead(DAY), Skew::Behind(HOUR), Skew::Behind(DAY)] {
        let bed = Bed::new();
        bed.limits.put("l", &Limit::each("customer").unwrap().cap(1)).await.unwrap();
        let (mut a, b) = (bed.process("a").await, bed.process("b").await);
        let held = admitted(&a).await.unwrap();
        bed.server.set(jump);
        let of_b = admitted(&b).await;
        bed.pass(BEAT + secs(1)).await;
        let is_revoked = tokio::time::timeout(millis(10), held[0].revoked()).await.is_ok();
        assert_eq!(is_revoked, of_b.is_some(), "{jump:?}: one of two goes on");
        assert_eq!(of_b.is_some(), matches!(jump, Skew::Ahead(_)), "{jump:?}");
        // What a dead one has is free again, too.
        drop((held, of_b));
        bed.pass(BEAT).await;
        let of_dead = admitted(&a).await.unwrap();
        a.freeze().await;
        bed.server.set(Skew::None);
        let mut time = Duration::ZERO;
        while admitted(&b).await.is_none() {
            bed.pass(STEP).await;
            time += STEP;
            assert!(time <= VALID + BEAT, "{jump:?}: the permit of the dead one counts still");
        }
        drop(of_dead);
    }
}

#[tokio::test]
async fn the_clocks_of_processes_do_not_matter() {
    for skew in [Skew::Ahead(HOUR), Skew::Ahead(DAY), Skew::Behind(HOUR), Skew::Behind(DAY)] {
        let bed = Bed::new();
        bed.limits.put("l", &Limit::partition("mail").unwrap().cap(2)).await.unwrap();
        let mut wrong = bed.process_skewed("wrong", bed.time.clock().skewed(skew)).await;
        let right = bed.process("right").await;
        let tasks = [start(&bed, &wrong).await, start(&bed, &right).await];
        for _ in 0..12 {
            assert_eq!((wrong.take(1), right.take(1)), (0, 0), "{skew:?}");
            bed.pass(BEAT).await;
        }
        assert!(tasks.iter().all(|task| !task.is_cancelled()), "{skew:?}");
        for process in [&right, &wrong] {
            process.end(1);
            assert_eq!((process.take(1), process.start().is_some()), (1, true), "{skew:?}");
        }
        wrong.freeze().await;
        let mut waited = Duration::ZERO;
        while right.take(1) == 0 {
            bed.pass(STEP).await;
            waited += STEP;
            assert!(waited <= VALID + STEP, "{skew:?}");
        }
        assert!(waited + BEAT + STEP >= VALID, "{skew:?}: after {waited:?}");
    }
}
