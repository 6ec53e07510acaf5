//! Messages that follow a task: the task once more, or its next attempt.

use std::time::Duration;

use anyqueue::{Headers, MessageData, MessageId, When};

use crate::message::header::{ATTEMPTS, CURSOR, ERRORS, REDRIVEN, RETRY_OF, UNKNOWN};
use crate::received::Received;

/// The message with a new id.
pub(crate) fn copy(message: &MessageData) -> MessageData {
    let mut copy = MessageData::with_id(MessageId::new(), message.payload_bytes())
        .with_headers(message.headers().clone())
        .with_options(message.options().clone());
    if let Some(task) = message.task_id() {
        copy = copy.with_task_id(task);
    }
    if let Some(session) = message.session_id() {
        copy = copy.with_session_id(session);
    }
    copy
}

/// The headers without those about earlier attempts.
pub(crate) fn fresh(headers: &Headers) -> Headers {
    let mut headers = own(headers);
    for name in [ATTEMPTS, CURSOR, ERRORS, UNKNOWN, REDRIVEN, RETRY_OF] {
        headers.remove(name);
    }
    headers
}

/// The headers without those that anyqueue writes about a message's own past.
fn own(headers: &Headers) -> Headers {
    let mut headers = headers.clone();
    headers.retain(|name, _| !name.starts_with(anyqueue::RESERVED_HEADER_PREFIX));
    headers
}

/// The next attempt of a task, as a message of its own. The delivery was received `held` ago.
pub(crate) fn next_attempt(
    delivery: Received<'_>,
    headers: &Headers,
    delay: Duration,
    held: Duration,
) -> MessageData {
    let message = delivery.message;
    let first = message.headers().get(RETRY_OF).cloned().unwrap_or_else(|| message.id().to_string());
    let mut headers = own(headers);
    headers.remove(REDRIVEN);
    headers.insert(RETRY_OF.to_owned(), first);
    let mut options = message.options().clone();
    options.delay = (!delay.is_zero()).then_some(When::In(delay));
    // The rest of its time to live continues to run.
    options.expiry = options.expiry.map(|expiry| match expiry {
        When::In(time_to_live) => When::In(time_to_live.saturating_sub(delivery.age + held)),
        at @ When::At(_) => at,
    });
    copy(message).with_headers(headers).with_options(options)
}
