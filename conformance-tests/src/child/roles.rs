//! What children do in their roles.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest, RawDelivery, Settlement, Storage, Successor, TaskEnd};
use anyqueue::{EndState, MessageData, PartitionId, Result, SettleOutcome};

use super::event::{ChildEvent, say};

/// How often a payload repeats itself: long enough that a torn one would be noticed.
const REPEATS: usize = 40;

pub(super) async fn push(storage: &dyn Storage, name: &str, count: usize) -> Result<()> {
    let partition = PartitionId::new(name)?;
    for index in 0..count {
        let payload = format!("from process {}, {index}", std::process::id());
        let message = MessageData::new(&payload);
        let id = message.id().to_string();
        say(&ChildEvent::Pushing { partition: name.to_owned(), id: id.clone(), payload });
        for answer in storage.push(&partition, &[message]).await {
            answer?;
        }
        say(&ChildEvent::Pushed { id });
    }
    Ok(())
}

pub(super) async fn consume(
    storage: &dyn Storage,
    partition: &PartitionId,
    count: usize,
    request: &PullRequest,
    remove: bool,
) -> Result<()> {
    let lease_ms = u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX);
    let mut taken = 0;
    while taken < count {
        let mut request = request.clone();
        request.max = request.max.min(count - taken);
        for delivery in storage.pull(partition, request).await? {
            taken += 1;
            let id = delivery.lease.id.to_string();
            say(&ChildEvent::Took { id: id.clone(), count: delivery.delivery_count, lease_ms });
            if remove {
                let settlement = Settlement::new(delivery.lease, Action::Remove);
                for outcome in storage.settle(&[settlement]).await {
                    if outcome? == SettleOutcome::Settled {
                        say(&ChildEvent::Removed { id: id.clone() });
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn push_batches(storage: &dyn Storage, name: &str, batch: usize) -> Result<()> {
    let partition = PartitionId::new(name)?;
    for round in 0_usize.. {
        let payload =
            |index: usize| format!("from process {}, {round}.{index}; ", std::process::id()).repeat(REPEATS);
        let messages: Vec<_> = (0..batch).map(|index| MessageData::new(payload(index))).collect();
        for message in &messages {
            let payload = String::from_utf8_lossy(message.payload()).into_owned();
            say(&ChildEvent::Pushing { partition: name.to_owned(), id: message.id().to_string(), payload });
        }
        for (message, answer) in messages.iter().zip(storage.push(&partition, &messages).await) {
            answer?;
            say(&ChildEvent::Pushed { id: message.id().to_string() });
        }
    }
    Ok(())
}

pub(super) async fn relay(storage: &dyn Storage, name: &str, lease_ms: u64) -> Result<()> {
    let (partition, lease) = (PartitionId::new(name)?, Duration::from_millis(lease_ms));
    loop {
        let request = PullRequest::new(1, Duration::from_secs(1), lease);
        let got = storage.pull(&partition, request).await?;
        if got.is_empty() {
            say(&ChildEvent::Idle);
        }
        for delivery in got {
            let id = delivery.lease.id.to_string();
            say(&ChildEvent::Took { id: id.clone(), count: delivery.delivery_count, lease_ms });
            let payload = counted_on(&delivery);
            let message = MessageData::new(&payload);
            let next = message.id().to_string();
            say(&ChildEvent::Pushing { partition: name.to_owned(), id: next.clone(), payload });
            let then = vec![Successor { partition: partition.clone(), message }];
            let settlement = Settlement::new(delivery.lease, Action::Remove).with_then(then);
            for outcome in storage.settle(&[settlement]).await {
                if outcome? == SettleOutcome::Settled {
                    say(&ChildEvent::Removed { id: id.clone() });
                    say(&ChildEvent::Pushed { id: next.clone() });
                }
            }
        }
    }
}

pub(super) async fn end(storage: &dyn Storage, name: &str, lease_ms: u64) -> Result<()> {
    let (partition, lease) = (PartitionId::new(name)?, Duration::from_millis(lease_ms));
    loop {
        let got = storage.pull(&partition, PullRequest::new(1, Duration::from_secs(1), lease)).await?;
        if got.is_empty() {
            say(&ChildEvent::Idle);
        }
        for delivery in got {
            let id = delivery.lease.id.to_string();
            say(&ChildEvent::Took { id: id.clone(), count: delivery.delivery_count, lease_ms });
            // The result is the payload, so that the end of another task would be noticed.
            let end = TaskEnd::new(EndState::Succeeded).with_result(delivery.message.payload().to_vec());
            let settlement = Settlement::new(delivery.lease, Action::Remove).with_end(Some(Arc::new(end)));
            for outcome in storage.settle(&[settlement]).await {
                say(&match outcome? {
                    SettleOutcome::Settled => ChildEvent::Removed { id: id.clone() },
                    SettleOutcome::Lost => ChildEvent::Lost { id: id.clone() },
                });
            }
        }
    }
}

/// Returns `3 8` for a payload of `3 7`.
fn counted_on(delivery: &RawDelivery) -> String {
    let text = String::from_utf8_lossy(delivery.message.payload());
    let (chain, number) = text.split_once(' ').unwrap_or_default();
    format!("{chain} {}", number.parse::<u64>().unwrap_or_default() + 1)
}

pub(super) async fn consume_late(
    storage: &dyn Storage,
    name: &str,
    count: usize,
    lease_ms: u64,
    hold_ms: u64,
) -> Result<()> {
    let (partition, lease) = (PartitionId::new(name)?, Duration::from_millis(lease_ms));
    let mut held = Vec::new();
    while held.len() < count {
        let request = PullRequest::new(count - held.len(), Duration::from_secs(1), lease);
        held.extend(storage.pull(&partition, request).await?);
    }
    for delivery in &held {
        let id = delivery.lease.id.to_string();
        say(&ChildEvent::Took { id, count: delivery.delivery_count, lease_ms });
    }
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    for delivery in held {
        let id = delivery.lease.id.to_string();
        let settlement = Settlement::new(delivery.lease, Action::Remove);
        for outcome in storage.settle(&[settlement]).await {
            say(&match outcome? {
                SettleOutcome::Settled => ChildEvent::Removed { id: id.clone() },
                SettleOutcome::Lost => ChildEvent::Lost { id: id.clone() },
            });
        }
    }
    Ok(())
}
