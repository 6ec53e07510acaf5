//! A message for the broker, and whether the broker confirmed it.

use std::future::Future;
use std::pin::Pin;

use anyqueue::{Error, ErrorKind, Result};
use futures_util::FutureExt;
use lapin::options::BasicPublishOptions;
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};

use crate::error::{ERRORS, uncertain};

const PERSISTENT: u8 = 2;

/// A message for the broker.
#[derive(Clone)]
pub(crate) struct Publication {
    pub(crate) exchange: String,
    pub(crate) key: String,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Option<FieldTable>,
}

impl Publication {
    pub(crate) fn of(exchange: String, key: String, body: Vec<u8>) -> Self {
        Self { exchange, key, body, headers: None }
    }
}

/// A message that was passed to the client.
pub(super) type Sending<'a> = Pin<Box<dyn Future<Output = lapin::Result<PublisherConfirm>> + Send + 'a>>;

/// Waits until the broker confirms, refuses or returns the message.
pub(super) async fn confirmation(sending: Sending<'_>) -> lapin::Result<Confirmation> {
    sending.await?.await
}

/// Passes a message to the client. Its frames are queued when this returns, so messages keep the order of the
/// calls.
pub(super) fn send<'a>(channel: &'a Channel, message: &'a Publication, mandatory: bool) -> Sending<'a> {
    let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    if let Some(headers) = &message.headers {
        properties = properties.with_headers(headers.clone());
    }
    let (exchange, key) = (message.exchange.as_str().into(), message.key.as_str().into());
    let mut sending: Sending<'a> =
        Box::pin(channel.basic_publish(exchange, key, options, &message.body, properties));
    match (&mut sending).now_or_never() {
        Some(sent) => Box::pin(std::future::ready(sent)),
        None => sending,
    }
}

/// Returns the result for each message. Returned messages are recognised by their content.
pub(super) fn outcomes(
    confirmed: Vec<Result<Confirmation>>,
    messages: &[Publication],
    mandatory: bool,
) -> Vec<Result<()>> {
    let mut returned = Vec::new();
    let mut answers: Vec<Result<()>> = Vec::with_capacity(confirmed.len());
    for answer in confirmed {
        answers.push(match answer {
            Ok(confirmation) => {
                // Nothing is lost if a closing consumer did not take an announcement.
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

/// Classifies the results after the server closed a channel over a message that is too large, so that it
/// answers for no other message on it. Distinguishes messages that it had received before, and may have
/// stored, from those that it never looked at. Returns the largest body that it accepts.
pub(super) fn classify_too_large(messages: &[Publication], answers: &mut [Result<()>]) -> Option<u64> {
    let is_over =
        |answer: &Result<()>| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::TooLarge);
    let told = answers.iter().find_map(|answer| answer.as_ref().err().filter(|_| is_over(answer)))?;
    let bytes = |message: &Publication| message.body.len() as u64;
    let failed = || messages.iter().zip(answers.iter()).filter(|(_, answer)| is_over(answer));
    let largest = failed().map(|(message, _)| bytes(message)).max()?;
    // The last number in the text is the limit.
    let said = told
        .message()
        .rsplit(|c: char| !c.is_ascii_digit())
        .find_map(|routing_word| routing_word.parse::<u64>().ok());
    let most = said.filter(|most| *most < largest).unwrap_or(largest.saturating_sub(1));
    let mut before = true;
    for (message, answer) in messages.iter().zip(answers.iter_mut()).filter(|(_, answer)| is_over(answer)) {
        *answer = Err(match (bytes(message) > most, before) {
            (true, _) => too_large(most),
            (false, true) => uncertain(ERRORS.error(
                ErrorKind::Unavailable,
                "the broker did not answer: it closed the channel over a larger message that came later",
            )),
            (false, false) => ERRORS.error(ErrorKind::Unavailable, UNSENT),
        });
        before = before && bytes(message) <= most;
    }
    Some(most)
}

pub(super) fn too_large(most: u64) -> Error {
    let text = format!("the encoded message is larger than the server's max_message_size ({most} bytes)");
    ERRORS.error(ErrorKind::TooLarge, text)
}

const UNSENT: &str =
    "the broker has not looked at the message: it closed the channel over an earlier one that was too large";

pub(super) fn is_unsent(error: &Error) -> bool {
    error.message() == UNSENT
}

const REFUSED: &str = "the broker could not store the message: see its log for the state of the queue";

fn refused() -> Error {
    ERRORS.error(ErrorKind::Unavailable, REFUSED)
}

pub(super) fn is_refused(error: &Error) -> bool {
    error.message() == REFUSED
}

pub(super) fn full() -> Error {
    ERRORS.error(
        ErrorKind::Full,
        "the broker takes no messages: it is out of memory or disk (see its alarms), or let consumers catch up",
    )
}

const UNROUTABLE: &str =
    "the broker has no queue for the message any more; a repeated push declares it again";

fn unroutable() -> Error {
    ERRORS.error(ErrorKind::Unavailable, UNROUTABLE)
}

pub(super) fn is_unroutable(error: &Error) -> bool {
    error.message() == UNROUTABLE
}

#[cfg(test)]
mod tests {
    use anyqueue::RetryClass;

    use super::*;

    #[test]
    fn one_that_is_too_large_harms_no_other() {
        let message = |bytes| Publication::of(String::new(), String::new(), vec![0; bytes]);
        let messages: Vec<_> = [10, 10, 101, 10, 200, 100].into_iter().map(message).collect();
        let over = || {
            let said = "the server's max_message_size is below message_bytes: PRECONDITION_FAILED - message size 101 \
                        is larger than configured max size 100";
            Err(ERRORS.error(ErrorKind::TooLarge, said))
        };
        let mut answers = vec![Ok(()), over(), over(), over(), over(), over()];
        assert_eq!(classify_too_large(&messages, &mut answers), Some(100));
        let classes: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(Error::retry)).collect();
        let (never, safe) = (Some(RetryClass::Never), Some(RetryClass::Safe));
        assert_eq!(classes, [None, Some(RetryClass::MayDuplicate), never, safe, never, safe]);
        assert!(answers.iter().skip(3).step_by(2).all(|answer| answer.as_ref().is_err_and(is_unsent)));
        assert_eq!(classify_too_large(&messages, &mut [Ok(())]), None);
    }
}
