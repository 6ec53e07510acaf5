//! A message as the broker stores it, with core's envelope as the body. User headers never become AMQP
//! headers, because some of those control the broker.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Decoded, Envelope};
use anyqueue::{Error, Headers, MessageData, MessageId};
use bytes::Bytes;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};

/// What was read from a delivered message.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) message: MessageData,
    pub(crate) pushed_at: Option<SystemTime>,
    /// Deliveries including this one; `None` if the queue does not count them.
    pub(crate) deliveries: Option<u32>,
    /// How often the queue has delivered this copy before.
    pub(crate) earlier: u32,
    /// The stored form, if it cannot be read.
    pub(crate) unreadable: Option<Unreadable>,
}

impl Record {
    pub(crate) fn age(&self, now: SystemTime) -> Duration {
        self.pushed_at.and_then(|at| now.duration_since(at).ok()).unwrap_or_default()
    }
}

/// A message that cannot be read, as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) why: Error,
    pub(crate) body: Bytes,
    pub(crate) level: u8,
}

/// Reads a delivered message of a level.
pub(crate) fn read(delivery: Delivery, level: u8) -> Record {
    let earlier = earlier(&delivery);
    let body = Bytes::from(delivery.data);
    let name = || {
        let name = delivery.properties.message_id().as_ref().map(ToString::to_string);
        // A message without an id gets one from its content, so it has the same id at each delivery.
        name.unwrap_or_else(|| MessageId::from_foreign(&String::from_utf8_lossy(&body)).to_string())
    };
    let (message, pushed_at, prior, unreadable) = match Envelope::decode(&body) {
        Ok(Decoded::Envelope(envelope)) => {
            (envelope.message, envelope.pushed_at, envelope.prior_deliveries, None)
        }
        Ok(foreign @ Decoded::Foreign(_)) => (foreign.into_message(&name()), None, 0, None),
        Err(why) => {
            let message = Decoded::Foreign(body.clone()).into_message(&name());
            let headers = delivery.properties.headers().as_ref().and_then(headers_from_table);
            let message = match headers {
                Some(headers) => message.with_headers(headers),
                None => message,
            };
            (message, None, 0, Some(Unreadable { why, body: body.clone(), level }))
        }
    };
    let deliveries = Some(prior.saturating_add(earlier).saturating_add(1));
    Record { message, pushed_at, deliveries, earlier, unreadable }
}

/// The AMQP header that contains the headers of an unreadable message. The broker does not interpret them there.
const HEADERS_KEY: &str = "anyqueue";

/// The headers of an unreadable message, as AMQP headers.
pub(crate) fn headers_to_table(headers: &Headers) -> FieldTable {
    let mut inner = FieldTable::default();
    for (name, value) in headers {
        inner.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
    }
    let mut outer = FieldTable::default();
    outer.insert(HEADERS_KEY.into(), AMQPValue::FieldTable(inner));
    outer
}

/// Reads what [`headers_to_table`] wrote.
fn headers_from_table(table: &FieldTable) -> Option<Headers> {
    let AMQPValue::FieldTable(inner) = table.inner().get(HEADERS_KEY)? else { return None };
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        _ => None,
    };
    Some(inner.inner().iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect())
}

/// Returns how often this copy was delivered before, as counted by a quorum queue; 0 without a header.
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
