//! What follows a task: stored with its end, and only if it ends well.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at anything"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::{Capabilities, Forward, Storage, async_trait};
use anyqueue::{Delivery, ErrorKind, MAX_SUCCESSORS, MessageData, Queue, QueueMessageStatus};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, Retry, TaskContext, TaskError, TaskResult, Worker, header, history, task};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_mins(1);
/// More than any handler here says.
const ROOM: usize = 10_000;

fn queue() -> Queue {
    Queue::new(MemoryQueue::new()).unwrap()
}

/// Waits for so many messages of a partition, and removes them.
async fn come(queue: &Queue, partition: &str, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut got = queue.pull(partition).max(count).wait(PATIENCE).await.unwrap();
        assert!(!got.is_empty(), "{} of {count} came", all.len());
        for delivery in &mut got {
            delivery.settle(QueueMessageStatus::Processed).await.unwrap();
        }
        all.extend(got);
    }
    all
}

/// Runs a worker on `jobs` until the test is done.
async fn with_worker<F, Fut>(queue: &Queue, retry: Retry, handler: F, test: impl Future<Output = ()>)
where
    F: Fn(u32, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = TaskResult> + Send + 'static,
{
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("jobs"))
        .handler("job", handler)
        .retry(retry)
        .build()
        .unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = worker.run_until(async {
        let _ = stopped.await;
    });
    let testing = async {
        test.await;
        drop(stop);
    };
    let (ran, ()) = tokio::join!(running, testing);
    ran.unwrap();
}

fn soon() -> Retry {
    Retry::exponential(Duration::from_millis(1)).jitter(0.0)
}

