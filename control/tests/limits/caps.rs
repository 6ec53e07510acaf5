//! Caps: blocks of permits that processes take, renew and release.

use anyqueue_control::limits::Limit;
use anyqueue_worker::Permits;

use crate::bed::{Bed, mail, millis, secs};

fn cap(most: u64) -> Limit {
    Limit::partition("mail").unwrap().cap(most)
}

#[tokio::test]
async fn processes_share_a_cap_and_what_one_releases_another_gets() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(5)).await.unwrap();
    let (a, b) = (bed.process("a").await, bed.process("b").await);
    assert_eq!(a.get(&bed, 3).await, 3);
    assert_eq!(b.get(&bed, 9).await, 2);
    assert_eq!(b.get(&bed, 9).await, 0);
    a.release(3);
    let mut of_b = 0;
    for _ in 0..44 {
        of_b += b.take(9);
        bed.pass(millis(250)).await;
    }
    assert_eq!(of_b, 3, "within two beats");
    let info = bed.info().await;
    assert_eq!((info.held, info.holders.len(), &*info.holders[0].who, info.holders[0].held), (5, 1, "b", 5));
}

#[tokio::test]
async fn what_nobody_limits_has_no_end_and_a_limit_that_is_put_later_counts_what_runs() {
    let bed = Bed::new();
    let (a, b) = (bed.process("a").await, bed.process("b").await);
    assert_eq!((a.permits.room(&mail(), 9), a.take(7)), (None, 7));
    let _running: Vec<_> = (0..7).map(|_| a.start().unwrap()).collect();
    bed.limits.put("l", &cap(5)).await.unwrap();
    bed.pass(secs(6)).await;
    assert_eq!((bed.info().await.held, a.get(&bed, 1).await, b.get(&bed, 1).await), (7, 0, 0));
    a.end(3);
    let mut of_b = 0;
    for _ in 0..44 {
        of_b += b.take(2);
        bed.pass(millis(250)).await;
    }
    assert_eq!(of_b, 1, "four run of five");
}

#[tokio::test]
async fn a_cap_that_is_lowered_drains_and_says_so() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(5)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 5).await, 5);
    let running: Vec<_> = (0..5).map(|_| a.start().unwrap()).collect();
    bed.limits.put("l", &cap(2)).await.unwrap();
    bed.pass(secs(20)).await;
    let info = bed.info().await;
    assert_eq!((info.cap, info.held, info.revision), (Some(2), 5, 2));
    assert!(running.iter().all(|task| !task.is_cancelled()), "what runs is not interrupted");
    a.end(3);
    bed.pass(secs(6)).await;
    assert_eq!((a.get(&bed, 1).await, bed.info().await.held), (0, 2));
    a.end(1);
    assert_eq!(a.get(&bed, 1).await, 1);
}

#[tokio::test]
async fn of_several_that_run_more_than_a_lowered_cap_none_starts_anything_until_enough_have_ended() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(10)).await.unwrap();
    let processes = [bed.process("a").await, bed.process("b").await];
    for process in &processes {
        assert_eq!(process.get(&bed, 5).await, 5);
        (0..5).for_each(|_| drop(process.start().unwrap()));
    }
    bed.limits.put("l", &cap(4)).await.unwrap();
    bed.pass(secs(6)).await;
    for left in (0..10).rev() {
        processes[left % 2].end(1);
        let taken = [0, 1].map(|place| processes[place].take(1));
        let more: usize = taken.iter().sum();
        assert!(more == 0 || left + more <= 4, "{more} more beside {left}");
        processes.iter().zip(taken).for_each(|(process, taken)| process.release(taken));
        bed.pass(millis(250)).await;
    }
}

#[tokio::test]
async fn a_limit_that_is_deleted_holds_nobody_any_more() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(1)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 3).await, 1);
    assert!(bed.limits.delete("l").await.unwrap() && !bed.limits.delete("l").await.unwrap());
    bed.pass(secs(6)).await;
    assert_eq!((a.permits.room(&mail(), 3), a.take(3)), (None, 3));
}

#[tokio::test]
async fn the_permits_of_a_killed_process_are_free_within_their_validity() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(2)).await.unwrap();
    let mut a = bed.process("a").await;
    assert_eq!(a.get(&bed, 2).await, 2);
    let b = bed.process("b").await;
    a.freeze().await;
    let mut waited = millis(0);
    while b.take(2) == 0 {
        bed.pass(millis(250)).await;
        waited += millis(250);
    }
    assert!((secs(14)..=millis(15_250)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn who_leaves_releases_what_is_not_in_use_at_once() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(3)).await.unwrap();
    let mut a = bed.process("a").await;
    assert_eq!(a.get(&bed, 3).await, 3);
    a.release(2);
    a.leave().await;
    assert_eq!((bed.info().await.held, a.take(1)), (1, 0));
    a.release(1);
    a.leave().await;
    assert!(bed.info().await.holders.is_empty());
}

#[tokio::test]
async fn a_busy_process_gives_up_to_a_fair_share_to_one_that_comes_later() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(10)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 10).await, 10);
    (0..10).for_each(|_| drop(a.start().unwrap()));
    let b = bed.process("b").await;
    let (mut of_a, mut of_b) = (10, 0);
    for _ in 0..120 {
        of_b += b.take(20);
        assert!(of_a + of_b <= 10);
        // One task after the other ends, and another one wants to start.
        a.end(1);
        of_a -= 1;
        let taken = a.take(20);
        (0..taken).for_each(|_| drop(a.start().unwrap()));
        of_a += taken;
        bed.pass(millis(250)).await;
    }
    assert_eq!((of_a, of_b), (5, 5));
}

#[tokio::test]
async fn all_of_several_limits_hold() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(5)).await.unwrap();
    bed.limits.put("narrower", &cap(2)).await.unwrap();
    bed.limits.put("elsewhere", &Limit::partition("other").unwrap().cap(1)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 4).await, 2);
}
