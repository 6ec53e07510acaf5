//! What must exist on the server. Declaring again what is there changes nothing.

use anyqueue::Result;
use futures_util::future::join3;
use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use crate::config::QueueType;
use crate::delay_queues::{self, DelayQueue, next_exchange};
use crate::error::{Right, classify, is_missing};
use crate::names::{LevelQueue, Names};

/// How often a quorum queue delivers a message. It must have a limit, for only then does it put what was returned in front; and what
/// exceeds the limit dies without a handler, so the limit is one that no message reaches. An operator's policy can set a lower one:
/// so each line has its dead letters as the server's, and what policies make a queue lose (also by age or length) is there.
const DELIVERY_LIMIT: i64 = 2_000_000_000;

/// How long what has no landing any more rests before it is tried again.
const STRAY_MS: u64 = 60_000;

const DURABLE: QueueDeclareOptions = QueueDeclareOptions {
    passive: false,
    durable: true,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

/// The exchanges that all lines share.
pub(crate) async fn declare_shared(channel: &Channel, names: &Names) -> Result<()> {
    let known = exchange(channel, names.known(), ExchangeKind::Direct);
    let announcements = exchange(channel, names.announcements(), ExchangeKind::Fanout);
    // It drops whatever comes; it is there so that what was routed to it counts as routed.
    // On all nodes of a cluster, so that it outlives the one where it was made.
    let arguments = table([("x-queue-type", text("quorum")), ("x-max-length", AMQPValue::LongInt(0))]);
    let sink = async { declared(channel.queue_declare(names.sink().into(), DURABLE, arguments).await) };
    // Sent at once: whoever opens a handle waits for this.
    let (known, announcements, sink) = join3(known, announcements, sink).await;
    known.and(announcements).and(sink)
}

/// The exchange of what is due. What has no landing any more goes aside, where it is tried again and keeps nothing else waiting.
pub(crate) async fn declare_due(channel: &Channel, names: &Names) -> Result<()> {
    exchange(channel, names.stray(), ExchangeKind::Fanout).await?;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let arguments = table([("alternate-exchange", text(&names.stray()))]);
    declared(channel.exchange_declare(names.due().into(), ExchangeKind::Topic, options, arguments).await)?;
    let arguments = dead_letters_after(STRAY_MS, &names.due(), None);
    declared(channel.queue_declare(names.stray().into(), DURABLE, arguments).await)?;
    bind(channel, names.stray(), names.stray(), String::new()).await
}

/// What a queue has that holds messages for a time and then hands them on.
fn dead_letters_after(after_ms: u64, exchange: &str, key: Option<&str>) -> FieldTable {
    let mut arguments = table([
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongLongInt(i64::try_from(after_ms).unwrap_or(i64::MAX))),
    ]);
    dead_letters_to(&mut arguments, exchange, key);
    arguments
}

/// What is handed on stays until it has arrived; that needs a queue that refuses rather than drops.
fn dead_letters_to(arguments: &mut FieldTable, exchange: &str, key: Option<&str>) {
    arguments.insert("x-dead-letter-exchange".into(), text(exchange));
    if let Some(key) = key {
        arguments.insert("x-dead-letter-routing-key".into(), text(key));
    }
    arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    arguments.insert("x-overflow".into(), text("reject-publish"));
}

/// The queue of a line, and its entries in the exchanges.
pub(crate) async fn declare_level_queue(
    channel: &Channel,
    names: &Names,
    queue_type: QueueType,
    level_queue: &LevelQueue,
) -> Result<()> {
    let queue = names.queue(level_queue);
    let arguments = match queue_type {
        QueueType::Quorum => {
            let mut arguments = table([
                ("x-queue-type", text("quorum")),
                ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
            ]);
            dead_letters_to(&mut arguments, "", Some(&names.queue(&level_queue.dead_letter_queue())));
            arguments
        }
        QueueType::Classic => table([("x-queue-type", text("classic"))]),
    };
    declared(channel.queue_declare(queue.into(), DURABLE, arguments).await)?;
    bind(channel, names.sink(), names.known(), level_queue.routing_word()).await?;
    if level_queue.level > 0 {
        bind(
            channel,
            names.sink(),
            names.known(),
            LevelQueue::any_above_zero(&level_queue.partition).routing_word(),
        )
        .await?;
    }
    Ok(())
}

/// The exchange of a rung of the ladder. The one below must be there.
pub(crate) async fn declare_delay_stage(channel: &Channel, names: &Names, stage: u32) -> Result<()> {
    let (name, below) = (names.delay_stage(stage), next_exchange(names, stage));
    exchange(channel, name.clone(), ExchangeKind::Topic).await?;
    let options = ExchangeBindOptions::default();
    let passing_key = delay_queues::passing_key(stage).into();
    let bound = channel.exchange_bind(below.into(), name.into(), passing_key, options, FieldTable::default());
    bound.await.map_err(|error| Right::Bind.classify(error))
}

/// A queue of the ladder.
pub(crate) async fn declare_delay_queue(channel: &Channel, names: &Names, queue: DelayQueue) -> Result<()> {
    let (name, below) = (queue.queue(names), next_exchange(names, queue.stage));
    let arguments = dead_letters_after(queue.ttl_ms(), &below, None);
    declared(channel.queue_declare(name.clone().into(), DURABLE, arguments).await)?;
    bind(channel, name, names.delay_stage(queue.stage), queue.binding_key()).await
}

/// Where what is due for a line arrives, and goes on to it at once. Its name is asked for to see whether it was made.
pub(crate) async fn declare_due_queue(
    channel: &Channel,
    names: &Names,
    level_queue: &LevelQueue,
) -> Result<()> {
    let name = names.due_queue(level_queue);
    let arguments = dead_letters_after(0, "", Some(&names.queue(level_queue)));
    declared(channel.queue_declare(name.clone().into(), DURABLE, arguments).await)?;
    bind(channel, name.clone(), names.due(), delay_queues::due_binding_key(level_queue)).await?;
    bind(channel, names.sink(), names.known(), name).await
}

/// Whether there is such a queue. If there is not, the channel is gone.
pub(crate) async fn exists(channel: &Channel, queue: String) -> Result<bool> {
    match count(channel, queue).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ready messages of a queue.
pub(crate) async fn count(channel: &Channel, queue: String) -> Result<usize> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
    declared.map(|queue| queue.message_count() as usize).map_err(classify)
}

async fn exchange(channel: &Channel, name: String, kind: ExchangeKind) -> Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    declared(channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await)
}

/// Takes back what [`bind`] did. Taking back what was never done changes nothing.
pub(crate) async fn unbind(channel: &Channel, queue: String, exchange: String, key: String) -> Result<()> {
    let unbound = channel.queue_unbind(queue.into(), exchange.into(), key.into(), FieldTable::default());
    unbound.await.map_err(|error| Right::Bind.classify(error))
}

pub(crate) async fn bind(channel: &Channel, queue: String, exchange: String, key: String) -> Result<()> {
    let options = QueueBindOptions::default();
    let bound = channel.queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default());
    bound.await.map_err(|error| Right::Bind.classify(error))
}

fn declared<T>(declared: lapin::Result<T>) -> Result<()> {
    declared.map(drop).map_err(|error| Right::Configure.classify(error))
}

fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}
