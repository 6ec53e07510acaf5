//! Workers that share their slots fairly over all processes.

use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, TaskContext, Worker, task};

const SLOTS: usize = 8;

/// A worker of these partitions, whose tasks take as many milliseconds as their payload says.
fn worker(queue: &Queue, name: &str, partitions: &[&str]) -> Worker {
    let sleep = |millis: u64, _: TaskContext| async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok(())
    };
    let mut builder = Worker::builder(queue.clone()).name(name).slots(SLOTS).handler("sleep", sleep);
    for partition in partitions {
        builder = builder.partition(Partition::new(*partition));
    }
    builder.build().unwrap()
}

/// Slot-seconds of both workers for the first partition and for the second.
fn slot_seconds(both: &Worker, one: &Worker) -> [f64; 2] {
    let (both, one) = (both.slot_time(), one.slot_time());
    [both[0] + one[0], both[1]].map(|time| time.as_secs_f64())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_served_elsewhere_too_gets_no_more_of_all_slots_than_the_other() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    for (partition, millis, tasks) in [("short", 10, 60_000), ("long", 40, 15_000)] {
        let tasks: Vec<_> = (0..tasks).map(|_| task("sleep", &millis).unwrap()).collect();
        for tasks in tasks.chunks(1000) {
            queue.push_many(partition, tasks.to_vec()).await.unwrap();
        }
    }
    let (both, one) = (worker(&queue, "both", &["short", "long"]), worker(&queue, "one", &["short"]));
    let registry = Registry::new(queue.control().unwrap());
    let options = MemberOptions::default()
        .with_every(Duration::from_millis(50))
        .with_valid_for(Duration::from_millis(500));
    let mut running = Vec::new();
    for worker in [&both, &one] {
        let (member, worker) = (registry.join(worker, options.clone()).await.unwrap(), worker.clone());
        running
            .push(tokio::spawn(async move { member.during(worker.run_until(std::future::pending())).await }));
    }

    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let before = slot_seconds(&both, &one);
        tokio::time::sleep(Duration::from_millis(700)).await;
        let after = slot_seconds(&both, &one);
        let [short, long] = [after[0] - before[0], after[1] - before[1]];
        // Each for itself they would make it 12 slots to 4. One of the eight slots stays with the first, which makes it 9 to 7.
        if long > 0.0 && short / long < 1.6 {
            break;
        }
        assert!(Instant::now() < deadline, "{short} slot-seconds for the one, {long} for the other");
    }
    for worker in [&both, &one] {
        worker.shutdown_now();
    }
    for running in running {
        running.await.unwrap().0.unwrap();
    }
}
