//! The scenarios, and what is printed of them.

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyqueue_testkit::Server;
use serde::Serialize;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::environment::Environment;
use crate::peer::{Handled, Opened, Peer, Place, Producer, Result};

/// Messages of one batch.
const BATCH: usize = 100;
/// Bytes of a payload.
const PAYLOAD: usize = 256;
/// How long a round waits for the next message that was pushed.
const PATIENCE: Duration = Duration::from_secs(45);
/// Between a message that was handled and the next push: long enough for everybody to sleep again.
const PAUSE: Duration = Duration::from_millis(20);

/// What the command line sets.
pub(crate) struct Options {
    pub(crate) scenario: String,
    pub(crate) rounds: usize,
    /// Only peers whose name has this.
    pub(crate) only: String,
}

/// One scenario of one peer, as the page of benchmarks reads it.
#[derive(Serialize)]
struct Line<'a> {
    peer: &'a str,
    settings: &'a str,
    backend: &'a str,
    scenario: &'a str,
    configured: &'a str,
    guarantee: &'a str,
    per_s: Option<f64>,
    min_max: Option<(f64, f64)>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    verified: bool,
    rounds: usize,
    note: Option<String>,
    environment: &'a Environment,
}

const SCENARIOS: [&str; 4] = ["push-one", "push-batch", "drain-tasks", "latency"];

/// Measures a peer and prints its lines; whether all went well.
pub(crate) async fn print(peer: &Peer, options: &Options) -> Result<bool> {
    let server = peer.backend.server().await?;
    let environment = Environment::here(server.as_ref().map(|server| server.version().to_owned()));
    let mut fine = true;
    for scenario in SCENARIOS {
        if !["all", scenario].contains(&options.scenario.as_str()) {
            continue;
        }
        let measured = measure(peer, scenario, options.rounds, server.as_ref()).await;
        fine &= measured.is_ok();
        let mut line = Line {
            peer: peer.product,
            settings: peer.settings,
            backend: peer.backend.name(),
            scenario,
            configured: peer.configured,
            guarantee: peer.guarantee,
            per_s: None,
            min_max: None,
            p50_ms: None,
            p99_ms: None,
            verified: measured.is_ok(),
            rounds: options.rounds,
            note: None,
            environment: &environment,
        };
        match measured {
            Err(error) => line.note = Some(error.to_string()),
            Ok(mut values) => {
                values.sort_by(f64::total_cmp);
                if scenario == "latency" {
                    (line.p50_ms, line.p99_ms) = (percentile(&values, 50), percentile(&values, 99));
                } else {
                    line.per_s = percentile(&values, 50);
                    line.min_max = values.first().copied().zip(values.last().copied());
                }
            }
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        out.flush()?;
    }
    Ok(fine)
}

/// The least value that `percent` of all do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// A rate a round, or the milliseconds of every ping.
async fn measure(peer: &Peer, scenario: &str, rounds: usize, server: Option<&Server>) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    for round in 0..rounds {
        let folder = folder()?;
        let url =
            server.map_or_else(|| folder.path().display().to_string(), |server| server.url().to_owned());
        let queue = format!("peers-{scenario}-{}-{round}", std::process::id());
        let opened = (peer.open)(Place { url, queue }).await?;
        match scenario {
            "latency" => values.extend(pings(opened, peer.pings).await?),
            "push-one" => values.push(push_one(opened, peer.sizes.0).await?),
            "push-batch" => values.push(push_batch(opened, peer.sizes.1).await?.0),
            _ => values.push(push_batch(opened, peer.sizes.1).await?.1),
        }
    }
    Ok(values)
}

/// On the disk that this program is on.
fn folder() -> Result<TempDir> {
    let program = std::env::current_exe()?;
    Ok(TempDir::with_prefix_in("peers-", program.parent().ok_or("this program is in no folder")?)?)
}

fn payload(number: usize) -> String {
    format!("{number:0PAYLOAD$}")
}

async fn push_one(mut opened: Opened, count: usize) -> Result<f64> {
    let begin = Instant::now();
    for number in 0..count {
        opened.producer.push(payload(number)).await?;
    }
    let rate = per_second(count, begin.elapsed());
    drain(opened, count).await?;
    Ok(rate)
}

/// The rates of pushing and of draining.
async fn push_batch(mut opened: Opened, count: usize) -> Result<(f64, f64)> {
    let begin = Instant::now();
    for start in (0..count).step_by(BATCH) {
        opened.producer.push_batch((start..start + BATCH).map(payload).collect()).await?;
    }
    let rate = per_second(count, begin.elapsed());
    Ok((rate, drain(opened, count).await?))
}

/// Consumes all that was pushed, and shows that it is all there.
async fn drain(opened: Opened, count: usize) -> Result<f64> {
    // The producer lives on: some libraries do work for the consumer in its tasks.
    let Opened { producer, consumer } = opened;
    let (handled, mut told) = Handled::new();
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    tasks.spawn(consumer(handled));
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        let Some((payload, _)) = next(&mut told).await else {
            let ended = tasks.try_join_next().map(|ended| format!("; the consumer ended: {ended:?}"));
            let came = format!("{} of {count} came, then none for {PATIENCE:?}", seen.len());
            return Err(format!("{came}{}", ended.unwrap_or_default()).into());
        };
        seen.insert(payload);
    }
    let rate = per_second(count, begin.elapsed());
    drop(producer);
    Ok(rate)
}

async fn next(told: &mut mpsc::Receiver<(String, Instant)>) -> Option<(String, Instant)> {
    tokio::time::timeout(PATIENCE, told.recv()).await.ok().flatten()
}

/// From before the push to the start of its handler, on a queue that is idle.
async fn pings(opened: Opened, count: usize) -> Result<Vec<f64>> {
    let Opened { mut producer, consumer } = opened;
    let (handled, mut told) = Handled::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(consumer(handled));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        ping(&mut *producer, number).await?;
        let Some((_, begun)) = next(&mut told).await else {
            return Err(format!("message {number} was not handled within {PATIENCE:?}").into());
        };
        times.push(begun.saturating_duration_since(begin).as_secs_f64() * 1e3);
    }
    Ok(times)
}

async fn ping(producer: &mut dyn Producer, number: usize) -> Result<()> {
    producer.push(payload(number)).await
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
