//! What must exist on the server. Declaring again what is there changes nothing.

use anyqueue::Result;
use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use crate::config::QueueType;
use crate::error::Right;
use crate::ladder::{self, Rest, below};
use crate::names::{Line, Names};

/// How often a quorum queue delivers a message. It must have a limit, for only then does it put what was returned in front; and what
/// exceeds the limit it drops, so the limit is one that no message reaches.
const DELIVERY_LIMIT: i64 = 2_000_000_000;

const DURABLE: QueueDeclareOptions = QueueDeclareOptions {
    passive: false,
    durable: true,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

/// The exchanges that all lines share.
pub(crate) async fn declare_shared(channel: &Channel, names: &Names) -> Result<()> {
    exchange(channel, names.known(), ExchangeKind::Direct).await?;
    exchange(channel, names.news(), ExchangeKind::Fanout).await?;
    exchange(channel, names.due(), ExchangeKind::Topic).await?;
    // It drops whatever comes; it is there so that what was routed to it counts as routed.
    // On all nodes of a cluster, so that it outlives the one where it was made.
    let arguments = table([("x-queue-type", text("quorum")), ("x-max-length", AMQPValue::LongInt(0))]);
    declared(channel.queue_declare(names.sink().into(), DURABLE, arguments).await)
}

/// The queue of a line, and its entries in the exchanges.
pub(crate) async fn declare_line(
    channel: &Channel,
    names: &Names,
    queue_type: QueueType,
    line: &Line,
) -> Result<()> {
    let queue = names.queue(line);
    let arguments = match queue_type {
        QueueType::Quorum => table([
            ("x-queue-type", text("quorum")),
            ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
        ]),
        QueueType::Classic => table([("x-queue-type", text("classic"))]),
    };
    declared(channel.queue_declare(queue.clone().into(), DURABLE, arguments).await)?;
    bind(channel, queue, names.due(), ladder::due_pattern(line)).await?;
    bind(channel, names.sink(), names.known(), line.word()).await?;
    if line.level > 0 {
        bind(channel, names.sink(), names.known(), Line::more(&line.partition).word()).await?;
    }
    Ok(())
}

/// The exchange of a rung of the ladder. The one below must be there.
pub(crate) async fn declare_rung(channel: &Channel, names: &Names, rung: u32) -> Result<()> {
    let (name, below) = (names.rung(rung), below(names, rung));
    exchange(channel, name.clone(), ExchangeKind::Topic).await?;
    let options = ExchangeBindOptions::default();
    let passing = ladder::passing(rung).into();
    let bound = channel.exchange_bind(below.into(), name.into(), passing, options, FieldTable::default());
    bound.await.map_err(|error| Right::Bind.classify(error))
}

/// A queue of the ladder.
pub(crate) async fn declare_rest(channel: &Channel, names: &Names, rest: Rest) -> Result<()> {
    let (name, below) = (names.rest(rest), below(names, rest.rung));
    let arguments = table([
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongLongInt(i64::try_from(rest.holds_ms()).unwrap_or(i64::MAX))),
        ("x-dead-letter-exchange", text(&below)),
        // What is handed on stays until it has arrived; that needs a queue that refuses rather than drops.
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ]);
    declared(channel.queue_declare(name.clone().into(), DURABLE, arguments).await)?;
    bind(channel, name, names.rung(rest.rung), rest.pattern()).await
}

async fn exchange(channel: &Channel, name: String, kind: ExchangeKind) -> Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    declared(channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await)
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
