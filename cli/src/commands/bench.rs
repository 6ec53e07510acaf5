//! `anyqueue bench`: measures a backend from this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyqueue::{MessageData, MessageId, Queue, QueueMessageStatus, SettleOutcome};
use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::open::{self, Create};
use crate::output::{Output, Table};
use crate::session::{Session, url_argument};

const HELP: &str = "\
Examples:
  anyqueue bench sqlite:/tmp/try.db
  anyqueue bench redis://host/ --messages 100000 --tasks 256 --bytes 1024

It uses a queue of its own, named anyqueue-bench- and eight letters, and removes all that it pushes. If it fails or is
interrupted, messages stay; on RabbitMQ and SQS the empty queues always do. It measures this backend from this machine
over this network, without a comparison. `bench/` in the repository measures against hand-written clients.";

/// Measures throughput and latency of a backend
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Bench {
    /// The backend; by default the one of --url
    #[arg(value_name = "URL", value_parser = url_argument)]
    at: Option<String>,
    /// How many messages each measurement of throughput uses
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// Size of a payload in bytes
    #[arg(long, value_name = "N", default_value_t = 256)]
    bytes: usize,
    /// How many tasks push, or pull and settle, at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    tasks: u16,
    /// How many messages the measurement of latency uses
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pings: u32,
}

/// One measurement.
#[derive(Serialize)]
struct Row {
    scenario: &'static str,
    messages: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_us: Option<u64>,
}

/// The messages in one batch push.
const BATCH: usize = 100;
/// After this long without a message, a consumer considers the queue empty.
const DRAINED: Duration = Duration::from_secs(2);
/// A ping that takes longer than this is lost.
const LOST: Duration = Duration::from_secs(30);

