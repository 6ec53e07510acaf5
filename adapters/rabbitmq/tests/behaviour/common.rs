//! What the tests share: a broker, a prefix of its own for each test, and short names for common calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{ExtendOutcome, MessageData, PartitionId, PushOutcome, Result, SettleOutcome};
use anyqueue_rabbitmq::{RabbitMqBuilder, RabbitMqQueue};
use anyqueue_testkit::{Provided, RabbitMq, Server, provide, start_if_installed};
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Queue};
use tokio::sync::OnceCell;

pub(crate) const LEASE: Duration = Duration::from_mins(1);
pub(crate) const SOON: Duration = Duration::from_secs(20);

static NUMBER: AtomicU32 = AtomicU32::new(0);
static SHARED: OnceCell<Provided> = OnceCell::const_new();
/// Brokers that no test has now, each with what it was started from. To start one takes four seconds of a core.
static LENDABLE: Mutex<Vec<(String, Server)>> = Mutex::new(Vec::new());

/// A broker, and a prefix.
pub(crate) struct Bed {
    url: String,
    own: Option<Server>,
    /// What a lent broker was started from.
    lent_as: Option<String>,
    pub(crate) prefix: String,
}

impl Drop for Bed {
    /// Passes a lent broker on. A test that failed may have left it in any state.
    fn drop(&mut self) {
        let lent = self.lent_as.take().zip(self.own.take());
        if let Some(lent) = lent.filter(|_| !std::thread::panicking()) {
            LENDABLE.lock().unwrap().push(lent);
        }
    }
}

impl Bed {
    /// On the broker that the tests share. `None` where there is none, which was said.
    pub(crate) async fn shared() -> Option<Self> {
        let shared = SHARED.get_or_try_init(|| provide(RabbitMq::new())).await.unwrap();
        Some(Self { url: shared.url()?.to_owned(), own: None, lent_as: None, prefix: prefix() })
    }

    /// On a broker of the test's own, which it may harm.
    pub(crate) async fn own(program: RabbitMq) -> Option<Self> {
        let server = start_if_installed(program).await.unwrap()?;
        Some(Self { url: server.url().to_owned(), own: Some(server), lent_as: None, prefix: prefix() })
    }

    /// On a broker that no other test uses meanwhile, but that others had before or get later. So it is not killed, each alarm and
    /// each freeze is ended, and users and virtual hosts have names of their own. Queues and policies, which are of a prefix, stay.
    pub(crate) async fn lent(program: RabbitMq) -> Option<Self> {
        let kind = format!("{program:?}");
        let server = match lendable(&kind) {
            Some(server) => server,
            None => start_if_installed(program).await.unwrap()?,
        };
        Some(Self { url: server.url().to_owned(), own: Some(server), lent_as: Some(kind), prefix: prefix() })
    }

    /// The test's own broker, or the one that it was lent.
    pub(crate) fn server(&self) -> &Server {
        self.own.as_ref().unwrap()
    }

    pub(crate) fn plain_url(&self) -> &str {
        &self.url
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?prefix={}", self.url, self.prefix)
    }

    pub(crate) fn builder(&self) -> RabbitMqBuilder {
        RabbitMqQueue::builder(&self.url()).unwrap()
    }

    pub(crate) async fn open(&self) -> RabbitMqQueue {
        self.builder().open().await.unwrap()
    }

    /// A connection of the test's own, past the adapter.
    pub(crate) async fn channel(&self) -> (Connection, Channel) {
        let conn = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = conn.create_channel().await.unwrap();
        (conn, channel)
    }

    /// The queue of a level, as the crate's documentation names it.
    pub(crate) fn queue(&self, partition: &PartitionId, level: u8) -> String {
        let dead = if partition.is_dead_letters() { ":dead" } else { "" };
        format!("{}:{}{dead}:{level}", self.prefix, partition.name())
    }

    /// Removes queues, as an operator does.
    pub(crate) async fn remove(&self, queues: &[String]) {
        let (_conn, channel) = self.channel().await;
        for queue in queues {
            channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        }
    }

    /// Puts a message there, past the adapter.
    pub(crate) async fn plant(&self, queue: &str, body: &[u8]) {
        let (_conn, channel) = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let sent = channel.basic_publish("".into(), queue.into(), options, body, properties).await.unwrap();
        assert!(sent.await.unwrap().is_ack());
    }

