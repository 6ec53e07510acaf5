//! What is measured. Scenarios know nothing of backends.

mod cycle;
mod depth;
mod drain;
mod idle;
mod latency;
mod load;
mod push;
mod settle;

use std::time::Duration;

use tokio::runtime::{self, Runtime};

use crate::client::{Client, Result};

pub(crate) use depth::{InDepth, depth};
pub(crate) use idle::idle;
pub(crate) use latency::{Rest, across, in_process, push_stamped};

/// Tasks that work side by side in the concurrent scenarios.
const TASKS: usize = 64;
/// Messages in one call of the batch scenarios.
const BATCH: usize = 100;
/// How long one round of one side is meant to take, if it is as fast as the warm-up.
const ROUND: Duration = Duration::from_millis(700);
/// How long one round, its preparation included, may take: a scenario that misses a message waits for it without limit.
const ROUND_AT_MOST: Duration = Duration::from_mins(1);
/// More would measure the memory of this machine.
const MAX_MESSAGES: usize = 500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// One task pushes one message at a time.
    PushOne,
    /// One task pushes batches of 100.
    PushBatch,
    /// 8 tasks push one message at a time.
    Push8,
    /// 64 tasks push one message at a time.
    PushConcurrent,
    /// One task pushes, pulls and settles, in batches of 100.
    Cycle,
    /// 64 tasks settle held messages one at a time.
    SettleConcurrent,
    /// One puller that holds at most 64 messages feeds 64 handlers that settle one at a time, all of them in one task of a runtime
    /// with one thread.
    Drain64,
    /// The same, holding at most 512.
    Drain512,
    /// As the first, but each handler is a task, and the runtime has a thread for each core.
    DrainTasks,
    /// `cycle` with payloads of 100 bytes, whatever the command line says of them.
    Payload100,
    /// The same with 1000.
    Payload1000,
    /// The same with 4000.
    Payload4000,
    /// The same with 16,000.
    Payload16000,
    /// Time from push to handler start, one process.
    Latency,
    /// Time from push to handler start, the pusher in another process.
    LatencyAcross,
    /// `latency` after seconds in which nothing came: longer than any poller's longest pause.
    FirstAfterIdle,
    /// CPU share of four waiting consumers.
    Idle,
    /// The rate of `cycle` behind a large backlog, relative to none.
    Backlog,
    /// The rate of `cycle` beside many held messages, relative to none.
    InFlight,
}

impl Scenario {
    /// In the order in which they run.
    pub(crate) const ALL: [Self; 19] = [
        Self::PushOne,
        Self::PushBatch,
        Self::Push8,
        Self::PushConcurrent,
        Self::Cycle,
        Self::Payload100,
        Self::Payload1000,
        Self::Payload4000,
        Self::Payload16000,
        Self::SettleConcurrent,
        Self::Drain64,
        Self::Drain512,
        Self::DrainTasks,
        Self::Latency,
        Self::LatencyAcross,
        Self::FirstAfterIdle,
        Self::Idle,
        Self::Backlog,
        Self::InFlight,
    ];

    /// A runtime of its own kind for both sides.
    pub(crate) fn runtime(self) -> std::io::Result<Runtime> {
        let mut builder = match self {
            Self::Drain64 | Self::Drain512 => runtime::Builder::new_current_thread(),
            _ => runtime::Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }

    /// How large its payloads are, where that is what it is about.
    pub(crate) const fn payload_bytes(self) -> Option<usize> {
        match self {
            Self::Payload100 => Some(100),
            Self::Payload1000 => Some(1000),
            Self::Payload4000 => Some(4000),
            Self::Payload16000 => Some(16_000),
            _ => None,
        }
    }

    /// As on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PushOne => "push-one",
            Self::PushBatch => "push-batch",
            Self::Push8 => "push-8",
            Self::PushConcurrent => "push-concurrent",
            Self::Cycle => "cycle",
            Self::Payload100 => "payload-100",
            Self::Payload1000 => "payload-1000",
            Self::Payload4000 => "payload-4000",
            Self::Payload16000 => "payload-16000",
            Self::SettleConcurrent => "settle-concurrent",
            Self::Drain64 => "drain-64",
            Self::Drain512 => "drain-512",
            Self::DrainTasks => "drain-tasks",
            Self::Latency => "latency",
            Self::LatencyAcross => "latency-across",
            Self::FirstAfterIdle => "first-after-idle",
            Self::Idle => "idle",
            Self::Backlog => "backlog",
            Self::InFlight => "in-flight",
        }
    }
}

/// How much one round takes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) messages: usize,
    pub(crate) payload_bytes: usize,
}

impl Size {
    /// What takes about [`ROUND`] at this rate.
    pub(crate) fn for_a_round(self, per_second: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped right after")]
        let messages = (per_second * ROUND.as_secs_f64()) as usize;
        Self { messages: messages.clamp(BATCH, MAX_MESSAGES).next_multiple_of(BATCH), ..self }
    }
}

/// Runs one round of a scenario that measures a rate, and answers messages per second. The queue must be empty before; what
/// the scenario leaves behind has been checked.
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

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn per_second(messages: usize, took: Duration) -> f64 {
    messages as f64 / took.as_secs_f64()
}
