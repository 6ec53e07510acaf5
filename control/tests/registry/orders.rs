//! What workers tell, and what they are told.

use anyqueue_control::registry::{Ended, Order, WorkerState};

use anyqueue_worker::{Partition, TaskContext, Worker, task};

use crate::bed::Bed;

#[tokio::test]
async fn a_worker_is_listed_with_what_it_runs_and_is_gone_when_it_has_ended() {
    let bed = Bed::new();
    let (worker, running) = bed.start("a").await;
    let id = bed.push().await;
    bed.until("it tells of its task", async || bed.info("a").await.is_some_and(|a| !a.held.is_empty())).await;
    let info = bed.info("a").await.unwrap();
    let told = &info.held[0];
    assert_eq!((told.id.clone(), &*told.partition, &*told.kind), (id.to_string(), "jobs", "wait"));
    assert_eq!((told.attempt, told.progress.as_deref()), (1, Some("waiting")));
    assert_eq!((info.state, info.slots, info.running), (WorkerState::Working, 16, 1));
    assert_eq!((info.pid, info.partitions), (std::process::id(), vec!["jobs".to_owned()]));
    assert_eq!(info.memory_bytes.is_some(), cfg!(target_os = "linux"), "{:?}", info.memory_bytes);

    bed.gate.add_permits(1);
    bed.until("its task is done", async || bed.info("a").await.is_some_and(|a| a.held.is_empty())).await;
    worker.shutdown();
    let (summary, ended) = running.await.unwrap();
    assert_eq!((summary.unwrap().processed, ended), (1, Ended::Unasked));
    assert!(bed.names().await.is_empty());
}

#[tokio::test]
async fn whatever_its_tasks_say_a_worker_can_tell_of_itself() {
    let bed = Bed::new();
    let queue = bed.queue.clone();
    let wait = |(): (), task: TaskContext| async move {
        task.set_progress("\u{1b}".repeat(1024));
        task.cancelled().await;
        Ok(())
    };
    let worker = Worker::builder(queue).partition(Partition::new("jobs")).handler("wait", wait);
    let worker = worker.name("loud").slots(200).build().unwrap();
    let running = bed.run(&worker).await;
    let tasks: Vec<_> = (0..200).map(|_| task("wait", &()).unwrap()).collect();
    bed.queue.push_many("jobs", tasks).await.unwrap();
    bed.until("it tells of all", async || bed.info("loud").await.is_some_and(|it| it.running == 200)).await;
    assert!(!bed.info("loud").await.unwrap().held.is_empty());
    worker.shutdown_now();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn a_quiet_worker_takes_on_nothing_until_it_is_resumed() {
    let bed = Bed::new();
    let (worker, running) = bed.start("a").await;
    bed.push().await;
    bed.until("it runs the first", async || worker.running().len() == 1).await;
    assert!(bed.registry.order("a", Order::Quiet).await.unwrap());
    bed.until("it is quiet", async || bed.info("a").await.unwrap().state == WorkerState::Quiet).await;
    assert_eq!(bed.info("a").await.unwrap().order, None, "it has heard the order");
    bed.push().await;
    bed.pass(std::time::Duration::from_secs(20)).await;
    assert_eq!(worker.running().len(), 1, "what it has goes on, and nothing comes to it");

    assert!(bed.registry.order("a", Order::Resume).await.unwrap());
    bed.until("it runs both", async || worker.running().len() == 2).await;
    bed.gate.add_permits(2);
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn a_worker_ends_in_order_when_it_is_told_to_and_says_why() {
    for (order, ended) in [(Order::Stop, Ended::Stopped), (Order::Recycle, Ended::Recycled)] {
        let bed = Bed::new();
        let (worker, running) = bed.start("a").await;
        bed.push().await;
        bed.until("it runs", async || worker.running().len() == 1).await;
        assert!(bed.registry.order("a", order).await.unwrap());
        bed.until("it drains", async || {
            bed.info("a").await.is_some_and(|a| a.state == WorkerState::Draining)
        })
        .await;
        bed.gate.add_permits(1);
        bed.until("it ends", async || running.is_finished()).await;
        let (summary, why) = running.await.unwrap();
        assert_eq!((summary.unwrap().processed, why), (1, ended));
        assert!(bed.names().await.is_empty());
    }
}

#[tokio::test]
async fn a_task_is_cancelled_by_the_worker_that_runs_it() {
    let bed = Bed::new();
    let (worker, running) = bed.start("a").await;
    let (id, other) = (bed.push().await, bed.push().await);
    bed.until("it runs both", async || worker.running().len() == 2).await;
    assert!(bed.registry.cancel("a", id).await.unwrap());
    bed.until("one is left", async || worker.running().len() == 1).await;
    assert_eq!(worker.running()[0].id(), other);
    assert!(bed.info("a").await.unwrap().cancel.is_empty(), "it has heard of it");
    bed.gate.add_permits(1);
    worker.shutdown();
    bed.until("it ends", async || running.is_finished()).await;
}

#[tokio::test]
async fn nobody_hears_what_is_said_to_a_worker_that_is_not_there() {
    let bed = Bed::new();
    assert!(!bed.registry.order("a", Order::Stop).await.unwrap());
    assert!(!bed.registry.cancel("a", bed.push().await).await.unwrap());
    assert!(!bed.registry.forget("a").await.unwrap());
    assert_eq!(bed.registry.get("").await.unwrap_err().kind(), anyqueue::ErrorKind::InvalidInput);
}
