//! The queues and exchanges that must exist on the server. Declaring them again changes nothing.

use std::time::Duration;

use anyqueue::Result;
use futures_util::future::join3;
use lapin::options::{
    BasicGetOptions, ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use crate::config::QueueType;
use crate::delay_queues::{self, DelayQueue, next_exchange};
use crate::error::{Right, classify, is_missing};
use crate::names::{LevelQueue, Names};

/// The delivery limit of quorum queues. Only queues with a limit requeue at the front. A message above the
/// limit would die without a handler, so no message may reach it. An operator's policy can set a lower limit.
/// So the server dead-letters each queue to its dead letters, and what policies drop, also by age or length,
/// ends up there.
const DELIVERY_LIMIT: i64 = 2_000_000_000;

/// A queue without a leader after this time is taken to get none. Elections take some tenths of a second.
const LEADERLESS: Duration = Duration::from_secs(5);

/// How long a message rests before it is tried again, if its due queue is missing.
const STRAY_MS: u64 = 60_000;

const DURABLE: QueueDeclareOptions = QueueDeclareOptions {
    passive: false,
    durable: true,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

/// Declares the exchanges that all queues share.
pub(crate) async fn declare_shared(channel: &Channel, names: &Names) -> Result<()> {
    let known = exchange(channel, names.known(), ExchangeKind::Direct);
    let announcements = exchange(channel, names.announcements(), ExchangeKind::Fanout);
    // This queue drops all messages. It exists so that a message routed to it counts as routed. It is on all
    // nodes of a cluster, so it survives the loss of the node on which it was declared.
    let arguments = table([("x-queue-type", text("quorum")), ("x-max-length", AMQPValue::LongInt(0))]);
    let sink = async { declared(channel.queue_declare(names.sink().into(), DURABLE, arguments).await) };
    // Sent together, since opening a handle waits for the answers.
    let (known, announcements, sink) = join3(known, announcements, sink).await;
    known.and(announcements).and(sink)
}

/// Declares the exchange of due messages. Messages whose due queue is missing go to a separate queue, and
/// delay no others.
pub(crate) async fn declare_due(channel: &Channel, names: &Names) -> Result<()> {
    exchange(channel, names.stray(), ExchangeKind::Fanout).await?;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let arguments = table([("alternate-exchange", text(&names.stray()))]);
    declared(channel.exchange_declare(names.due().into(), ExchangeKind::Topic, options, arguments).await)
}

/// Returns the arguments of a queue that holds messages for a certain time and then dead-letters them.
fn dead_letters_after(after_ms: u64, exchange: &str, key: Option<&str>) -> FieldTable {
    let mut arguments = table([
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongLongInt(i64::try_from(after_ms).unwrap_or(i64::MAX))),
    ]);
    dead_letters_to(&mut arguments, exchange, key);
    arguments
}

/// Adds dead-lettering to the arguments of a queue. A dead-lettered message stays until it has arrived. For
/// that the server requires that the queue rejects publishes when it is full.
fn dead_letters_to(arguments: &mut FieldTable, exchange: &str, key: Option<&str>) {
    arguments.insert("x-dead-letter-exchange".into(), text(exchange));
    if let Some(key) = key {
        arguments.insert("x-dead-letter-routing-key".into(), text(key));
    }
    arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    arguments.insert("x-overflow".into(), text("reject-publish"));
}

/// Declares the queue of a level and binds it.
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

/// Declares the exchange of a delay stage. The exchange of the next lower stage must exist.
pub(crate) async fn declare_delay_stage(channel: &Channel, names: &Names, stage: u32) -> Result<()> {
    let (name, below) = (names.delay_stage(stage), next_exchange(names, stage));
    exchange(channel, name.clone(), ExchangeKind::Topic).await?;
    let options = ExchangeBindOptions::default();
    let passing_key = delay_queues::passing_key(stage).into();
    let bound = channel.exchange_bind(below.into(), name.into(), passing_key, options, FieldTable::default());
    bound.await.map_err(|error| Right::Bind.classify(error))
}

/// A queue that holds messages for a certain time and passes them on.
#[derive(Clone, Copy)]
pub(crate) enum HoldingQueue<'a> {
    /// Holds due messages that have no due queue, until they are tried again.
    Stray,
    /// Due messages pass through it on their way to a level's queue.
    Due(&'a LevelQueue),
    Delay(DelayQueue),
}

impl HoldingQueue<'_> {
    /// Its name on the server.
    pub(crate) fn name(self, names: &Names) -> String {
        match self {
            Self::Stray => names.stray(),
            Self::Due(level_queue) => names.due_queue(level_queue),
            Self::Delay(queue) => queue.queue(names),
        }
    }

    /// Declares and binds the queue, and marks it as complete by a binding under its own name.
    pub(crate) async fn declare(self, channel: &Channel, names: &Names) -> Result<()> {
        let name = self.name(names);
        let (arguments, exchange, key) = match self {
            Self::Stray => (dead_letters_after(STRAY_MS, &names.due(), None), names.stray(), String::new()),
            Self::Due(level_queue) => (
                dead_letters_after(0, "", Some(&names.queue(level_queue))),
                names.due(),
                delay_queues::due_binding_key(level_queue),
            ),
            Self::Delay(queue) => (
                dead_letters_after(queue.ttl_ms(), &next_exchange(names, queue.stage), None),
                names.delay_stage(queue.stage),
                queue.binding_key(),
            ),
        };
        declared(channel.queue_declare(name.clone().into(), DURABLE, arguments).await)?;
        bind(channel, name.clone(), exchange, key).await?;
        bind(channel, names.sink(), names.known(), name).await
    }
}

/// Returns whether the queue exists. If it does not, the server closes the channel.
pub(crate) async fn exists(channel: &Channel, queue: String) -> Result<bool> {
    match count(channel, queue).await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether a quorum queue has a leader, which takes a moment after the server has started: only a
/// leader can tell what is in the queue. A queue whose only node died while it was being declared may never
/// get one (3.10).
pub(crate) async fn has_leader(channel: &Channel, queue: String) -> Result<bool> {
    let asked = channel.basic_get(queue.into(), BasicGetOptions::default());
    match tokio::time::timeout(LEADERLESS, asked).await {
        Ok(answer) => answer.map(|_| true).map_err(|error| Right::Read.classify(error)),
        Err(_) => Ok(false),
    }
}

/// Removes a queue and the messages in it. The server's channel crashes if the queue has no leader (3.10).
pub(crate) async fn remove(channel: &Channel, queue: String) -> Result<()> {
    let removed = channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
    removed.map(drop).map_err(|error| Right::Configure.classify(error))
}

/// Returns the number of ready messages in a queue.
pub(crate) async fn count(channel: &Channel, queue: String) -> Result<usize> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
    declared.map(|queue| queue.message_count() as usize).map_err(classify)
}

async fn exchange(channel: &Channel, name: String, kind: ExchangeKind) -> Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    declared(channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await)
}

/// Removes a binding. If there is none, nothing changes.
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
