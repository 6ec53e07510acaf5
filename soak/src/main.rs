//! Random work on a private server under random faults, with an exact account at the end. Prints a report as one JSON object.
//!
//! `cargo run --release -p anyqueue-soak -- postgres 10 42`: for ten minutes, with seed 42. The seed repeats the choices, not their
//! moments. `cargo xtask soak postgres` does the same, and saves the report.

mod account;
mod actors;
mod backends;
mod chaos;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Delivery, PartitionOptions, Queue, QueueMessageStatus::Processed, RetryPolicy};
use anyqueue_testkit::{Proxy, Server};
use clap::Parser;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::account::Account;
use crate::actors::PARTITION;
use crate::backends::{Backend, Result};

const LEASE: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const PUSHERS: u64 = 2;
const CONSUMERS: u64 = 3;
/// How long the queue may take to become empty after the last fault.
const PATIENCE: Duration = Duration::from_mins(2);
/// A queue that has delivered nothing for this long is empty: whatever was held or delayed has come back by then.
const QUIET: Duration = Duration::from_secs(12);

/// Soaks one backend.
#[derive(Parser)]
struct Arguments {
    backend: Backend,
    /// How long faults happen
    #[arg(default_value_t = 10.0)]
    minutes: f64,
    /// Repeats the random choices of an earlier run
    #[arg(default_value_t = fastrand::u64(..1_000_000))]
    seed: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the soak could not be carried out: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the account is right.
async fn run(arguments: &Arguments) -> Result<bool> {
    let (backend, seed) = (arguments.backend, arguments.seed);
    let Some(server) = backend.start().await? else { return Ok(false) };
    let proxy = Proxy::start(server.addr())?;
    let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
    let moves = open(backend, &url).await?.capabilities().moves;
    let (account, stop, drained) =
        (Arc::new(Account::new(moves)), CancellationToken::new(), CancellationToken::new());

    let (mut pushers, mut consumers) = (JoinSet::new(), JoinSet::new());
    for number in 0..PUSHERS {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number));
        pushers.spawn(actors::push(open(backend, &url).await?, account.clone(), rng, stop.clone()));
    }
    for number in 0..CONSUMERS {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(37).wrapping_add(number));
        consumers.spawn(actors::consume(open(backend, &url).await?, account.clone(), rng, drained.clone()));
    }
    let until = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let faults = chaos::inject(backend, &server, &proxy, fastrand::Rng::with_seed(seed), until).await?;
    stop.cancel();
    while pushers.join_next().await.is_some() {}

    let (backlog, draining) = (account.unsettled(), Instant::now());
    let is_empty = wait_until_empty(&account).await;
    eprintln!(
        "{backlog} messages were unsettled at the end of pushing; the end came {:?} later",
        draining.elapsed()
    );
    drained.cancel();
    while consumers.join_next().await.is_some() {}
    let last = open_to_look(backend, server.url()).await?;
    account.close(dead_letters(&last).await?);
    let violations = account.violations(is_empty, last.capabilities());
    println!("{:#}", report(arguments, &server, &faults, &account, &violations));
    Ok(violations.is_empty())
}

async fn open(backend: Backend, url: &str) -> Result<Queue> {
    let storage = backend.open(url).await?;
    let defaults = PartitionOptions::default().with_lease(LEASE).with_max_deliveries(None);
    // Nothing is repeated unseen: a push that is made again after its message came and went stores a second one, and the account
    // has to know.
    Ok(Queue::builder(storage)
        .defaults(defaults)
        .call_timeout(CALL_TIMEOUT)
        .retry(RetryPolicy::NEVER)
        .build()?)
}

/// For the time after the faults: failed calls are retried as usual.
async fn open_to_look(backend: Backend, url: &str) -> Result<Queue> {
    let defaults = PartitionOptions::default().with_lease(CALL_TIMEOUT * 20).with_max_deliveries(None);
    Ok(Queue::builder(backend.open(url).await?).defaults(defaults).build()?)
}

/// Not every backend counts held or delayed messages, but all are delivered sooner or later.
async fn wait_until_empty(account: &Account) -> bool {
    let (began, deadline) = (Instant::now(), Instant::now() + PATIENCE);
    while Instant::now() < deadline {
        // The last fault may have kept everybody from working until now.
        let quiet = account.quiet().min(began.elapsed());
        if quiet >= QUIET {
            return true;
        }
        tokio::time::sleep(QUIET.saturating_sub(quiet)).await;
    }
    false
}

async fn dead_letters(queue: &Queue) -> Result<Vec<anyqueue::MessageId>> {
    let partition = queue.dead_letters(PARTITION)?.partition().clone();
    let mut ids = Vec::new();
    loop {
        let mut held = queue.pull(&partition).max(500).wait(Duration::from_secs(1)).await?;
        if held.is_empty() {
            return Ok(ids);
        }
        ids.extend(held.iter().map(Delivery::id));
        for outcome in queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await {
            outcome?;
        }
    }
}

fn report(
    arguments: &Arguments,
    server: &Server,
    faults: &chaos::Faults,
    account: &Account,
    violations: &[String],
) -> Value {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({
        "backend": arguments.backend.name(),
        "release": env!("CARGO_PKG_VERSION"),
        "server": server.version(),
        "hardware": format!("{cores} cores, {}", std::env::consts::ARCH),
        "minutes": arguments.minutes,
        "seed": arguments.seed,
        "pushers": PUSHERS,
        "consumers": CONSUMERS,
        "faults": faults.counts(),
        "account": account.totals(),
        "violations": violations,
    })
}
