//! Clients that push, pull and settle over HTTP until all tasks are done.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Instant;

use anyqueue::{PartitionId, Queue};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::http::Http;
use crate::client::Result;

pub(super) const PARTITION: &str = "bench";
/// The number of programs that each push, pull and settle, one request after the other.
pub(super) const CLIENTS: usize = 20;

/// Returns the rate of one round: `tasks` tasks in requests of `batch`, each pushed, pulled and settled by
/// some client. Checks that each ended once, and that nothing is left.
pub(super) async fn tasks_per_second(
    service: SocketAddr,
    queue: &Queue,
    (tasks, batch): (usize, usize),
    payload_bytes: usize,
) -> Result<f64> {
    let each = tasks / CLIENTS;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Http::connect(service).await?);
    }
    let payload = "x".repeat(payload_bytes);
    let begin = Instant::now();
    let worked = clients.iter_mut().map(|http| work(http, each, batch, &payload));
    let ended = try_join_all(worked).await?;
    let took = begin.elapsed();
    let ended: Vec<String> = ended.into_iter().flatten().collect();
    let unique: HashSet<&String> = ended.iter().collect();
    let left = queue.counts(&PartitionId::new(PARTITION)?).await?;
    let is_left = left.ready != Some(0) || left.leased != Some(0);
    if ended.len() != each * CLIENTS || unique.len() != ended.len() || is_left {
        let text = format!("{} ended, {} different ones, {left:?} left", ended.len(), unique.len());
        return Err(text.into());
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(ended.len() as f64 / took.as_secs_f64())
}

/// One client: pushes a batch, then takes as many tasks, whoever pushed them, and ends them. Returns the ids
/// of the tasks that it ended.
async fn work(http: &mut Http, tasks: usize, batch: usize, payload: &str) -> Result<Vec<String>> {
    let path = format!("/v1/partitions/{PARTITION}/messages");
    let mut ended = Vec::with_capacity(tasks);
    let mut pushed = 0;
    while ended.len() < tasks {
        if pushed < tasks {
            let size = batch.min(tasks - pushed);
            http.post(&path, &vec![json!({ "payload": payload }); size].into()).await?;
            pushed += size;
        }
        let pull =
            json!({ "partitions": [PARTITION], "max": batch.min(tasks - ended.len()), "wait_ms": 1000 });
        let pulled = http.post("/v1/pull", &pull).await?;
        let deliveries = pulled.get("deliveries").and_then(Value::as_array).ok_or("no deliveries")?;
        if deliveries.is_empty() {
            continue;
        }
        let settle: Vec<Value> = deliveries
            .iter()
            .map(|one| json!({ "delivery": one.get("delivery"), "status": "processed" }))
            .collect();
        let outcomes = http.post("/v1/settle", &settle.into()).await?;
        let settled = outcomes.as_array().is_some_and(|all| {
            all.iter().all(|one| one.get("outcome").is_some_and(|outcome| outcome == "settled"))
        });
        if !settled {
            return Err(format!("not all settled: {outcomes}").into());
        }
        ended.extend(deliveries.iter().filter_map(|one| one.get("id")?.as_str().map(str::to_owned)));
    }
    Ok(ended)
}
