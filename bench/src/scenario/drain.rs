//! One puller feeds many handlers that settle one at a time: a worker's loop without the worker.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load::{Seen, each_once, expect_remaining, fill};
use super::{Size, TASKS};
use crate::client::{Client, Result, Source};

/// The puller holds at most `window` messages, those in the handlers' hands included.
pub(super) async fn drain<C: Client>(client: &C, size: Size, window: usize) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    let start = Instant::now();
    let (hands, mut handlers) = handlers(client, window);
    let mut source = client.source(window).await?;
    // In turns, so that a hand-over costs one wake-up and no contention on either side.
    for hand in hands.iter().cycle().take(size.messages) {
        hand.send(source.next().await?).await.map_err(|_| "a handler ended early")?;
    }
    drop(hands);
    let mut seen = Vec::with_capacity(size.messages);
    while let Some(handled) = handlers.join_next().await {
        seen.extend(handled??);
    }
    let took = start.elapsed();
    drop(source);
    each_once(&pushed, &seen, size.payload_bytes)?;
    expect_remaining(client, 0).await?;
    Ok(took)
}

type Handlers = JoinSet<Result<Vec<Seen>>>;

fn handlers<C: Client>(client: &C, window: usize) -> (Vec<mpsc::Sender<C::Delivery>>, Handlers) {
    let mut tasks = JoinSet::new();
    let hands = (0..TASKS).map(|_| {
        let (hand, taken) = mpsc::channel(window.div_ceil(TASKS));
        tasks.spawn(handle(client.clone(), taken));
        hand
    });
    (hands.collect(), tasks)
}

async fn handle<C: Client>(client: C, mut taken: mpsc::Receiver<C::Delivery>) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    while let Some(delivery) = taken.recv().await {
        seen.push(Seen::of::<C>(black_box(&delivery))?);
        client.settle(delivery).await?;
    }
    Ok(seen)
}
