//! A message as the broker keeps it: core's envelope as the body. Headers of users never become headers of AMQP, some of which
//! the broker obeys.

use std::time::{Duration, SystemTime};

use anyqueue::{Decoded, Envelope, MessageData, MessageId, Result};
use bytes::Bytes;
use lapin::message::Delivery;
use lapin::types::AMQPValue;

/// What was read of a delivered message.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) message: MessageData,
    pub(crate) pushed_at: Option<SystemTime>,
    /// Deliveries with this one; `None` where the queue does not count.
    pub(crate) deliveries: Option<u32>,
}

impl Stored {
    pub(crate) fn age(&self) -> Duration {
        self.pushed_at.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default()
    }
}

/// Reads a delivered message.
pub(crate) fn read(delivery: Delivery) -> Result<Stored> {
    let before = earlier(&delivery);
    let body = Bytes::from(delivery.data);
    let (message, pushed_at, prior) = match Envelope::decode(&body)? {
        Decoded::Envelope(envelope) => (envelope.message, envelope.pushed_at, envelope.prior_deliveries),
        foreign @ Decoded::Foreign(_) => {
            let name = delivery.properties.message_id().as_ref().map(ToString::to_string);
            // What has no name is named after what it says: so it has one name at each delivery.
            let name =
                name.unwrap_or_else(|| MessageId::from_foreign(&String::from_utf8_lossy(&body)).to_string());
            (foreign.into_message(&name), None, 0)
        }
    };
    Ok(Stored { message, pushed_at, deliveries: Some(prior.saturating_add(before).saturating_add(1)) })
}

/// How often this copy was delivered before, as a quorum queue counts it; nothing stands for none.
fn earlier(delivery: &Delivery) -> u32 {
    let headers = delivery.properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get("x-delivery-count")) {
        Some(AMQPValue::LongLongInt(count)) => u32::try_from(*count).unwrap_or(0),
        Some(AMQPValue::LongInt(count)) => u32::try_from(*count).unwrap_or(0),
        Some(AMQPValue::LongUInt(count)) => *count,
        Some(AMQPValue::ShortShortUInt(count)) => u32::from(*count),
        Some(AMQPValue::ShortShortInt(count)) => u32::try_from(*count).unwrap_or(0),
        Some(AMQPValue::ShortInt(count)) => u32::try_from(*count).unwrap_or(0),
        Some(AMQPValue::ShortUInt(count)) => u32::from(*count),
        _ => 0,
    }
}