#[tokio::test]
async fn what_a_task_adds_is_stored_when_it_succeeds() {
    let queue = queue();
    queue.push("jobs", task("job", &7_u32).unwrap().with_session_id("s")).await.unwrap();
    let handler = |number: u32, task: TaskContext| async move {
        task.then("next", task.child("step", &(number + 1))?)?;
        task.then("next", MessageData::new("plain"))?;
        Ok(())
    };
    with_worker(&queue, soon(), handler, async {
        let next = come(&queue, "next", 2).await;
        assert_eq!((next[0].payload(), next[1].payload()), (b"8".as_slice(), b"plain".as_slice()));
        assert_eq!((next[0].session_id(), next[0].headers()[header::KIND].as_str()), (Some("s"), "step"));
    })
    .await;
    assert_eq!(queue.counts("jobs").await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn what_a_failed_attempt_added_is_forgotten() {
    let queue = queue();
    queue.push("jobs", task("job", &0_u32).unwrap()).await.unwrap();
    let handler = |_: u32, task: TaskContext| async move {
        task.then("next", MessageData::new(format!("of attempt {}", task.attempt())))?;
        if task.attempt() < 3 { Err(TaskError::retry("not yet")) } else { Ok(()) }
    };
    with_worker(&queue, soon(), handler, async {
        let next = come(&queue, "next", 1).await;
        assert_eq!(next[0].payload(), b"of attempt 3");
    })
    .await;
    assert_eq!(queue.counts("next").await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn what_a_task_that_dies_or_panics_added_is_not_stored() {
    let queue = queue();
    for number in 0..2_u32 {
        queue.push("jobs", task("job", &number).unwrap()).await.unwrap();
    }
    let handler = |number: u32, task: TaskContext| async move {
        task.then("next", MessageData::new("never"))?;
        assert!(number == 0, "as the test wants");
        Err(TaskError::permanent("of no use"))
    };
    with_worker(&queue, Retry::never(), handler, async {
        loop {
            let counts = queue.counts("jobs").await.unwrap();
            if counts.dead == Some(2) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(queue.counts("next").await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn what_cannot_be_pushed_is_refused_at_once_and_the_task_goes_on() {
    let queue = queue();
    queue.push("jobs", task("job", &0_u32).unwrap()).await.unwrap();
    let (say, mut said) = mpsc::channel(ROOM);
    let handler = move |_: u32, task: TaskContext| {
        let say = say.clone();
        async move {
            let refused = [
                task.then("no such / name", MessageData::new("x")),
                task.then("next", MessageData::new("x").with_group("")),
                task.then("next", MessageData::new(vec![0; 17 << 20])),
            ];
            say.try_send(refused.map(|answer| answer.unwrap_err().kind())).unwrap();
            for number in 0..MAX_SUCCESSORS {
                task.then("next", MessageData::new(number.to_string())).unwrap();
            }
            let one_more = task.then("next", MessageData::new("too many"));
            assert_eq!(one_more.unwrap_err().kind(), ErrorKind::InvalidInput);
            Ok(())
        }
    };
    with_worker(&queue, Retry::never(), handler, async {
        let kinds = said.recv().await.unwrap();
        assert_eq!(kinds, [ErrorKind::InvalidInput, ErrorKind::InvalidInput, ErrorKind::TooLarge]);
        come(&queue, "next", MAX_SUCCESSORS).await;
    })
    .await;
}

#[tokio::test]
async fn a_task_that_regenerates_itself_keeps_its_key_and_starts_its_attempts_anew() {
    let queue = queue();
    queue.push("jobs", task("job", &5_u32).unwrap().with_dedup_key("sweep")).await.unwrap();
    let (say, mut said) = mpsc::channel(ROOM);
    let failed_once = Arc::new(AtomicU32::new(0));
    let handler = move |number: u32, task: TaskContext| {
        let (say, failed) = (say.clone(), failed_once.clone());
        async move {
            if failed.fetch_add(1, SeqCst) == 1 {
                return Err(TaskError::retry("once"));
            }
            say.try_send((task.id(), number, task.attempt(), task.history().len())).unwrap();
            if failed.load(SeqCst) < 6 {
                task.then(task.partition(), task.repeat())?;
            }
            Ok(())
        }
    };
    with_worker(&queue, soon(), handler, async {
        let mut runs = Vec::new();
        while runs.len() < 5 {
            runs.push(said.recv().await.unwrap());
        }
        let ids: std::collections::HashSet<_> = runs.iter().map(|run| run.0).collect();
        assert_eq!(ids.len(), 5, "each run is of a message of its own");
        let told: Vec<_> =
            runs.iter().map(|(_, number, attempt, errors)| (*number, *attempt, *errors)).collect();
        assert_eq!(told, [(5, 1, 0), (5, 2, 1), (5, 1, 0), (5, 1, 0), (5, 1, 0)]);
    })
    .await;
    assert_eq!(queue.counts("jobs").await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn a_retry_as_a_new_message_tells_of_what_it_is_the_retry() {
    let queue = queue();
    let first = task("job", &1_u32).unwrap().with_task_id("mine").with_dedup_key("k").with_priority(2);
    let id = first.id();
    queue.push("jobs", first).await.unwrap();
    let (say, mut said) = mpsc::channel(ROOM);
    let handler = move |_: u32, task: TaskContext| {
        let say = say.clone();
        async move {
            say.try_send((task.message().clone(), task.attempt())).unwrap();
            Err(TaskError::retry("always"))
        }
    };
    with_worker(&queue, soon().max(2).as_new_message(), handler, async {
        let mut ids = std::collections::HashSet::new();
        for attempt in 1..=3 {
            let (message, told) = said.recv().await.unwrap();
            assert_eq!(told, attempt);
            assert!(ids.insert(message.id()), "each attempt is a message of its own");
            assert_eq!(u32::try_from(history(message.headers()).len()).unwrap(), attempt - 1);
            let of = message.headers().get(header::RETRY_OF).cloned();
            assert_eq!(of, (attempt > 1).then(|| id.to_string()));
            assert_eq!((message.task_id(), message.options().priority), (Some("mine"), 2));
            assert_eq!(message.options().dedup_key.as_deref(), Some("k"));
        }
        while queue.counts("jobs").await.unwrap().dead != Some(1) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_retry_as_a_new_message_drops_the_errors_when_they_do_not_fit() {
    let queue = Queue::new(MemoryQueue::with_config(
        anyqueue_memory::MemoryConfig::default().with_max_message_bytes(1200),
    ))
    .unwrap();
    let message = task("job", &1_u32).unwrap().with_header("filler", "x".repeat(550));
    queue.push("jobs", message).await.unwrap();
    let (say, mut said) = mpsc::channel(ROOM);
    let handler = move |_: u32, task: TaskContext| {
        let say = say.clone();
        async move {
            say.try_send((task.attempt(), task.history().len())).unwrap();
            Err(TaskError::retry("e".repeat(200)))
        }
    };
    with_worker(&queue, soon().max(2).as_new_message(), handler, async {
        for attempt in 1..=3 {
            assert_eq!(said.recv().await.unwrap(), (attempt, 0));
        }
    })
    .await;
}

/// A backend without successors.
#[derive(Debug)]
struct Without(MemoryQueue, Capabilities);

#[async_trait]
impl Forward for Without {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

#[tokio::test]
async fn where_the_backend_has_none_the_handler_and_the_builder_are_told() {
    let memory = MemoryQueue::new();
    let mut capabilities = anyqueue::adapter::QueueStorage::capabilities(&memory).clone();
    capabilities.successors = None;
    let queue = Queue::new(Without(memory, capabilities)).unwrap();
    queue.push("jobs", task("job", &1_u32).unwrap()).await.unwrap();
    let (say, mut said) = mpsc::channel(ROOM);
    let handler = move |_: u32, task: TaskContext| {
        let say = say.clone();
        async move {
            say.try_send(task.then("next", MessageData::new("x")).unwrap_err().kind()).unwrap();
            Ok(())
        }
    };
    with_worker(&queue, soon(), handler, async {
        assert_eq!(said.recv().await.unwrap(), ErrorKind::Unsupported);
    })
    .await;
    let refused = Worker::builder(queue)
        .partition(Partition::new("jobs").retry(soon().as_new_message()))
        .handler("job", |_: u32, _: TaskContext| async { Ok(()) })
        .build();
    assert!(refused.unwrap_err().to_string().contains("as_new_message"));
}

#[tokio::test]
async fn chains_of_tasks_over_many_slots_lose_no_link() {
    let queue = queue();
    for chain in 0..20_u32 {
        queue.push("jobs", task("job", &(chain * 1000)).unwrap()).await.unwrap();
    }
    let (say, mut said) = mpsc::channel(ROOM);
    let handler = move |number: u32, task: TaskContext| {
        let say = say.clone();
        async move {
            say.try_send(number).unwrap();
            if number % 1000 < 50 {
                let next = task.child("job", &(number + 1))?;
                task.then("jobs", next)?;
            }
            Ok(())
        }
    };
    with_worker(&queue, Retry::never(), handler, async {
        let mut links = BTreeMap::<u32, u32>::new();
        for _ in 0..20 * 51 {
            *links.entry(said.recv().await.unwrap()).or_default() += 1;
        }
        assert!(links.len() == 20 * 51 && links.values().all(|times| *times == 1));
    })
    .await;
    assert_eq!(queue.counts("jobs").await.unwrap().ready, Some(0));
}
