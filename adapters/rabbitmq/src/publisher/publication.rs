//! One message for the broker, and the broker's word on it.

use std::future::Future;
use std::pin::Pin;

use anyqueue::{Error, ErrorKind, Result};
use futures_util::FutureExt;
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};

use crate::error::{own, uncertain};

const PERSISTENT: u8 = 2;

/// One message for the broker.
#[derive(Clone)]
pub(crate) struct Publication {
    pub(crate) exchange: String,
    pub(crate) key: String,
    pub(crate) body: Vec<u8>,
}

/// A message that the client was handed.
pub(super) type Sending<'a> = Pin<Box<dyn Future<Output = lapin::Result<PublisherConfirm>> + Send + 'a>>;

/// Awaits the broker's word.
pub(super) async fn confirmation(sending: Sending<'_>) -> lapin::Result<Confirmation> {
    sending.await?.await
}

/// Hands a message to the client. Its frames are in line when this returns, so that the order of calls is that of messages.
pub(super) fn send<'a>(channel: &'a Channel, message: &'a Publication, mandatory: bool) -> Sending<'a> {
    let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let (exchange, key) = (message.exchange.as_str().into(), message.key.as_str().into());
    let mut sending: Sending<'a> =
        Box::pin(channel.basic_publish(exchange, key, options, &message.body, properties));
    match (&mut sending).now_or_never() {
        Some(sent) => Box::pin(std::future::ready(sent)),
        None => sending,
    }
}

/// What the broker said of each message. Returned ones are known by what they say.
pub(super) fn judge(
    confirmed: Vec<Result<Confirmation>>,
    messages: &[Publication],
    mandatory: bool,
) -> Vec<Result<()>> {
    let mut returned = Vec::new();
    let mut answers: Vec<Result<()>> = Vec::with_capacity(confirmed.len());
    for answer in confirmed {
        answers.push(match answer {
            Ok(confirmation) => {
                // News that a listener on its way out did not take is no loss.
                let lost = mandatory && confirmation.is_nack();
                returned.extend(confirmation.take_message());
                if lost { Err(uncertain(refused())) } else { Ok(()) }
            }
            Err(error) => Err(error),
        });
    }
    for message in returned {
        let is_it = |sent: &Publication| {
            sent.key == message.delivery.routing_key.as_str() && sent.body == message.delivery.data
        };
        let mut found =
            messages.iter().zip(&mut answers).filter(|(sent, answer)| answer.is_ok() && is_it(sent));
        if let Some((_, answer)) = found.next() {
            *answer = Err(unroutable());
        }
    }
    answers
}

const REFUSED: &str = "the broker could not store the message: see its log for the state of the queue";

fn refused() -> Error {
    own(ErrorKind::Unavailable, REFUSED)
}

pub(super) fn is_refused(error: &Error) -> bool {
    error.message() == REFUSED
}

pub(super) fn full() -> Error {
    own(
        ErrorKind::Full,
        "the broker takes no messages: it is out of memory or disk (see its alarms), or let consumers catch up",
    )
}

const UNROUTABLE: &str = "the broker has no queue for the message any more; repeating declares it anew";

fn unroutable() -> Error {
    own(ErrorKind::Unavailable, UNROUTABLE)
}

pub(super) fn is_unroutable(error: &Error) -> bool {
    error.message() == UNROUTABLE
}
