//! What the tests share: a queue with a prefix of its own, and short names for common calls.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement};
use anyqueue::{MessageData, PartitionId, PushOutcome, SettleOutcome};
use anyqueue_redis::{RedisBuilder, RedisQueue};
use anyqueue_testkit::{Redis, Server, start_if_installed};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};

pub(crate) const LEASE: Duration = Duration::from_mins(1);
pub(crate) const SOON: Duration = Duration::from_secs(20);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A server of the test's own, and a prefix.
pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) prefix: String,
}

impl Bed {
    /// `None` where there is no server, which was said.
    pub(crate) async fn find() -> Option<Self> {
        Self::with(Redis::new()).await
    }

    pub(crate) async fn with(redis: Redis) -> Option<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let server = start_if_installed(redis).await.unwrap()?;
        Some(Self { server, prefix: format!("test{number}") })
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?prefix={}", self.server.url(), self.prefix)
    }

    /// The same for this user.
    pub(crate) fn url_of(&self, user: &str) -> String {
        self.url().replace("redis://", &format!("redis://{user}@"))
    }

    pub(crate) fn builder(&self) -> RedisBuilder {
        RedisQueue::builder(&self.url()).unwrap()
    }

    pub(crate) async fn open(&self) -> RedisQueue {
        RedisQueue::open(&self.url()).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        connect(&self.server).await
    }

    /// Runs a command of the test's own: its words, one after the other.
    pub(crate) async fn run(&self, words: &str) -> Value {
        command(&self.server, words).await
    }

    /// A number that INFO tells.
    pub(crate) async fn info(&self, name: &str) -> u64 {
        self.text_info(name).await.parse().unwrap()
    }

    /// What INFO tells.
    pub(crate) async fn text_info(&self, name: &str) -> String {
        let info: String =
            redis::cmd("INFO").arg("all").query_async(&mut self.connect().await).await.unwrap();
        let start = format!("{name}:");
        let line = info.lines().find(|line| line.starts_with(&start)).unwrap();
        line[start.len()..].trim().to_owned()
    }
}

/// Patient: the client's own half a second is too short for thousands of commands on a busy machine.
pub(crate) async fn connect(server: &Server) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let patience = Some(Duration::from_secs(30));
    let options =
        AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    client.get_multiplexed_async_connection_with_config(&options).await.unwrap()
}

/// Runs a command of the test's own: its words, one after the other.
pub(crate) async fn command(server: &Server, words: &str) -> Value {
    let mut command = Cmd::new();
    for word in words.split(' ') {
        command.arg(word);
    }
    command.query_async(&mut connect(server).await).await.unwrap()
}

pub(crate) fn part(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

/// Takes steps that prove something only if they are done within this time: where they were not, as on a busy
/// machine, again in another partition. Returns that and what the steps saw.
pub(crate) async fn in_time<T>(most: Duration, steps: impl AsyncFn(PartitionId) -> T) -> (PartitionId, T) {
    for number in 0..20 {
        let p = part(&format!("p{number}"));
        let started = Instant::now();
        let seen = steps(p.clone()).await;
        if started.elapsed() < most {
            return (p, seen);
        }
    }
    panic!("this machine never took the steps within {most:?}");
}

pub(crate) async fn push(queue: &RedisQueue, partition: &PartitionId, messages: &[MessageData]) {
    for outcome in queue.push(partition, messages).await {
        assert!(matches!(outcome, Ok(PushOutcome::Stored(_))), "{outcome:?}");
    }
}

/// Pushes as many messages, with payloads of so many bytes, made to measure.
pub(crate) async fn fill(
    queue: &RedisQueue,
    partition: &PartitionId,
    count: usize,
    make: impl Fn(MessageData) -> MessageData,
) {
    for start in (0..count).step_by(1000) {
        let size = 1000.min(count - start);
        let messages: Vec<_> = (0..size).map(|_| make(MessageData::new([b'.'; 100]))).collect();
        push(queue, partition, &messages).await;
    }
}

pub(crate) async fn pull(queue: &RedisQueue, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, Duration::ZERO, LEASE)).await.unwrap()
}

pub(crate) async fn pull_wait(queue: &RedisQueue, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, SOON, LEASE)).await.unwrap()
}

pub(crate) fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    let text = |delivery: &RawDelivery| String::from_utf8(delivery.message.payload().to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

pub(crate) fn messages(texts: &[&str]) -> Vec<MessageData> {
    texts.iter().map(MessageData::new).collect()
}

pub(crate) async fn settle(queue: &RedisQueue, deliveries: &[RawDelivery], action: Action) {
    let settlements: Vec<_> =
        deliveries.iter().map(|delivery| Settlement::new(delivery.lease.clone(), action.clone())).collect();
    for outcome in queue.settle(&settlements).await {
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
}
