//! Finds out whether two URLs lead to the same place.

use std::time::Duration;

use anyqueue::{Delivery, MessageData, MessageId, PartitionId, PushOutcome, Queue, QueueMessageStatus};
use tokio::time::Instant;

use crate::commands::peek::find;
use crate::failure::{Failure, Result};

/// The queue for the probe. Nobody consumes from it.
pub(crate) const PROBE: &str = "anyqueue-move";
/// How long the probe may take to arrive, if the source cannot be browsed.
const ARRIVAL: Duration = Duration::from_secs(3);
/// How long the probe of a killed move stays.
const TIME_TO_LIVE: Duration = Duration::from_mins(1);
/// The most probes of other moves that are examined.
const OTHERS: usize = 10;

/// Whether a message stored at the target appears at the source. A move within one place would find each
/// message already at the target, and remove it. The URLs do not show this: one place can have several.
pub(super) async fn is_one_place(source: &Queue, target: &Queue) -> Result<bool> {
    if source.storage().name() != target.storage().name() {
        return Ok(false);
    }
    let probe = PartitionId::new(PROBE)?;
    let message = MessageData::new("").with_time_to_live(TIME_TO_LIVE);
    let PushOutcome::Stored(id) = target.push(&probe, message).await? else {
        return Err(Failure::Failed("the target took a new message for a duplicate".to_owned()));
    };
    let arrives = if source.capabilities().inspect.browse {
        find(source, &probe, id).await?.is_some()
    } else {
        take(source, &probe, id).await?
    };
    if !arrives {
        take(target, &probe, id).await?;
    } else if source.capabilities().inspect.browse {
        take(source, &probe, id).await?;
    }
    Ok(arrives)
}

/// Removes this message, if it arrives in time. Others are released.
async fn take(queue: &Queue, probe: &PartitionId, id: MessageId) -> Result<bool> {
    let end = Instant::now() + ARRIVAL;
    let mut others: Vec<Delivery> = Vec::new();
    let mut found = false;
    while !found && others.len() < OTHERS && Instant::now() < end {
        let wait = end.saturating_duration_since(Instant::now());
        let held = queue.pull(probe).max(OTHERS).wait(wait).await?;
        for mut handler in held {
            if handler.id() == id {
                handler.settle(QueueMessageStatus::Processed).await?;
                found = true;
            } else {
                others.push(handler);
            }
        }
    }
    // If they cannot be released, they expire.
    queue.settle_many(others.iter_mut().map(|other| (other, QueueMessageStatus::Waiting))).await;
    Ok(found)
}
