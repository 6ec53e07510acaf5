//! How much memory a stream of many tasks takes: the service and its reader are in this process.

use std::net::SocketAddr;
use std::time::Instant;

use anyqueue::{Queue, TaskFilter};
use anyqueue_testkit::ends::PARTITION;

use super::line::Line;
use crate::client::Result;
use crate::service::http::Http;

/// Read before the measurement, so that everything that any stream needs is there.
const WARM_UP: usize = 20_000;
/// Memory is looked at once for this many tasks, or pieces of an answer.
const EVERY: usize = 256;

fn resident_kib() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

async fn read(queue: &Queue, tasks: usize) -> Result<usize> {
    let (mut stream, mut most) = (queue.tasks(PARTITION, TaskFilter::new())?, 0);
    for number in 0..tasks {
        stream.next().await.ok_or("the stream ended early")??;
        if number % EVERY == 0 {
            most = most.max(resident_kib()?);
        }
    }
    Ok(most)
}

async fn fetch(service: SocketAddr, tasks: usize) -> Result<usize> {
    let (mut pieces, mut most) = (0, 0);
    let path = format!("/v1/tasks?partition={PARTITION}&limit={tasks}");
    let mut last = Vec::new();
    let note = |some: &[u8]| {
        pieces += 1;
        last.extend_from_slice(some);
        last.drain(..last.len().saturating_sub(EVERY));
        if pieces % EVERY == 1 {
            most = most.max(resident_kib().unwrap_or(usize::MAX));
        }
    };
    Http::connect(service).await?.lines(&path, note).await?;
    let end = String::from_utf8_lossy(&last).into_owned();
    if !end.contains(&format!("{{\"count\":{tasks},\"end\":true}}")) {
        return Err(format!("the stream was cut: {end}").into());
    }
    Ok(most)
}

pub(super) async fn by_library(queue: &Queue, tasks: usize, line: &Line, json: bool) -> Result<()> {
    read(queue, WARM_UP.min(tasks)).await?;
    let (before, began) = (resident_kib()?, Instant::now());
    let most = read(queue, tasks).await?;
    print("library", tasks, most.saturating_sub(before), began, line, json)
}

pub(super) async fn by_http(service: SocketAddr, tasks: usize, line: &Line, json: bool) -> Result<()> {
    fetch(service, WARM_UP.min(tasks)).await?;
    let (before, began) = (resident_kib()?, Instant::now());
    let most = fetch(service, tasks).await?;
    print("http", tasks, most.saturating_sub(before), began, line, json)
}

fn print(
    over: &'static str,
    tasks: usize,
    added: usize,
    began: Instant,
    line: &Line,
    json: bool,
) -> Result<()> {
    let line = Line { scenario: "stream", over: Some(over), found: Some(tasks), rounds: 1, ..line.clone() };
    Line { added_kib: Some(added), seconds: Some(began.elapsed().as_secs_f64()), ..line }.print(json)
}
