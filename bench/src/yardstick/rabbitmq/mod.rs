//! A hand-written client for RabbitMQ: one channel that publishes with confirms, one with a standing consumer
//! whose prefetch is the window.

mod acks;
mod delivery;
mod feed;
mod server;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Bytes, MessageId};
use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use self::acks::Acks;
use self::delivery::{ID_BYTES, RawDelivery};
use self::feed::Feed;
use crate::client::{Client, Result, Source, Yardstick};
use crate::scenario::Scenario;

const PERSISTENT: u8 = 2;
/// A number of deliveries that is never reached: only with a limit may a quorum queue return a message to its
/// front.
const DELIVERY_LIMIT: i64 = 2_000_000_000;
/// How long a call that does not want to wait is given for what is already there: the server sends it a
/// moment later.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// A way to use the server, the same for both sides.
pub(crate) trait Mode: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// Anyqueue's options.
    const OPTIONS: &'static str;
    const QUEUE_TYPE: &'static str;
    /// The number of messages that the server may send ahead of what is requested; 0: none.
    const PREFETCH: u16;
}

/// Strict pulls from a quorum queue: the defaults.
#[derive(Clone)]
pub(crate) struct Quorum;
/// Strict pulls from a classic queue.
#[derive(Clone)]
pub(crate) struct Classic;
/// Messages of a quorum queue, held ready.
#[derive(Clone)]
pub(crate) struct Ahead;
/// Messages of a classic queue, held ready.
#[derive(Clone)]
pub(crate) struct ClassicAhead;

impl Mode for Quorum {
    const NAME: &'static str = "rabbitmq";
    const OPTIONS: &'static str = "";
    const QUEUE_TYPE: &'static str = "quorum";
    const PREFETCH: u16 = 0;
}

impl Mode for Classic {
    const NAME: &'static str = "rabbitmq-classic";
    const OPTIONS: &'static str = "&queue_type=classic";
    const QUEUE_TYPE: &'static str = "classic";
    const PREFETCH: u16 = 0;
}

impl Mode for Ahead {
    const NAME: &'static str = "rabbitmq-prefetch";
    const OPTIONS: &'static str = "&prefetch=2000";
    const QUEUE_TYPE: &'static str = "quorum";
    const PREFETCH: u16 = 2000;
}

impl Mode for ClassicAhead {
    const NAME: &'static str = "rabbitmq-classic-prefetch";
    const OPTIONS: &'static str = "&queue_type=classic&prefetch=2000";
    const QUEUE_TYPE: &'static str = "classic";
    const PREFETCH: u16 = 2000;
}

#[derive(Clone)]
pub(crate) struct RabbitMq<M>(Arc<Handle>, PhantomData<M>);

struct Handle {
    queue: String,
    publishing: Connection,
    consuming: Connection,
    publisher: Channel,
    /// The channel that asks how many messages are ready.
    control: Channel,
    feed: Mutex<Feed>,
    acks: Arc<Acks>,
}

impl Handle {
    async fn publish(&self, payload: &Bytes) -> Result<MessageId> {
        let id = MessageId::new();
        let mut body = Vec::with_capacity(ID_BYTES + payload.len());
        body.extend_from_slice(id.as_bytes());
        body.extend_from_slice(payload);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let queue = self.queue.as_str().into();
        let sent = self.publisher.basic_publish("".into(), queue, options, &body, properties).await?;
        let confirmed = sent.await?;
        if confirmed.is_ack() && confirmed.take_message().is_none() {
            Ok(id)
        } else {
            Err("the server did not take a message".into())
        }
    }
}

fn arguments(queue_type: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(queue_type.into()));
    if queue_type == Quorum::QUEUE_TYPE {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERY_LIMIT));
    }
    arguments
}

impl<M: Mode> Client for RabbitMq<M> {
    type RawDelivery = RawDelivery;
    type Source = Fed;

    async fn open(url: &str) -> Result<Self> {
        let (plain, prefix) = server::parts(url)?;
        let connect = || Connection::connect(plain, ConnectionProperties::default());
        let (publishing, consuming) = (connect().await?, connect().await?);
        let publisher = publishing.create_channel().await?;
        publisher.confirm_select(ConfirmSelectOptions::default()).await?;
        let queue = server::by_hand(prefix);
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        publisher.queue_declare(queue.as_str().into(), options, arguments(M::QUEUE_TYPE)).await?;
        let control = consuming.create_channel().await?;
        let feed = Feed::new(consuming.create_channel().await?, queue.clone(), M::PREFETCH);
        let acks = feed.acks();
        let feed = Mutex::new(feed);
        let handle = Handle { queue, publishing, consuming, publisher, control, feed, acks };
        Ok(Self(Arc::new(handle), PhantomData))
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        self.0.publish(&payload).await
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        try_join_all(payloads.iter().map(|payload| self.0.publish(payload))).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        self.0.feed.lock().await.take(max, wait.max(ON_ITS_WAY)).await
    }

    async fn settle(&self, delivery: RawDelivery) -> Result<()> {
        delivery.acks.settle(&[delivery.number])
    }

    async fn settle_batch(&self, deliveries: Vec<RawDelivery>) -> Result<()> {
        let numbers: Vec<_> = deliveries.iter().map(|delivery| delivery.number).collect();
        self.0.acks.settle(&numbers)
    }

    async fn source(&self, window: usize) -> Result<Fed> {
        let channel = self.0.consuming.create_channel().await?;
        let mut feed = Feed::new(channel, self.0.queue.clone(), M::PREFETCH);
        feed.stand(window).await?;
        Ok(Fed(feed))
    }

    async fn remaining(&self) -> Result<u64> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.0.queue.as_str().into();
        let declared = self.0.control.queue_declare(queue, options, FieldTable::default()).await?;
        Ok(declared.message_count().into())
    }

    async fn close(&self) -> Result<()> {
        // All is settled, so it does not matter whether the server answers.
        let _ = self.0.publishing.close(200, "done".into()).await;
        let _ = self.0.consuming.close(200, "done".into()).await;
        Ok(())
    }

    fn id(delivery: &RawDelivery) -> MessageId {
        delivery.id
    }

    fn payload(delivery: &RawDelivery) -> &[u8] {
        &delivery.payload
    }
}

impl<M: Mode> Yardstick for RabbitMq<M> {
    const NAME: &'static str = M::NAME;
    const ACROSS_PROCESSES: bool = true;
    const COUNTS_HELD: bool = false;
    const ANSWERS_SETTLEMENTS: bool = false;
    const KEEPS_MORE: bool = false;

    fn messages(scenario: Scenario) -> usize {
        match scenario {
            Scenario::LatencyAcross => 100,
            Scenario::PushOne | Scenario::Latency => 300,
            Scenario::Push8 => 2_000,
            _ => 10_000,
        }
    }

    async fn place(_scratch: &Path) -> Result<String> {
        server::new_place(M::OPTIONS).await
    }

    fn server_version() -> Option<String> {
        server::version()
    }

    async fn clear(url: &str) -> Result<()> {
        server::clear(url).await
    }
}

/// A consumer whose prefetch is a puller's window.
pub(crate) struct Fed(Feed);

impl Source<RawDelivery> for Fed {
    async fn next(&mut self) -> Result<RawDelivery> {
        self.0.next().await
    }
}
