//! Random work on a private server that random faults befall, and an exact account at the end. Prints a report as one JSON object.
//!
//! `cargo run --release -p anyqueue-postgres --example soak -- 10 42`: for ten minutes, with seed 42. The seed repeats the choices, not
//! their moments. `cargo xtask soak postgres` does this.

mod account;
mod actors;
mod chaos;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{PartitionOptions, Queue, QueueMessageHandler, QueueMessageStatus::Processed};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, Proxy, Server, start_if_installed};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::account::Account;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PARTITION: &str = "soak";
const LEASE: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const PUSHERS: u64 = 2;
const CONSUMERS: u64 = 3;
/// How long the queue may take to become empty once nothing befalls the server any more.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the soak could not be carried out: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the account is right.
async fn run() -> Result<bool> {
    let mut arguments = std::env::args().skip(1);
    let minutes: f64 = arguments.next().map_or(Ok(10.0), |argument| argument.parse())?;
    let seed: u64 =
        arguments.next().map_or_else(|| Ok(fastrand::u64(..1_000_000)), |argument| argument.parse())?;
    let Some(server) = start_if_installed(Postgres::new()).await? else { return Ok(false) };
    let proxy = Proxy::start(server.addr())?;
    let url = format!("postgres://postgres@{}/postgres", proxy.addr());
    let (account, stop, drained) =
        (Arc::new(Account::default()), CancellationToken::new(), CancellationToken::new());

    let (mut pushers, mut consumers) = (JoinSet::new(), JoinSet::new());
    for number in 0..PUSHERS {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number));
        pushers.spawn(actors::push(open(&url).await?, account.clone(), rng, stop.clone()));
    }
    for number in 0..CONSUMERS {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(37).wrapping_add(number));
        consumers.spawn(actors::consume(open(&url).await?, account.clone(), rng, drained.clone()));
    }
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let faults = chaos::befall(&server, &proxy, fastrand::Rng::with_seed(seed), until).await?;
    stop.cancel();
    while pushers.join_next().await.is_some() {}

    let queue = open(server.url()).await?;
    let is_empty = wait_until_empty(&queue).await;
    drained.cancel();
    while consumers.join_next().await.is_some() {}
    account.close(dead_letters(&queue).await?);
    let violations = account.violations(is_empty);
    print(&server, minutes, seed, &faults, &account, &violations);
    Ok(violations.is_empty())
}

async fn open(url: &str) -> Result<Queue> {
    let storage = PostgresQueue::from_url(url)?.call_timeout(CALL_TIMEOUT).open().await?;
    let defaults = PartitionOptions::default().with_lease(LEASE).with_max_deliveries(None);
    Ok(Queue::builder(storage).defaults(defaults).call_timeout(CALL_TIMEOUT).build()?)
}

async fn wait_until_empty(queue: &Queue) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok(counts) = queue.counts(PARTITION).await
            && [counts.ready, counts.delayed, counts.leased].iter().all(|count| *count == Some(0))
        {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    false
}

async fn dead_letters(queue: &Queue) -> Result<Vec<anyqueue::MessageId>> {
    let partition = queue.dead_letters(PARTITION)?.partition().clone();
    let mut ids = Vec::new();
    loop {
        let mut held = queue.pull(&partition).max(500).await?;
        if held.is_empty() {
            return Ok(ids);
        }
        ids.extend(held.iter().map(QueueMessageHandler::id));
        for outcome in queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await {
            outcome?;
        }
    }
}

fn print(
    server: &Server,
    minutes: f64,
    seed: u64,
    faults: &chaos::Faults,
    account: &Account,
    violations: &[String],
) {
    let quoted: Vec<_> = violations.iter().map(|violation| format!("{violation:?}")).collect();
    println!(
        r#"{{"backend":"postgres","release":"{}","server":"{}","minutes":{minutes},"seed":{seed},"faults":{},"account":{},"violations":[{}]}}"#,
        env!("CARGO_PKG_VERSION"),
        server.version(),
        faults.json(),
        account.json(),
        quoted.join(",")
    );
}
