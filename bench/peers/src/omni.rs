//! omniqueue: streams of Redis, RabbitMQ, memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use omniqueue::backends::{InMemoryBackend, RabbitMqBackend, RabbitMqConfig, RedisBackend, RedisConfig};
use omniqueue::{QueueConsumer, QueueProducer};
use tokio::sync::Semaphore;

use crate::peer::{Backend, Consumer, Handled, Job, Opened, Peer, Place, Producer, Result};

const LIBRARY: &str = "omniqueue 0.3.0";
/// Messages held at most.
const WINDOW: usize = 64;
/// How long a call waits for messages.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) fn peers() -> Vec<Peer> {
    let redis = Peer {
        product: LIBRARY,
        backend: Backend::Redis,
        settings: "8 connections",
        configured: "Streams, as by default, and the eight connections of its own tests; a batch is its `send_raw_batch`.",
        guarantee: "At least once: what is not acknowledged in time is put back; late acknowledgements are not refused.",
        sizes: (4000, 10_000),
        pings: 50,
        open: |place| Box::pin(open_redis(place, 8)),
    };
    let rabbitmq = Peer {
        product: LIBRARY,
        backend: Backend::RabbitMq,
        settings: "prefetch 64",
        configured: "A quorum queue, persistent messages, a prefetch of 64.",
        guarantee: "Pushes are not confirmed: what a broker does not take is not told. Consumed at least once.",
        sizes: (10_000, 20_000),
        pings: 50,
        open: |place| Box::pin(open_rabbitmq(place, Some(64))),
    };
    vec![
        Peer {
            product: LIBRARY,
            backend: Backend::Memory,
            settings: "defaults",
            configured: "Its channel, which has no limit; a batch is a loop.",
            guarantee: "A delivery that is dropped without an answer is lost; there are no leases.",
            sizes: (100_000, 100_000),
            pings: 50,
            open: |_| Box::pin(open_memory()),
        },
        Peer {
            settings: "64 connections",
            configured: "Streams, as by default, and a pool of 64 connections; a batch is its `send_raw_batch`.",
            open: |place| Box::pin(open_redis(place, 64)),
            ..redis
        },
        redis,
        Peer {
            settings: "no prefetch",
            configured: "A quorum queue, persistent messages, no limit on what the server sends ahead, as by default.",
            open: |place| Box::pin(open_rabbitmq(place, None)),
            ..rabbitmq
        },
        rabbitmq,
    ]
}

async fn open_memory() -> Result<Opened> {
    Ok(opened(InMemoryBackend::builder().build_pair().await?))
}

async fn open_redis(place: Place, max_connections: u16) -> Result<Opened> {
    let key = place.queue;
    let client = redis::Client::open(place.url.as_str())?;
    let mut conn = client.get_multiplexed_async_connection().await?;
    let group: redis::RedisResult<()> = redis::cmd("XGROUP")
        .arg("CREATE")
        .arg(&key)
        .arg("peers")
        .arg(0)
        .arg("MKSTREAM")
        .query_async(&mut conn)
        .await;
    group?;
    let config = RedisConfig {
        dsn: place.url,
        max_connections,
        reinsert_on_nack: false,
        delayed_queue_key: format!("{key}::delayed"),
        delayed_lock_key: format!("{key}::delayed_lock"),
        consumer_group: "peers".to_owned(),
        consumer_name: "peer".to_owned(),
        payload_key: "payload".to_owned(),
        ack_deadline_ms: 300_000,
        dlq_config: None,
        sentinel_config: None,
        queue_key: key,
    };
    Ok(opened(RedisBackend::builder(config).build_pair().await?))
}

async fn open_rabbitmq(place: Place, prefetch: Option<u16>) -> Result<Opened> {
    let queue = place.queue;
    let conn = Connection::connect(&place.url, ConnectionProperties::default()).await?;
    let channel = conn.create_channel().await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(&queue, durable, arguments).await?;
    let config = RabbitMqConfig {
        uri: place.url,
        connection_properties: ConnectionProperties::default(),
        publish_exchange: String::new(),
        publish_routing_key: queue.clone(),
        publish_options: BasicPublishOptions::default(),
        publish_properties: BasicProperties::default().with_delivery_mode(2),
        consume_queue: queue,
        consumer_tag: "peers".to_owned(),
        consume_options: BasicConsumeOptions::default(),
        consume_arguments: FieldTable::default(),
        consume_prefetch_count: prefetch,
        requeue_on_nack: true,
    };
    // The pair's consumer would be sent messages while they are pushed: it comes when it is wanted.
    let producer = RabbitMqBackend::builder(config.clone()).build_producer().await?;
    let consumer: Consumer = Box::new(move |handled| {
        Box::pin(async move {
            let consumer = RabbitMqBackend::builder(config).build_consumer().await?;
            let _conn = conn;
            consume(consumer, handled).await
        })
    });
    Ok(Opened { producer: Box::new(Sender(producer)), consumer })
}

fn opened<P, C>((producer, consumer): (P, C)) -> Opened
where
    P: QueueProducer<Payload = Vec<u8>> + 'static,
    C: QueueConsumer + 'static,
{
    let consumer: Consumer = Box::new(|handled| Box::pin(consume(consumer, handled)));
    Opened { producer: Box::new(Sender(producer)), consumer }
}

/// Holds at most a window of messages, and acknowledges each in a task of its own.
async fn consume<C: QueueConsumer>(mut consumer: C, handled: Handled) -> Result<()> {
    let free = Arc::new(Semaphore::new(WINDOW));
    loop {
        drop(free.acquire().await?);
        for delivery in consumer.receive_all(free.available_permits(), WAIT).await? {
            let (permit, handled) = (free.clone().acquire_owned().await?, handled.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let payload = delivery.borrow_payload().unwrap_or_default().to_vec();
                if delivery.ack().await.is_ok() {
                    handled.told(String::from_utf8_lossy(&payload).into_owned(), begun).await;
                }
                drop(permit);
            });
        }
    }
}

struct Sender<P>(P);

impl<P: QueueProducer<Payload = Vec<u8>>> Producer for Sender<P> {
    fn push(&mut self, payload: String) -> Job<'_, ()> {
        Box::pin(async move { Ok(self.0.send_raw(&payload.into_bytes()).await?) })
    }

    fn push_batch(&mut self, payloads: Vec<String>) -> Job<'_, ()> {
        let payloads: Vec<_> = payloads.into_iter().map(String::into_bytes).collect();
        Box::pin(async move { Ok(self.0.send_raw_batch(payloads).await?) })
    }
}
