//! Clocks that are wrong, or set: the server's, and those of workers.

use std::time::Duration;

use anyqueue::Skew;
use anyqueue_control::registry::Order;

use crate::bed::{Bed, killed};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const BEAT: Duration = Duration::from_secs(5);
const VALID: Duration = Duration::from_secs(15);
/// What the step adds in which a test lets time pass.
const STEP: Duration = Duration::from_secs(1);

/// Those who are listed, and are not taken for dead.
async fn living(bed: &Bed) -> Vec<String> {
    let listed = bed.registry.list().await.unwrap();
    let now = listed.now.unwrap();
    listed.workers.into_iter().filter(|worker| !worker.is_lost(now)).map(|worker| worker.name).collect()
}

#[tokio::test]
async fn clocks_of_workers_that_are_wrong_make_no_difference() {
    for skew in [Skew::Ahead(HOUR), Skew::Ahead(DAY), Skew::Behind(HOUR), Skew::Behind(DAY)] {
        let bed = Bed::new();
        let worker = bed.worker_by("skewed", bed.time.clock().skewed(skew), 1);
        let running = bed.run(&worker).await;
        bed.pass(4 * VALID).await;
        let listed = bed.registry.list().await.unwrap();
        assert!(!listed.workers[0].is_lost(listed.now.unwrap()));
        assert!(bed.registry.sweep().await.unwrap().is_empty());
        assert!(bed.registry.lost().await.unwrap().is_empty());
        worker.shutdown();
        bed.until("it ends", async || running.is_finished()).await;
    }
}

#[tokio::test]
async fn a_clock_that_is_put_forward_hides_no_living_worker_for_longer_than_a_beat() {
    for jump in [HOUR, DAY] {
        let bed = Bed::new();
        let ((_, a), (_, b)) = (bed.start("a").await, bed.start("b").await);
        bed.pass(VALID).await;
        bed.server.set(Skew::Ahead(jump));
        bed.pass(BEAT + STEP).await;
        for _ in 0..12 {
            assert_eq!(living(&bed).await, ["a", "b"]);
            bed.pass(BEAT).await;
        }
        b.abort();
        bed.pass(VALID + BEAT + STEP).await;
        assert_eq!(
            (bed.names().await, &*bed.registry.lost().await.unwrap()[0].name),
            (vec!["a".to_owned()], "b")
        );
        assert!(bed.registry.order("a", Order::Stop).await.unwrap());
        bed.until("it hears", async || a.is_finished()).await;
        assert!(bed.names().await.is_empty());
    }
}

#[tokio::test]
async fn a_clock_that_is_put_back_keeps_no_dead_worker_and_loses_no_living_one() {
    for jump in [HOUR, DAY] {
        let bed = Bed::new();
        let id = killed(&bed).await;
        let (_, running) = bed.start("alive").await;
        bed.server.set(Skew::Behind(jump));
        for _ in 0..8 {
            assert!(bed.names().await.contains(&"alive".to_owned()));
            bed.pass(BEAT).await;
        }
        let lost = bed.registry.lost().await.unwrap();
        assert_eq!(lost.iter().map(|it| (&*it.name, &*it.held[0].id)).collect::<Vec<_>>(), [("dead", &*id)]);
        assert_eq!(living(&bed).await, ["alive"]);
        assert!(bed.registry.order("alive", Order::Stop).await.unwrap());
        bed.until("it hears", async || running.is_finished()).await;
        assert!(bed.names().await.is_empty());
    }
}
