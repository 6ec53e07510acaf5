//! Whether other content of a queue slows it down.

use std::time::Duration;

use super::cycle::cycles;
use super::load::{each_once, expect, expect_remaining, fill, hold};
use super::size::{Size, per_second};
use crate::client::{Client, Result};

/// How long a server gets after the filling to write to its disk what is still to be written.
const REST: Duration = Duration::from_secs(2);

/// What fills the deep queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InDepth {
    /// This many waiting messages.
    Backlog(usize),
    /// This many messages that somebody holds.
    InFlight(usize),
}

/// Returns rates of `cycle`, round by round, on an empty queue and on a deep one. Unless the size is fixed,
/// `size` is only that of the warm-up.
pub(crate) async fn depth<C: Client>(
    shallow: &C,
    deep: &C,
    depth: InDepth,
    (size, fixed): (Size, bool),
    rounds: usize,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (InDepth::Backlog(messages) | InDepth::InFlight(messages)) = depth;
    fill(deep, Size { messages, ..size }).await?;
    let held = if let InDepth::InFlight(messages) = depth { hold(deep, messages).await? } else { Vec::new() };

    tokio::time::sleep(REST).await;
    cycles(deep, size).await?;
    let warm_up = round_of(shallow, size, None, 0).await?;
    let size = if fixed { size } else { size.for_a_round(warm_up) };
    let (mut shallow_rates, mut deep_rates) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            shallow_rates.push(round_of(shallow, size, None, 0).await?);
        }
        deep_rates.push(round_of(deep, size, Some(depth), messages).await?);
        if round % 2 == 1 {
            shallow_rates.push(round_of(shallow, size, None, 0).await?);
        }
    }
    if !held.is_empty() {
        deep.settle_batch(held).await?;
        expect_remaining(deep, 0).await?;
    }
    Ok((shallow_rates, deep_rates))
}

async fn round_of<C: Client>(
    client: &C,
    size: Size,
    depth: Option<InDepth>,
    remaining: usize,
) -> Result<f64> {
    let cycled = cycles(client, size).await?;
    if let Some(InDepth::Backlog(_)) = depth {
        // The messages that come out are not those that went in.
        expect("messages pulled", cycled.pulled.len(), size.messages)?;
    } else {
        each_once(&cycled.pushed, &cycled.pulled, size.payload_bytes)?;
    }
    expect_remaining(client, remaining).await?;
    Ok(per_second(size.messages, cycled.took))
}
