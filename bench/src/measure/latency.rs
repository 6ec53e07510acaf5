//! How long an idle consumer takes to start on a message, from the call of push to the end of pull.

use std::iter;
use std::ops::Range;
use std::process::Stdio;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::load::{expect, expect_remaining, number, payload};
use super::size::Size;
use crate::client::{Client, Result};

/// Longer than any message should take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages sent before those that follow seconds of rest: connections and statements are ready by then, so
/// that only the effect of the rest is measured.
const WARM_UP: usize = 20;

/// How long nothing is pushed before each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Until the consumer waits again.
    Moment,
    /// Longer than the longest pause of any poller, and less than [`PATIENCE`].
    Seconds,
}

impl Rest {
    const fn milliseconds(self) -> Range<u64> {
        match self {
            Self::Moment => 2..6,
            Self::Seconds => 2500..3500,
        }
    }
}

/// The pusher waits until the message is settled and the consumer is idle again.
pub(crate) async fn in_process<C: Client>(client: &C, size: Size, rest: Rest) -> Result<Vec<Duration>> {
    let warm_up = if rest == Rest::Seconds { WARM_UP } else { 0 };
    let rests = iter::repeat_n(Rest::Moment, warm_up).chain(iter::repeat_n(rest, size.messages));
    let (handled, mut done) = mpsc::channel(1);
    let consumer = tokio::spawn(consume(client.clone(), warm_up + size.messages, handled));
    for rest in rests {
        pause(rest.milliseconds()).await;
        client.push(payload(stamp()?, size.payload_bytes)).await?;
        if done.recv().await.is_none() {
            break; // the consumer failed, and says why
        }
    }
    let latencies = consumer.await??;
    expect_remaining(client, 0).await?;
    Ok(latencies.into_iter().skip(warm_up).collect())
}

/// The pusher is another process of this program, started with `arguments`.
pub(crate) async fn across<C: Client>(client: &C, size: Size, arguments: &[String]) -> Result<Vec<Duration>> {
    let (handled, mut done) = mpsc::channel(size.messages);
    let consumer = tokio::spawn(consume(client.clone(), size.messages, handled));
    let mut pusher = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let ended = pusher.wait().await?;
    if !ended.success() {
        consumer.abort();
        return Err(format!("the pushing process ended with {ended}").into());
    }
    let latencies = consumer.await??;
    done.close();
    expect_remaining(client, 0).await?;
    Ok(latencies)
}

/// Runs the pushing process.
pub(crate) async fn push_stamped<C: Client>(client: &C, size: Size) -> Result<()> {
    pause(200..201).await;
    for _ in 0..size.messages {
        pause(20..40).await; // by then the consumer waits again
        client.push(payload(stamp()?, size.payload_bytes)).await?;
    }
    Ok(())
}

async fn consume<C: Client>(client: C, messages: usize, handled: mpsc::Sender<()>) -> Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(messages);
    for _ in 0..messages {
        let held = client.pull(1, PATIENCE).await?;
        let now = stamp()?;
        expect("messages pulled", held.len(), 1)?;
        for delivery in held {
            let pushed = number(C::payload(&delivery))?;
            latencies.push(Duration::from_nanos(now.saturating_sub(pushed)));
            client.settle(delivery).await?;
        }
        handled.send(()).await?;
    }
    Ok(latencies)
}

/// Returns nanoseconds on the clock that all processes of one machine share.
fn stamp() -> Result<u64> {
    let now = clock_gettime(ClockId::Monotonic);
    Ok(u64::try_from(now.tv_sec)? * 1_000_000_000 + u64::try_from(now.tv_nsec)?)
}

/// Pauses for a random time, so that no poller's rhythm is matched by chance.
async fn pause(milliseconds: Range<u64>) {
    let (least, most) = (milliseconds.start * 1000, milliseconds.end * 1000);
    tokio::time::sleep(Duration::from_micros(fastrand::u64(least..most))).await;
}
