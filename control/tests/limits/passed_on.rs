//! When a permit that is released passes to the task that the settlement brings.

use anyqueue::PartitionId;
use anyqueue_control::limits::{Limit, PermitOptions};
use anyqueue_worker::Permits;

use crate::bed::{Bed, mail, millis, secs};

fn cap(most: u64) -> Limit {
    Limit::partition("mail").unwrap().cap(most)
}

#[tokio::test]
async fn permits_pass_on_without_a_limit_and_with_a_cap_that_has_room_or_is_just_used_up() {
    let bed = Bed::new();
    let a = bed.process("a").await;
    assert!(a.permits.passes_on(&mail()), "there is no limit");
    bed.limits.put("l", &cap(5)).await.unwrap();
    bed.pass(secs(6)).await;
    for taken in [3, 2] {
        assert_eq!(a.get(&bed, taken).await, taken);
        assert!(a.permits.passes_on(&mail()), "{taken} more of five are taken");
    }
    bed.limits.put("narrower", &cap(4)).await.unwrap();
    bed.pass(secs(6)).await;
    assert!(!a.permits.passes_on(&mail()), "more are in use than one of the caps allows");
    a.release(1);
    assert!(a.permits.passes_on(&mail()));
}

#[tokio::test]
async fn permits_of_a_rate_do_not_pass_on() {
    for limit in [cap(5).rate(100.0, 10), Limit::partition("mail").unwrap().rate(100.0, 10)] {
        let bed = Bed::new();
        bed.limits.put("l", &limit).await.unwrap();
        bed.limits.put("wider", &cap(9)).await.unwrap();
        let a = bed.process("a").await;
        assert_eq!(a.get(&bed, 2).await, 2);
        assert!(!a.permits.passes_on(&mail()), "{limit:?}");
        bed.limits.delete("l").await.unwrap();
        bed.pass(secs(6)).await;
        assert!(a.permits.passes_on(&mail()), "only the cap is left");
    }
}

#[tokio::test]
async fn permits_that_others_want_do_not_pass_on() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(10)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 10).await, 10);
    (0..10).for_each(|_| drop(a.start().unwrap()));
    let b = bed.process("b").await;
    assert!(a.permits.passes_on(&mail()), "it does not know yet of the other one");
    for _ in 0..24 {
        assert_eq!(b.take(9), 0);
        bed.pass(millis(250)).await;
    }
    for running in (6..=10).rev() {
        assert!(!a.permits.passes_on(&mail()), "{running} run, of a share of five");
        a.end(1);
    }
    assert!(a.permits.passes_on(&mail()), "it is within its share");
}

#[tokio::test]
async fn permits_of_a_cap_that_was_lowered_do_not_pass_on() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(5)).await.unwrap();
    let a = bed.process("a").await;
    assert_eq!(a.get(&bed, 5).await, 5);
    (0..5).for_each(|_| drop(a.start().unwrap()));
    bed.limits.put("l", &cap(2)).await.unwrap();
    bed.pass(secs(6)).await;
    assert!(!a.permits.passes_on(&mail()));
    a.end(3);
    assert!(a.permits.passes_on(&mail()));
}

#[tokio::test]
async fn permits_that_are_not_renewed_do_not_pass_on_in_the_last_third_of_their_time() {
    let bed = Bed::new();
    bed.limits.put("l", &cap(5)).await.unwrap();
    let mut a = bed.process("a").await;
    assert_eq!(a.get(&bed, 2).await, 2);
    a.freeze().await;
    bed.pass(millis(9_750)).await;
    assert!(a.permits.passes_on(&mail()));
    bed.pass(millis(250)).await;
    assert!(!a.permits.passes_on(&mail()));
}

#[tokio::test]
async fn permits_of_who_does_not_know_the_limits_or_leaves_do_not_pass_on() {
    let bed = Bed::new();
    let unknown = bed.limits.permits(PermitOptions::default()).unwrap();
    assert!(!unknown.passes_on(&mail()), "it has not begun");
    let mut a = bed.process("a").await;
    assert!(!a.permits.passes_on(&PartitionId::new("other").unwrap()), "it does not serve this one");
    assert!(a.permits.passes_on(&mail()));
    a.leave().await;
    assert!(!a.permits.passes_on(&mail()));
}
