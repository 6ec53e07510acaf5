//! The conformance suite over the RabbitMQ backend: a prefix per case, and other processes on the same broker. With
//! `ANYQUEUE_TEST_AMQP_QUEUES=classic` over classic queues.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Decoded, Envelope, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage, Settlement,
    Storage,
};
use anyqueue::{Bytes, Clock, Error, ErrorKind, MessageData, MessageId, PartitionId, Result};
use anyqueue_conformance::{Disruption, FaultTarget, Harness, Need, Opening, async_trait, corrupted, least};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Fault, Provided, Proxy, Server, provide};
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};

const SOON: Duration = Duration::from_secs(10);

/// The broker tries again after three seconds, not three minutes, to hand on what fell due and did not arrive. That happens on a busy
/// machine, and the suite does not wait so long.
fn broker() -> anyqueue_testkit::RabbitMq {
    let hands_on_again = "-rabbit dead_letter_worker_publisher_confirm_timeout 3000";
    anyqueue_testkit::RabbitMq::new().erlang_arguments(hands_on_again)
}

struct RabbitMq {
    url: String,
    _server: Provided,
}

/// Whether the suite runs over classic queues.
fn is_classic() -> bool {
    std::env::var("ANYQUEUE_TEST_AMQP_QUEUES").is_ok_and(|queues| queues == "classic")
}

/// A prefix per namespace. Each case has queues of its own: it would wait two seconds for each of them to be old.
fn address(url: &str, namespace: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let queues = if is_classic() { "&queue_type=classic" } else { "" };
    format!("{url}{separator}prefix={namespace}{queues}&queue_age=0s")
}

/// Classic queues count no deliveries.
const CLASSIC: &[Need] = &[
    Need::Priority,
    Need::StrictPriority,
    Need::PushOrder,
    Need::RequeueFront,
    Need::Fencing,
    Need::PushDelay,
    Need::PostponeDelay,
];

async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    let queue = RabbitMqQueue::open(url).await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

async fn open_on(url: &str, clock: Clock) -> Result<Arc<dyn Storage>> {
    let queue = RabbitMqQueue::from_url(url)?.clock(clock).open().await?;
    queue.init().await?;
    Ok(Arc::new(queue))
}

#[async_trait]
impl Harness for RabbitMq {
    fn name(&self) -> &'static str {
        if is_classic() { "rabbitmq-classic" } else { "rabbitmq" }
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(&self.url, namespace)).await
    }

    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let address = address(&self.url, namespace);
        Some(Box::pin(async move { open_on(&address, clock).await }))
    }

    fn address(&self, namespace: &str) -> Option<String> {
        Some(address(&self.url, namespace))
    }

    async fn attach(address: &str) -> Result<Arc<dyn Storage>> {
        open(address).await
    }

    fn least(&self) -> &'static [Need] {
        if is_classic() { CLASSIC } else { least::BROKER }
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        RULES.iter().find(|(other, _)| *other == need).map(|(_, rule)| *rule)
    }

    fn stores_bytes(&self) -> bool {
        true
    }

    async fn plant(&self, namespace: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        // A message that comes and goes: then the partition has its queue.
        let queue = RabbitMqQueue::open(&address(&self.url, namespace)).await?;
        for answer in queue.push(partition, &[MessageData::new("first")]).await {
            answer?;
        }
        for delivery in queue.pull(partition, PullRequest::new(1, SOON, SOON)).await? {
            let settled = queue.settle(&[Settlement { lease: delivery.lease, action: Action::Remove }]).await;
            settled.into_iter().collect::<Result<Vec<_>>>()?;
        }
        queue.close().await?;
        let name = format!("{namespace}:{}:0", partition.name());
        publish(&self.url, &name, stored).await.map_err(unplanted)
    }

    fn corrupts(&self) -> bool {
        true
    }

    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        let dead = if partition.is_dead_letters() { ":dead" } else { "" };
        let queue = format!("{namespace}:{}{dead}:0", partition.name());
        let stored = take_all(&self.url, &queue).await.map_err(unplanted)?;
        for body in stored {
            let is_it = |envelope: &Envelope| envelope.message.id() == id;
            let body = match Envelope::decode(&Bytes::from(body.clone())) {
                Ok(Decoded::Envelope(envelope)) if is_it(&envelope) => corrupted(&body)?,
                _ => body,
            };
            publish(&self.url, &queue, &body).await.map_err(unplanted)?;
        }
        Ok(())
    }

    /// Each case makes dozens of queues; of more cases at once the calls take longer than the two seconds that are allowed for.
    fn parallelism(&self) -> usize {
        8
    }

    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(Some(Arc::new(OwnServer::start().await.map_err(failed)?)))
    }
}

