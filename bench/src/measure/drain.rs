//! One puller feeds many handlers that settle one at a time: a worker's loop without the worker.

use std::hint::black_box;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load::{Seen, each_once, expect_remaining, fill};
use super::size::{Size, TASKS};
use crate::client::{Client, Result, Source};

/// The handlers are futures of one task. The puller holds at most `window` messages, including those that the
/// handlers have.
pub(super) async fn in_one_task<C: Client>(client: &C, size: Size, window: usize) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    // A task like any other of its runtime, not the one that the runtime was started for.
    let (seen, took) = tokio::spawn(handle_all_of(client.clone(), size.messages, window)).await??;
    each_once(&pushed, &seen, size.payload_bytes)?;
    expect_remaining(client, 0).await?;
    Ok(took)
}

async fn handle_all_of<C: Client>(
    client: C,
    messages: usize,
    window: usize,
) -> Result<(Vec<Seen>, Duration)> {
    let start = Instant::now();
    let mut source = client.source(window).await?;
    let (mut busy, mut seen) = (FuturesUnordered::new(), Vec::with_capacity(messages));
    while seen.len() < messages {
        let is_free = busy.len() < TASKS && seen.len() + busy.len() < messages;
        tokio::select! {
            biased;
            Some(handled) = busy.next(), if !busy.is_empty() => seen.push(handled?),
            delivery = source.next(), if is_free => busy.push(handle_one(client.clone(), delivery?)),
        }
    }
    Ok((seen, start.elapsed()))
}

async fn handle_one<C: Client>(client: C, delivery: C::RawDelivery) -> Result<Seen> {
    let seen = Seen::of::<C>(black_box(&delivery))?;
    client.settle(delivery).await?;
    Ok(seen)
}

/// The same, but each handler is a task.
pub(super) async fn in_tasks<C: Client>(client: &C, size: Size, window: usize) -> Result<Duration> {
    let pushed = fill(client, size).await?;
    let start = Instant::now();
    let (hands, mut handlers) = handlers(client, window);
    let mut source = client.source(window).await?;
    // In turns, so that handing a message over costs one wake-up, and no contention on either side.
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

fn handlers<C: Client>(client: &C, window: usize) -> (Vec<mpsc::Sender<C::RawDelivery>>, Handlers) {
    let mut tasks = JoinSet::new();
    let hands = (0..TASKS).map(|_| {
        let (hand, taken) = mpsc::channel(window.div_ceil(TASKS));
        tasks.spawn(handle_each(client.clone(), taken));
        hand
    });
    (hands.collect(), tasks)
}

async fn handle_each<C: Client>(client: C, mut taken: mpsc::Receiver<C::RawDelivery>) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    while let Some(delivery) = taken.recv().await {
        seen.push(handle_one(client.clone(), delivery).await?);
    }
    Ok(seen)
}
