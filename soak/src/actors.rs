//! The pushers and the consumers.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Capabilities;
use anyqueue::{Delivery, MessageData, Queue, QueueMessageStatus, Result, SettleOutcome};
use tokio_util::sync::CancellationToken;

use crate::account::{Account, End};

/// The partition in use.
pub(crate) const PARTITION: &str = "soak";

/// No call may take longer, whatever the fault: it is retried at most four times, with pauses.
const NO_CALL_LONGER: Duration = Duration::from_secs(30);
/// The most messages in a call.
const BATCH: usize = 50;
/// Pushers pause while this many messages are unsettled. If pushing is faster than settling, the backlog would grow all the time; and
/// the emulator of SQS goes through all messages of a queue for each request, so that it would become ever slower too.
const MOST_UNSETTLED: usize = 5000;
/// Between two checks whether there are fewer.
const WORKED_OFF: Duration = Duration::from_millis(50);
/// How often a failed push is retried, at most.
const AGAIN: usize = 200;

async fn bounded<T>(account: &Account, call: impl Future<Output = T>) -> Option<T> {
    let result = tokio::time::timeout(NO_CALL_LONGER, call).await;
    result.inspect_err(|_| account.hung()).ok()
}

/// A message with everything that the backend can have.
fn message(rng: &mut fastrand::Rng, can: &Capabilities) -> MessageData {
    let priority = rng.u8(0..can.priority_levels);
    let mut message = MessageData::new(vec![b'.'; rng.usize(0..600)]).with_priority(priority);
    if rng.u8(..) < 25 && can.push_delay.is_some() {
        message = message.with_delay(Duration::from_millis(rng.u64(0..500)));
    }
    if rng.u8(..) < 25 && can.groups {
        message = message.with_group(format!("group {}", rng.u8(0..10)));
    }
    message
}

/// Pushes until asked to stop, and each message until it is acknowledged.
pub(crate) async fn push(
    queue: Queue,
    account: Arc<Account>,
    mut rng: fastrand::Rng,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let mut left: Vec<_> =
            (0..rng.usize(1..=BATCH)).map(|_| message(&mut rng, queue.capabilities())).collect();
        for message in &left {
            account.attempt(message.id());
        }
        for _ in 0..AGAIN {
            let outcomes = bounded(&account, queue.push_many(PARTITION, left.clone())).await;
            let mut outcomes = outcomes.and_then(Result::ok).unwrap_or_default().into_iter();
            left.retain(|message| {
                let is_acknowledged = outcomes.next().is_some_and(|outcome| outcome.is_ok());
                account.pushed(message.id(), is_acknowledged);
                !is_acknowledged
            });
            if left.is_empty() {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(1..30))).await;
        while account.unsettled() >= MOST_UNSETTLED && !stop.is_cancelled() {
            tokio::time::sleep(WORKED_OFF).await;
        }
    }
}

/// Settles whatever comes, in every way, until nothing is left.
pub(crate) async fn consume(
    queue: Queue,
    account: Arc<Account>,
    mut rng: fastrand::Rng,
    drained: CancellationToken,
) {
    while !drained.is_cancelled() {
        let pull = queue.pull(PARTITION).max(rng.usize(1..=BATCH)).wait(Duration::from_secs(1));
        let held = bounded(&account, pull.into_future()).await.and_then(Result::ok);
        let held = held.unwrap_or_default();
        let mut working = tokio::task::JoinSet::new();
        for handler in held {
            // A reply that took longer than its lease says nothing about now.
            if !handler.is_lost() {
                account.delivered(handler.id());
                working.spawn(work(handler, account.clone(), rng.u8(0..100)));
            }
        }
        while working.join_next().await.is_some() {}
    }
}

async fn work(mut handler: Delivery, account: Arc<Account>, fate: u8) {
    let (status, end) = match fate {
        0..5 => (QueueMessageStatus::Failed, None),
        5..10 => (QueueMessageStatus::postponed(Duration::from_millis(100)), None),
        10..12 => (QueueMessageStatus::poisonous("as chance would have it"), Some(End::Death)),
        12..15 => return drop(handler),
        _ => (QueueMessageStatus::Processed, Some(End::Removal)),
    };
    let id = handler.id();
    let outcome = bounded(&account, handler.settle(status)).await;
    match (outcome, end) {
        (_, None) => {}
        (Some(Ok(SettleOutcome::Settled)), Some(end)) => account.ended(id, end),
        // Also if `Lost`: a first attempt may have succeeded without a reply.
        (_, Some(end)) => account.end_unknown(id, end),
    }
}
