//! Many tasks, each settling what it holds one at a time.

use std::time::{Duration, Instant};

use super::load::{Seen, each_once, expect_remaining, fill, hold, together};
use super::size::{Size, TASKS};
use crate::client::{Client, Result};

pub(super) async fn concurrent<C: Client>(client: &C, size: Size) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    let held = hold(client, size.messages).await?;
    let seen = held.iter().map(Seen::of::<C>).collect::<Result<Vec<_>>>()?;
    each_once(&pushed, &seen, size.payload_bytes)?;

    // In turns, as a worker deals them out: at any moment the tasks settle neighbours.
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
