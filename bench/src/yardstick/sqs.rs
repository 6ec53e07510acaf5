//! What SQS costs: the number of requests for each message, and their price.
//!
//! The yardstick is a hand-written client that sends, receives and deletes in full batches of ten: 0.3
//! requests a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::{MessageData, Queue, QueueMessageStatus};
use anyqueue_sqs::SqsBuilder;
use anyqueue_testkit::{Ministack, Program, Server};
use anyqueue_worker::{Partition, Worker};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;

use crate::client::Result;
use crate::environment::Environment;

pub(crate) const NAME: &str = "sqs";
const PARTITION: &str = "bench";
/// Tasks that push one message at a time.
const TASKS: usize = 64;
/// A stream asks for more when a quarter of its window is free; this window makes that a number of full
/// requests.
const WINDOW: usize = 160;
const DEFAULT_MESSAGES: usize = 6400;
/// The worker's slots.
const SLOTS: usize = 8;
/// How long one of the worker's tasks takes.
const TASK: Duration = Duration::from_millis(10);
/// Requests a message of a hand-written client that sends, receives and deletes ten at a time.
const BY_HAND: f64 = 0.3;
/// Dollars for a million requests to standard queues in most regions, after the free ones.
const DOLLARS_PER_MILLION: f64 = 0.40;

/// How an application works.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Pushes and settles one at a time, and pulls a hundred.
    OneAtATime,
    /// The same, with a stream instead of pulls.
    Stream,
    /// Pushes, pulls and settles a hundred at a time.
    Batches,
    /// Pushes a hundred at a time, and lets a worker with few slots run short tasks.
    Worker,
}

/// What one way costs.
#[derive(Debug, Serialize)]
struct Cost {
    backend: &'static str,
    way: Way,
    levels: u8,
    /// How many of the levels messages are pushed to, in turns.
    used: u8,
    messages: usize,
    requests_per_message: f64,
    by_hand: f64,
    found_nothing_per_message: f64,
    /// The price of all requests, including those that found nothing.
    dollars_per_million_messages: f64,
    environment: Environment,
}

/// Measures every way and prints what it costs.
pub(crate) async fn print_costs(messages: Option<usize>, json: bool) -> Result<()> {
    let server = Server::start(Ministack::new()).await?;
    let environment = Environment::here(Some(format!("ministack {}", Ministack::new().version().await?)));
    for (levels, used) in [(1, 1), (10, 1), (10, 3)] {
        for way in [Way::OneAtATime, Way::Stream, Way::Batches, Way::Worker] {
            let messages = messages.unwrap_or(DEFAULT_MESSAGES);
            let cost = cost(&server, way, (levels, used), messages, &environment).await?;
            if json {
                println!("{}", serde_json::to_string(&cost)?);
            } else {
                println!(
                    "sqs, {way:?}, {used} of {levels} levels: {:.3} requests a message (hand-written {:.1}), and {:.3} that find nothing; ${:.3} a million messages",
                    cost.requests_per_message,
                    cost.by_hand,
                    cost.found_nothing_per_message,
                    cost.dollars_per_million_messages
                );
            }
        }
    }
    Ok(())
}

async fn cost(
    server: &Server,
    way: Way,
    (levels, used): (u8, u8),
    messages: usize,
    environment: &Environment,
) -> Result<Cost> {
    let builder = SqsBuilder::new("us-east-1").endpoint(server.url()).credentials("test", "test");
    let storage = builder.levels(levels).prefix(format!("{way:?}{levels}-{used}")).open().await?;
    let queue = Queue::builder(storage.clone()).max_held(1 << 16).build()?;
    // Creates the queues, which happens only once.
    push(&queue, Way::Batches, used.into(), used).await?;
    drain(&queue, way, used.into()).await?;
    let before = storage.requests();
    push(&queue, way, messages, used).await?;
    drain(&queue, way, messages).await?;
    let answered = storage.requests().answered - before.answered;
    let nothing = storage.requests().found_nothing - before.found_nothing;
    queue.close().await?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_message = |count: u64| count as f64 / messages as f64;
    Ok(Cost {
        backend: NAME,
        way,
        levels,
        used,
        messages,
        requests_per_message: per_message(answered - nothing),
        by_hand: BY_HAND,
        found_nothing_per_message: per_message(nothing),
        dollars_per_million_messages: per_message(answered) * DOLLARS_PER_MILLION,
        environment: environment.clone(),
    })
}

fn message(index: usize, used: u8) -> MessageData {
    let level = index % usize::from(used);
    MessageData::new(format!("message {index}")).with_priority(u8::try_from(level).unwrap_or_default())
}

async fn push(queue: &Queue, way: Way, messages: usize, used: u8) -> Result<()> {
    if matches!(way, Way::Batches | Way::Worker) {
        for outcome in
            queue.push_many(PARTITION, (0..messages).map(|index| message(index, used)).collect()).await?
        {
            outcome?;
        }
        return Ok(());
    }
    let tasks: FuturesUnordered<_> = (0..TASKS)
        .map(|task| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for index in (task..messages).step_by(TASKS) {
                    queue.push(PARTITION, message(index, used)).await?;
                }
                anyqueue::Result::Ok(())
            })
        })
        .collect();
    all_done(tasks).await
}

/// Processes exactly this many messages.
async fn drain(queue: &Queue, way: Way, messages: usize) -> Result<()> {
    if matches!(way, Way::Stream) {
        let mut stream = queue.stream(PARTITION).window(WINDOW).build()?;
        let settling = FuturesUnordered::new();
        for _ in 0..messages {
            let mut handler = stream.next().await.ok_or("the stream ended early")??;
            settling.push(tokio::spawn(async move {
                handler.settle(QueueMessageStatus::Processed).await.map(drop)
            }));
        }
        return all_done(settling).await;
    }
    if matches!(way, Way::Worker) {
        return work(queue, messages).await;
    }
    let mut left = messages;
    while left > 0 {
        let mut held = queue.pull(PARTITION).max(100).wait(Duration::from_secs(10)).await?;
        left -= held.len().min(left);
        if matches!(way, Way::Batches) {
            let settlements = held.iter_mut().map(|handler| (handler, QueueMessageStatus::Processed));
            for outcome in queue.settle_many(settlements).await {
                outcome?;
            }
        } else {
            let settle = held.into_iter().map(|mut handler| {
                tokio::spawn(async move { handler.settle(QueueMessageStatus::Processed).await.map(drop) })
            });
            all_done(settle.collect()).await?;
        }
    }
    Ok(())
}

/// Runs a worker until this many tasks have ended.
async fn work(queue: &Queue, messages: usize) -> Result<()> {
    let left = Arc::new(AtomicUsize::new(messages));
    let worker = Worker::builder(queue.clone())
        .slots(SLOTS)
        .partition(Partition::new(PARTITION))
        .any_handler({
            let left = left.clone();
            move |_, _| {
                let left = left.clone();
                async move {
                    tokio::time::sleep(TASK).await;
                    left.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                }
            }
        })
        .build()?;
    let done = async move {
        while left.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(TASK).await;
        }
    };
    worker.run_until(done).await?;
    Ok(())
}

async fn all_done(mut tasks: FuturesUnordered<tokio::task::JoinHandle<anyqueue::Result<()>>>) -> Result<()> {
    while let Some(done) = tasks.next().await {
        done??;
    }
    Ok(())
}
