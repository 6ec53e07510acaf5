//! How each scenario is measured: by what it does to a client, whichever client that is.

mod added;
mod cycle;
mod depth;
mod drain;
mod idle;
mod latency;
mod load;
mod push;
mod settle;
mod size;

use std::time::Duration;

use self::size::{TASKS, per_second};
use crate::client::{Client, Result};
use crate::scenario::Scenario;

pub(crate) use added::{Added, drained};
pub(crate) use depth::{InDepth, depth};
pub(crate) use idle::idle;
pub(crate) use latency::{Rest, across, in_process, push_stamped};
pub(crate) use size::Size;

/// How long one round may take, including its preparation: a scenario that misses a message waits for it
/// without limit.
const ROUND_AT_MOST: Duration = Duration::from_mins(1);

/// Runs one round of a scenario that measures a rate, and returns messages per second. The queue must be
/// empty at the beginning; what the scenario leaves behind has been checked.
pub(crate) async fn rate<C: Client>(scenario: Scenario, client: &C, size: Size) -> Result<f64> {
    let round = async {
        match scenario {
            Scenario::PushOne => push::one(client, size).await,
            Scenario::PushBatch => push::batches(client, size).await,
            Scenario::Push8 => push::concurrent(client, size, 8).await,
            Scenario::PushConcurrent => push::concurrent(client, size, TASKS).await,
            Scenario::Cycle
            | Scenario::Payload100
            | Scenario::Payload1000
            | Scenario::Payload4000
            | Scenario::Payload16000 => cycle::empty(client, size).await,
            Scenario::SettleConcurrent => settle::concurrent(client, size).await,
            Scenario::SettleThen => settle::then(client, size).await,
            Scenario::Drain64 => drain::in_one_task(client, size, 64).await,
            Scenario::Drain512 => drain::in_one_task(client, size, 512).await,
            Scenario::DrainTasks => drain::in_tasks(client, size, 64).await,
            _ => Err(format!("{} does not measure a rate", scenario.name()).into()),
        }
    };
    let took = tokio::time::timeout(ROUND_AT_MOST, round)
        .await
        .map_err(|_| format!("not done after {ROUND_AT_MOST:?}: is a message missing?"))??;
    Ok(per_second(size.messages, took))
}
