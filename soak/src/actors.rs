//! The pushers and the consumers.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Capabilities;
use anyqueue::{
    Delivery, EndState, MessageData, Queue, QueueMessageStatus, Result, SettleOutcome, TaskReport,
};
use tokio_util::sync::CancellationToken;

use crate::account::{Account, End};

/// The partition that is used.
pub(crate) const PARTITION: &str = "soak";

/// No call may take longer than this, whatever the fault: it is retried at most four times, with pauses.
const NO_CALL_LONGER: Duration = Duration::from_secs(30);
/// The maximum number of messages in a call.
const BATCH: usize = 50;
/// Pushers pause while this many messages are unsettled. If pushing is faster than settling, the backlog
/// would keep growing; and the emulator of SQS goes through all messages of a queue for each request, so it
/// would also become slower and slower.
const MOST_UNSETTLED: usize = 5000;
/// The time between two checks whether there are fewer.
const WORKED_OFF: Duration = Duration::from_millis(50);
/// The maximum number of retries of a failed push.
pub(crate) const AGAIN: usize = 200;
/// A delay that is longer than any run.
const PARKED: Duration = Duration::from_hours(6);

async fn bounded<T>(account: &Account, call: impl Future<Output = T>) -> Option<T> {
    let result = tokio::time::timeout(NO_CALL_LONGER, call).await;
    result.inspect_err(|_| account.hung()).ok()
}

/// Returns a message with everything that the backend supports.
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

/// Now and then delays a message until after the end, if that can be seen, so that the ledger's account has
/// some live tasks.
fn park(message: MessageData, queue: &Queue, account: &Account, rng: &mut fastrand::Rng) -> MessageData {
    let can = queue.capabilities();
    let can_wait = can.push_delay.is_some_and(|delay| delay.max >= PARKED) && can.inspect.browse;
    if !can_wait || !queue.keeps_ends() || message.options().group.is_some() || rng.u8(..) != 0 {
        return message;
    }
    account.park(message.id());
    message.with_delay(PARKED)
}

/// Pushes until asked to stop, and each message until it is acknowledged; with a ledger, gives up on some
/// after one try.
pub(crate) async fn push(
    queue: Queue,
    account: Arc<Account>,
    mut rng: fastrand::Rng,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let mut batch = Vec::new();
        for _ in 0..rng.usize(1..=BATCH) {
            let message = message(&mut rng, queue.capabilities());
            batch.push(park(message, &queue, &account, &mut rng));
        }
        let tries = if queue.keeps_ends() && rng.u8(0..4) == 0 { 1 } else { AGAIN };
        store(&queue, PARTITION, &account, batch, tries).await;
        tokio::time::sleep(Duration::from_millis(rng.u64(1..30))).await;
        while account.unsettled() >= MOST_UNSETTLED && !stop.is_cancelled() {
            tokio::time::sleep(WORKED_OFF).await;
        }
    }
}

/// Pushes these messages until all are acknowledged, with a limited number of retries.
pub(crate) async fn store(
    queue: &Queue,
    partition: &str,
    account: &Account,
    mut left: Vec<MessageData>,
    tries: usize,
) {
    for _ in 0..tries {
        for message in &left {
            account.attempt(message.id());
        }
        let outcomes = bounded(account, queue.push_many(partition, left.clone())).await;
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
            // A reply that took longer than its lease says nothing about the present.
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
        15..18 => (QueueMessageStatus::Cancelled, Some(End::Removal)),
        _ => (QueueMessageStatus::Processed, Some(End::Removal)),
    };
    let id = handler.id();
    let said = (end == Some(End::Removal)).then(|| say(&mut handler, &account, fate)).flatten();
    let outcome = bounded(&account, handler.settle(status)).await;
    match (outcome, end) {
        (_, None) => {}
        (Some(Ok(SettleOutcome::Settled)), Some(end)) => {
            account.ended(id, end);
            if let Some(number) = said {
                account.confirmed(id, number);
            }
        }
        // Even if it returned `Lost`: a first attempt may have succeeded without a reply.
        (_, Some(end)) => account.end_unknown(id, end),
    }
}

/// States for the ledger how a removed task ends, and returns the number by which its entry will name this.
/// The entry has it as the worker.
fn say(handler: &mut Delivery, account: &Account, fate: u8) -> Option<u64> {
    let state = match fate {
        15..18 => EndState::Cancelled,
        18..20 => EndState::Failed,
        20..22 => EndState::TimedOut,
        _ => EndState::Succeeded,
    };
    let number = account.say(handler.id(), handler.delivery_count(), state);
    let report = TaskReport::new().with_state(state).with_worker(number.to_string());
    handler.report(report).ok().map(|()| number)
}