    /// Lets an operator set a policy for queues whose names match.
    pub(crate) async fn policy(&self, name: &str, pattern: &str, policy: &str) {
        let arguments = ["set_policy", name, pattern, policy, "--apply-to", "queues"];
        RabbitMq::control(self.server(), &arguments).await.unwrap();
    }

    /// Messages that the broker would hand to anybody.
    pub(crate) async fn ready(&self, partition: &PartitionId) -> u32 {
        self.look(partition).await.message_count()
    }

    /// Those who wait for messages, as the broker knows them.
    pub(crate) async fn consumers(&self, partition: &PartitionId) -> u32 {
        self.look(partition).await.consumer_count()
    }

    /// The same, where the queue may be gone.
    pub(crate) async fn consumers_if_any(&self, partition: &PartitionId) -> u32 {
        self.try_look(&self.queue(partition, 0)).await.map_or(0, |queue| queue.consumer_count())
    }

    async fn look(&self, partition: &PartitionId) -> Queue {
        self.try_look(&self.queue(partition, 0)).await.unwrap()
    }

    /// Whether the broker can say what is in a queue, within a time in which leaders are elected many times over.
    pub(crate) async fn has_leader(&self, queue: &str) -> bool {
        let (_conn, channel) = self.channel().await;
        let asked = channel.basic_get(queue.into(), BasicGetOptions::default());
        tokio::time::timeout(Duration::from_secs(3), asked).await.is_ok_and(|answer| answer.is_ok())
    }

    /// A queue, if there is one of this name.
    pub(crate) async fn try_look(&self, queue: &str) -> lapin::Result<Queue> {
        let (_conn, channel) = self.channel().await;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.into(), options, FieldTable::default()).await
    }
}

/// Somebody who is making a queue until this connection ends.
pub(crate) async fn making(bed: &Bed, queue: &str) -> Connection {
    let (conn, channel) = bed.channel().await;
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(format!("{queue}:making").into(), options, FieldTable::default()).await.unwrap();
    conn
}

/// A broker of this kind that no test has.
fn lendable(kind: &str) -> Option<Server> {
    let mut lendable = LENDABLE.lock().unwrap();
    let place = lendable.iter().position(|(other, _)| other == kind)?;
    Some(lendable.swap_remove(place).1)
}

fn prefix() -> String {
    format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn part(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

pub(crate) fn messages(count: usize) -> Vec<MessageData> {
    (0..count).map(|number| MessageData::new(number.to_string())).collect()
}

pub(crate) async fn push(queue: &RabbitMqQueue, partition: &PartitionId, messages: &[MessageData]) {
    for outcome in queue.push(partition, messages).await {
        assert!(matches!(outcome, Ok(PushOutcome::Stored(_))), "{outcome:?}");
    }
}

pub(crate) async fn pull(
    queue: &RabbitMqQueue,
    partition: &PartitionId,
    max: usize,
    wait: Duration,
) -> Vec<RawDelivery> {
    queue.pull(partition, PullRequest::new(max, wait, LEASE)).await.unwrap()
}

/// Pulls until so many have come.
pub(crate) async fn take(queue: &RabbitMqQueue, partition: &PartitionId, count: usize) -> Vec<RawDelivery> {
    let mut got = Vec::new();
    while got.len() < count {
        let more = pull(queue, partition, count - got.len(), SOON).await;
        assert!(!more.is_empty(), "{} of {count} came", got.len());
        got.extend(more);
    }
    got
}

pub(crate) fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    let text = |delivery: &RawDelivery| String::from_utf8(delivery.message.payload().to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

pub(crate) async fn settle(
    queue: &RabbitMqQueue,
    deliveries: &[RawDelivery],
    action: Action,
) -> Vec<SettleOutcome> {
    let settlements: Vec<_> =
        deliveries.iter().map(|delivery| Settlement::new(delivery.lease.clone(), action.clone())).collect();
    queue.settle(&settlements).await.into_iter().collect::<Result<_>>().unwrap()
}

pub(crate) async fn holds(queue: &RabbitMqQueue, delivery: &RawDelivery) -> bool {
    let extension = Extension { lease: delivery.lease.clone(), duration: LEASE };
    let outcome = queue.extend(&[extension]).await.pop().unwrap().unwrap();
    outcome == ExtendOutcome::Extended
}

/// Asks again and again until it is so.
pub(crate) async fn becomes<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(SOON * 2, asking).await.is_ok(), "{what}");
}
