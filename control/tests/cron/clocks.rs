//! The server's clock is set.

use std::time::Duration;

use anyqueue::Skew;
use anyqueue_control::cron::Running;

use crate::bed::{Bed, HOUR, MINUTE, SECOND, minutes, schedule};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn a_clock_that_is_put_forward_makes_times_missed_and_none_comes_twice() {
    for jump in [HOUR, DAY] {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("*/10 * * * *").with_running(Running::Allow)).await.unwrap();
        let node = bed.node();
        assert_eq!(bed.work_for(15 * MINUTE).await, minutes(10..=10));
        bed.server.set(Skew::Ahead(jump));
        let done = bed.work_for(MINUTE).await;
        assert_eq!(done, [jump.as_secs() + 600], "the latest, though its tick would have come later");
        assert_eq!(bed.work_for(10 * MINUTE).await, [jump.as_secs() + 1200]);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_clock_that_is_put_back_by_up_to_a_day_makes_no_time_come_again() {
    for jump in [HOUR, 23 * HOUR] {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("*/10 * * * *").with_running(Running::Allow)).await.unwrap();
        let node = bed.node();
        assert_eq!(bed.work_for(15 * MINUTE).await.len(), 1);
        bed.server.set(Skew::Behind(jump));
        assert!(bed.work_in(MINUTE, jump).await.is_empty());
        assert_eq!(bed.work_for(10 * MINUTE).await, minutes(20..=20));
        node.stop().await;
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_by_more_than_a_day_stops_nothing_when_it_is_right_again() {
    let bed = Bed::new();
    bed.server.set(Skew::Ahead(365 * DAY));
    bed.scheduler.put(&schedule("*/10 * * * *").with_running(Running::Allow)).await.unwrap();
    let node = bed.node();
    assert_eq!(bed.work_for(15 * MINUTE).await.len(), 1);
    bed.server.set(Skew::None);
    assert_eq!(
        bed.work_for(25 * MINUTE).await,
        minutes(20..=20).into_iter().chain(minutes(30..=30)).chain(minutes(40..=40)).collect::<Vec<_>>()
    );
    node.stop().await;
}

#[tokio::test]
async fn the_clocks_of_nodes_do_not_matter() {
    let bed = Bed::new();
    let storage = std::sync::Arc::new(bed.memory.client());
    let clock = bed.time.clock().skewed(Skew::Ahead(30 * DAY));
    let queue = anyqueue::Queue::builder(storage as std::sync::Arc<dyn anyqueue::adapter::Storage>);
    let queue = queue.clock(clock).build().unwrap();
    let scheduler = anyqueue_control::cron::Scheduler::new(&queue).unwrap();
    scheduler.put(&schedule("* * * * *")).await.unwrap();
    let node = crate::bed::Node::start(scheduler);
    assert_eq!(bed.work_for(3 * MINUTE + SECOND).await, minutes(1..=3));
    node.stop().await;
}
