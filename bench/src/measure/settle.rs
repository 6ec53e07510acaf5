//! Settling alone: many tasks that settle one at a time, and one that stores a successor with each
//! settlement.

use std::time::{Duration, Instant};

use super::load::{Seen, each_once, expect_remaining, fill, hold, payloads, pull_exactly, together};
use super::size::{BATCH, Size, TASKS};
use crate::client::{Client, Result};

pub(super) async fn concurrent<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    let held = hold(client, size.messages).await?;
    let seen = held.iter().map(Seen::of::<C>).collect::<Result<Vec<_>>>()?;
    each_once(&pushed, &seen, size.payload_bytes)?;

    // In turns, as a worker deals them out, so that the tasks settle neighbours at any moment.
    let mut hands: Vec<_> = (0..TASKS).map(|_| Vec::with_capacity(size.messages.div_ceil(TASKS))).collect();
    for (index, delivery) in held.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(index % TASKS) {
            hand.push(delivery);
        }
    }
    let start = Instant::now();
    together(hands, |hand| {
        let client = client.clone();
        async move {
            for delivery in hand {
                client.settle(delivery).await?;
            }
            Ok(())
        }
    })
    .await?;
    let took = start.elapsed();
    expect_remaining(client, 0).await?;
    Ok(took)
}

/// Settles each message with a successor; only the settlements are timed.
pub(super) async fn then<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    let (mut seen, mut followers, mut took) = (Vec::new(), Vec::new(), Duration::ZERO);
    while seen.len() < size.messages {
        let count = BATCH.min(size.messages - seen.len());
        let held = pull_exactly(client, count, BATCH).await?;
        for delivery in &held {
            seen.push(Seen::of::<C>(delivery)?);
        }
        let payloads = payloads(followers.len(), count, size.payload_bytes);
        let start = Instant::now();
        let ids = client.settle_then(held, payloads).await?;
        took += start.elapsed();
        followers.extend(ids);
    }
    each_once(&pushed, &seen, size.payload_bytes)?;
    expect_remaining(client, size.messages).await?;
    let held = pull_exactly(client, size.messages, BATCH).await?;
    let seen = held.iter().map(Seen::of::<C>).collect::<Result<Vec<_>>>()?;
    each_once(&followers, &seen, size.payload_bytes)?;
    client.settle_batch(held).await?;
    expect_remaining(client, 0).await?;
    Ok(took)
}
