//! A failed attempt as a status, for code that runs tasks without a worker.

use anyqueue::{MessageData, Queue, QueueMessageStatus};

use crate::config::Counting;
use crate::error::{ErrorClass, TaskError};
use crate::message::{Failure, FailureKind, TaskHeaders};
use crate::retry::Retry;

/// Returns how to settle a delivery whose attempt failed, by the rules of a [`Worker`](crate::Worker): the
/// task is retried after a delay, with the attempt in the message's headers, or it is poisonous because no
/// retries are left or none can help. Also returns the number of the attempt, from 1.
///
/// This is for services that hand messages to others. If the backend cannot keep attempts in the headers, its
/// own count of deliveries determines the number of the attempt. The message's
/// [`max_retries`](anyqueue::TaskOptions::max_retries) overrides that of `retry`.
///
/// ```
/// use anyqueue::{MessageData, Queue, QueueMessageStatus};
/// use anyqueue_worker::{FailureKind, Retry, TaskError, failed_attempt};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let message = MessageData::new("x").with_max_retries(0);
/// let error = TaskError::retry("no route to host");
/// let (status, attempt) = failed_attempt(&queue, &message, Some(1), &Retry::default(), FailureKind::Failed, &error);
/// assert_eq!((status.as_str(), attempt), ("poisonous", 1));
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
pub fn failed_attempt(
    queue: &Queue,
    message: &MessageData,
    delivery_count: Option<u32>,
    retry: &Retry,
    kind: FailureKind,
    error: &TaskError,
) -> (QueueMessageStatus, u32) {
    let (capabilities, headers) = (queue.capabilities(), TaskHeaders::of(message.headers()));
    let counting = Counting::on(capabilities);
    let before = match counting {
        Counting::Headers => headers.attempts(),
        Counting::Memory | Counting::Failures => delivery_count.unwrap_or(1).saturating_sub(1),
    };
    let attempt = before.saturating_add(1);
    let retry = message.options().max_retries.map_or(*retry, |retries| retry.max(retries));
    let delay = match error.class() {
        ErrorClass::Permanent => None,
        ErrorClass::Retry => retry.delay(before),
        ErrorClass::After(delay) => (before < retry.retries()).then_some(delay),
    };
    let Some(delay) = delay else {
        let permanent = if error.class() == ErrorClass::Permanent { " permanently" } else { "" };
        let reason = format!("{kind}{permanent} in attempt {attempt}: {error}");
        return (QueueMessageStatus::poisonous(reason), attempt);
    };
    let delay = capabilities.postpone_delay.map_or(delay, |declared| delay.min(declared.max));
    let status = match (counting, capabilities.postpone_delay) {
        (Counting::Headers, _) => {
            let failure = Failure::new(attempt, kind, queue.clock().wall(), &error.to_string());
            QueueMessageStatus::Postponed { delay, headers: Some(headers.failed(attempt, failure)) }
        }
        // This count of deliveries ignores releases, so only a failure raises it.
        (Counting::Failures, _) | (_, None) => QueueMessageStatus::Failed,
        (Counting::Memory, Some(_)) => QueueMessageStatus::postponed(delay),
    };
    (status, attempt)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn settled(message: &MessageData, error: &TaskError) -> (QueueMessageStatus, u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let queue = Queue::new(anyqueue_memory::MemoryQueue::new()).unwrap();
        let retry = Retry::exponential(Duration::from_secs(20)).max(2).jitter(0.0);
        failed_attempt(&queue, message, Some(7), &retry, FailureKind::Failed, error)
    }

    #[test]
    fn attempts_are_counted_in_the_headers_and_end_with_the_retries() {
        let mut message = MessageData::new("x");
        for (attempt, seconds) in [(1, 20), (2, 40)] {
            let (status, counted) = settled(&message, &TaskError::retry("no"));
            assert_eq!(counted, attempt);
            let QueueMessageStatus::Postponed { delay, headers: Some(headers) } = status else {
                panic!("{status:?}")
            };
            assert_eq!(delay, Duration::from_secs(seconds));
            message = message.with_headers(headers);
        }
        assert_eq!(crate::history(message.headers()).len(), 2);
        let (status, attempt) = settled(&message, &TaskError::retry("no"));
        assert_eq!((status, attempt), (QueueMessageStatus::poisonous("failed in attempt 3: no"), 3));
    }

    #[test]
    fn what_no_retry_can_cure_is_not_retried_and_a_delay_of_ones_own_counts() {
        let message = MessageData::new("x");
        let (status, _) = settled(&message, &TaskError::permanent("bad"));
        assert_eq!(status, QueueMessageStatus::poisonous("failed permanently in attempt 1: bad"));
        let (status, _) = settled(&message, &TaskError::after(Duration::from_secs(3), "later"));
        assert!(
            matches!(status, QueueMessageStatus::Postponed { delay, .. } if delay == Duration::from_secs(3))
        );
    }
}
