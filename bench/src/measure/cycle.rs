//! Push, pull and settle in batches, one after the other.

use std::time::{Duration, Instant};

use anyqueue::MessageId;

use super::load::{Seen, each_once, expect_remaining, payloads, pull_exactly};
use super::size::{BATCH, Size};
use crate::client::{Client, Result};

/// What a run of cycles did.
pub(super) struct Cycled {
    pub(super) took: Duration,
    pub(super) pushed: Vec<MessageId>,
    pub(super) pulled: Vec<Seen>,
}

/// Runs cycles on an empty queue: every message must come back, and none may stay.
pub(super) async fn empty<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let cycled = cycles(client, size).await?;
    each_once(&cycled.pushed, &cycled.pulled, size.payload_bytes)?;
    expect_remaining(client, 0).await?;
    Ok(cycled.took)
}

/// Runs cycles on a queue that may hold other messages: as many are pulled as are pushed.
pub(super) async fn cycles<C: Client>(client: &C, size: Size) -> Result<Cycled> {
    let mut pushed = Vec::with_capacity(size.messages);
    let mut pulled = Vec::with_capacity(size.messages);
    let start = Instant::now();
    while pushed.len() < size.messages {
        let count = BATCH.min(size.messages - pushed.len());
        pushed.extend(client.push_batch(payloads(pushed.len(), count, size.payload_bytes)).await?);
        let held = pull_exactly(client, count, BATCH).await?;
        for delivery in &held {
            pulled.push(Seen::of::<C>(delivery)?);
        }
        client.settle_batch(held).await?;
    }
    Ok(Cycled { took: start.elapsed(), pushed, pulled })
}