/// Why the broker cannot have it.
const RULES: &[(Need, &str)] = &[
    (
        Need::TimedLease,
        "a delivery is its channel's: AMQP 0-9-1 knows no end by time; core's own timer gives back what nobody extends",
    ),
    (Need::DeliveryCount, "a classic queue counts no deliveries"),
    (Need::Groups, "a single active consumer is per queue: the broker orders no group within one"),
    (Need::Dedup, "the broker compares no messages"),
    (Need::DedupWhileLive, "the broker compares no messages"),
    (Need::UniqueIds, "the broker compares no messages"),
    (
        Need::Counts,
        "the broker counts ready messages of a queue; what is held or delayed it tells only to managers",
    ),
    (Need::List, "AMQP 0-9-1 cannot list queues"),
    (Need::Browse, "the broker shows a message only to who takes it"),
    (Need::Delete, "the broker finds no message by its id"),
    (Need::Purge, "a queue is purged as a whole: no bound, and delayed messages stay"),
    (Need::Cancel, "the broker finds no message by its id"),
    (Need::Pause, "consumers of a queue cannot be paused"),
    (Need::ServerAges, "AMQP 0-9-1 does not tell the broker's time: a message bears that of who pushed it"),
    (Need::ControlledClock, "time is the server's: its clock cannot be turned"),
];

fn unplanted(error: lapin::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the message could not be planted").with_source(error)
}

/// All that a queue has ready, in order.
async fn take_all(url: &str, queue: &str) -> lapin::Result<Vec<Vec<u8>>> {
    let conn = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    let mut bodies = Vec::new();
    while let Some(got) = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await? {
        bodies.push(got.delivery.data);
    }
    conn.close(200, "done".into()).await?;
    Ok(bodies)
}

async fn publish(url: &str, queue: &str, body: &[u8]) -> lapin::Result<()> {
    let conn = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
    channel.basic_publish("".into(), queue.into(), options, body, properties).await?.await?;
    conn.close(200, "done".into()).await
}

/// A broker for one case, and what it is reached through.
struct OwnServer {
    server: Server,
    proxy: Proxy,
}

impl OwnServer {
    async fn start() -> anyqueue_testkit::Result<Self> {
        let server = Server::start(broker()).await?;
        let proxy = Proxy::start(server.addr())?;
        Ok(Self { server, proxy })
    }
}

fn failed(error: anyqueue_testkit::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the test server").with_source(error)
}

#[async_trait]
impl FaultTarget for OwnServer {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        open(&address(&format!("amqp://guest:guest@{}/%2f", self.proxy.addr()), namespace)).await
    }

    async fn disrupt(&self, disruption: Disruption) -> Result<()> {
        let done = match disruption {
            Disruption::Kill => {
                // A quorum queue that is younger than a second does not survive this, and this run does not wait for it to be older.
                tokio::time::sleep(Duration::from_millis(1500)).await;
                self.server.kill().await
            }
            Disruption::Start => self.server.restart().await,
            Disruption::Freeze => self.server.freeze().await,
            Disruption::Thaw => self.server.thaw().await,
            Disruption::Cut => {
                self.proxy.reset_all();
                Ok(())
            }
            Disruption::Stall => self.proxy.set(Fault::Stall).await,
            Disruption::DropReplies => self.proxy.set(Fault::DropReplies).await,
            Disruption::Delay(delay) => self.proxy.set(Fault::Delay(delay)).await,
            Disruption::Heal => self.proxy.set(Fault::Pass).await,
            _ => return Err(Error::unsupported("a disruption of a later release")),
        };
        done.map_err(failed)
    }
}

/// The broker of this run. Without one nothing is run, which was said; in CI that is an error.
fn server() -> Provided {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let provided = runtime.map(|runtime| runtime.block_on(provide(broker())));
    match provided {
        Ok(Ok(provided)) => provided,
        other => {
            eprintln!("no server for the suite: {other:?}");
            std::process::exit(1)
        }
    }
}

fn main() -> ExitCode {
    // A child process attaches to its parent's server; it needs none of its own.
    anyqueue_conformance::main(|| {
        let server = server();
        let Some(url) = server.url().map(str::to_owned) else { std::process::exit(0) };
        RabbitMq { url, _server: server }
    })
}
