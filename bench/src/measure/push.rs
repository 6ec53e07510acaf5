//! Pushing alone: one at a time, in batches, and side by side.

use std::time::{Duration, Instant};

use super::load::{distinct, expect, expect_remaining, payload, payloads, shares, together};
use super::size::{BATCH, Size};
use crate::client::{Client, Result};

pub(super) async fn one<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let mut ids = Vec::with_capacity(size.messages);
    let start = Instant::now();
    for number in 0..size.messages {
        ids.push(client.push(payload(number as u64, size.payload_bytes)).await?);
    }
    let took = start.elapsed();
    all_stored(client, &ids, size).await?;
    Ok(took)
}

pub(super) async fn batches<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let mut ids = Vec::with_capacity(size.messages);
    let start = Instant::now();
    while ids.len() < size.messages {
        let count = BATCH.min(size.messages - ids.len());
        ids.extend(client.push_batch(payloads(ids.len(), count, size.payload_bytes)).await?);
    }
    let took = start.elapsed();
    all_stored(client, &ids, size).await?;
    Ok(took)
}

pub(super) async fn concurrent<C: Client>(client: &C, size: Size, tasks: usize) -> Result<Duration> {
    let start = Instant::now();
    let ids = together(shares(size.messages, tasks), |share| {
        let client = client.clone();
        async move {
            let mut ids = Vec::with_capacity(share.len());
            for number in share {
                ids.push(client.push(payload(number as u64, size.payload_bytes)).await?);
            }
            Ok(ids)
        }
    })
    .await?;
    let took = start.elapsed();
    all_stored(client, &ids.concat(), size).await?;
    Ok(took)
}

async fn all_stored<C: Client>(client: &C, ids: &[anyqueue::MessageId], size: Size) -> Result<()> {
    expect("messages pushed", ids.len(), size.messages)?;
    distinct(ids)?;
    expect_remaining(client, size.messages).await
}