impl Bench {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = open::queue(session.url(self.at.as_deref())?, Create::AsUrlSays).await?;
        let letters: String = MessageId::new().to_string().chars().rev().take(8).collect();
        let name = format!("anyqueue-bench-{letters}");
        let end = self.measure(session.output, &queue, &name).await;
        queue.close().await?;
        end
    }

    async fn measure(&self, output: Output, queue: &Queue, name: &str) -> Result {
        let mut table = Table::new(&["scenario", "messages", "per second", "p50 µs", "p99 µs"]);
        let singles = (self.messages / 10).max(1);
        show(output, &mut table, &self.push_singly(queue, name, singles).await?)?;
        show(output, &mut table, &self.drain(queue, name, singles, "drain").await?)?;
        show(output, &mut table, &self.push_batches(queue, name).await?)?;
        show(output, &mut table, &self.drain(queue, name, self.messages, "drain").await?)?;
        show(output, &mut table, &self.push_at_once(queue, name).await?)?;
        show(output, &mut table, &self.drain(queue, name, self.messages, "drain").await?)?;
        show(output, &mut table, &self.ping(queue, name).await?)?;
        if output.json { Ok(()) } else { table.print(output) }
    }

    fn message(&self) -> MessageData {
        MessageData::from_bytes(vec![b'x'; self.bytes])
    }

    async fn push_singly(&self, queue: &Queue, name: &str, messages: u32) -> Result<Row> {
        let begin = Instant::now();
        for _ in 0..messages {
            queue.push(name, self.message()).await?;
        }
        Ok(throughput("push one by one", messages, begin))
    }

    async fn push_batches(&self, queue: &Queue, name: &str) -> Result<Row> {
        let begin = Instant::now();
        let mut left = self.messages as usize;
        while left > 0 {
            let batch: Vec<_> = (0..left.min(BATCH)).map(|_| self.message()).collect();
            left -= batch.len();
            for result in queue.push_many(name, batch).await? {
                result?;
            }
        }
        Ok(throughput("push by hundreds", self.messages, begin))
    }

    async fn push_at_once(&self, queue: &Queue, name: &str) -> Result<Row> {
        let begin = Instant::now();
        let left = Arc::new(AtomicU64::new(self.messages.into()));
        let mut tasks = JoinSet::new();
        for _ in 0..self.tasks {
            let (queue, name, left, message) = (queue.clone(), name.to_owned(), left.clone(), self.message());
            tasks.spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    queue.push(&name, MessageData::from_bytes(message.payload_bytes())).await?;
                }
                Ok::<_, anyqueue::Error>(())
            });
        }
        all_ended(tasks).await?;
        Ok(throughput("push by many tasks", self.messages, begin))
    }

    /// Removes all messages, and checks that none is missing.
    async fn drain(&self, queue: &Queue, name: &str, messages: u32, scenario: &'static str) -> Result<Row> {
        let begin = Instant::now();
        let done = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..self.tasks {
            let (queue, name, done) = (queue.clone(), name.to_owned(), done.clone());
            tasks.spawn(async move {
                while done.load(Ordering::Relaxed) < messages.into() {
                    let held = queue.pull(&name).max(16).wait(DRAINED).await?;
                    if held.is_empty() {
                        break;
                    }
                    for mut handler in held {
                        let settled = handler.settle(QueueMessageStatus::Processed).await?;
                        done.fetch_add(u64::from(settled == SettleOutcome::Settled), Ordering::Relaxed);
                    }
                }
                Ok::<_, anyqueue::Error>(())
            });
        }
        // The clock stops at the last settlement: tasks that wait for more messages do not count.
        let mut end = Instant::now();
        while done.load(Ordering::Relaxed) < messages.into() {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    Some(ended) => ended.map_err(|panic| Failure::Failed(panic.to_string()))??,
                    None => break,
                },
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            end = Instant::now();
        }
        tasks.shutdown().await;
        let done = done.load(Ordering::Relaxed);
        if done != u64::from(messages) {
            return Err(Failure::Failed(format!("only {done} of {messages} messages came out")));
        }
        Ok(rate(scenario, messages, end - begin))
    }

    /// Measures the time from a push to its arrival at a waiting consumer.
    async fn ping(&self, queue: &Queue, name: &str) -> Result<Row> {
        let mut times = Vec::with_capacity(self.pings as usize);
        for _ in 0..self.pings {
            let pull = {
                let (queue, name) = (queue.clone(), name.to_owned());
                tokio::spawn(
                    async move { queue.pull(&name).wait(LOST).await.map(|held| (held, Instant::now())) },
                )
            };
            // Gives the pull a moment to arrive: the wake-up is measured.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let begin = Instant::now();
            queue.push(name, self.message()).await?;
            let (held, came) = pull.await.map_err(|panic| Failure::Failed(panic.to_string()))??;
            let Some(mut handler) = held.into_iter().next() else {
                return Err(Failure::Failed(format!("a message did not arrive within {LOST:?}")));
            };
            times.push(u64::try_from(came.saturating_duration_since(begin).as_micros()).unwrap_or(u64::MAX));
            handler.settle(QueueMessageStatus::Processed).await?;
        }
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100).copied();
        let (p50_us, p99_us) = (at(50), at(99));
        Ok(Row {
            scenario: "push to waiting consumer",
            messages: self.pings,
            per_second: None,
            p50_us,
            p99_us,
        })
    }
}

fn show(output: Output, table: &mut Table, row: &Row) -> Result {
    if output.json {
        return output.object(row);
    }
    let text = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let (speed, p50, p99) = (text(row.per_second), text(row.p50_us), text(row.p99_us));
    table.row([row.scenario.to_owned(), row.messages.to_string(), speed, p50, p99]);
    Ok(())
}

async fn all_ended(mut tasks: JoinSet<anyqueue::Result<()>>) -> Result {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|panic| Failure::Failed(panic.to_string()))??;
    }
    Ok(())
}

fn throughput(scenario: &'static str, messages: u32, begin: Instant) -> Row {
    rate(scenario, messages, begin.elapsed())
}

fn rate(scenario: &'static str, messages: u32, took: Duration) -> Row {
    let per_second = u128::from(messages) * 1_000_000_000 / took.as_nanos().max(1);
    let per_second = Some(u64::try_from(per_second).unwrap_or(u64::MAX));
    Row { scenario, messages, per_second, p50_us: None, p99_us: None }
}
