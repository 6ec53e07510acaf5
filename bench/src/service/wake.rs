//! How long after a push the wait for it ends: of a long poll of the service and of a pull of the library, in
//! turns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Queue, QueueMessageStatus};
use serde_json::json;

use super::flow::PARTITION;
use super::http::Http;
use crate::client::Result;

/// The number of pushes in one round of each side.
pub(super) const PUSHES: usize = 100;
/// How long to wait until a poll is surely waiting.
const PAUSE: Duration = Duration::from_millis(20);

/// The times from each push to the end of the wait.
pub(super) struct Wakes {
    pub(super) service: Vec<Duration>,
    pub(super) direct: Vec<Duration>,
}

pub(super) async fn measure(service: SocketAddr, queue: &Queue, pushes: usize) -> Result<Wakes> {
    let mut http = Http::connect(service).await?;
    let mut wakes = Wakes { service: Vec::new(), direct: Vec::new() };
    for _ in 0..pushes {
        wakes.service.push(by_service(&mut http, queue).await?);
        wakes.direct.push(directly(queue).await?);
    }
    Ok(wakes)
}

async fn by_service(http: &mut Http, queue: &Queue) -> Result<Duration> {
    let pull = json!({ "partitions": [PARTITION], "wait_ms": 10_000 });
    let waiting = async {
        let answer = http.post("/v1/pull", &pull).await?;
        Result::Ok((answer, Instant::now()))
    };
    let ((answer, came), pushed) = tokio::try_join!(waiting, push(queue))?;
    let settle = json!({ "delivery": answer.pointer("/deliveries/0/delivery"), "status": "processed" });
    http.post("/v1/settle", &settle).await?;
    Ok(came.saturating_duration_since(pushed))
}

async fn directly(queue: &Queue) -> Result<Duration> {
    let waiting = async {
        let got = queue.pull(PARTITION).wait(Duration::from_secs(10)).await?;
        Result::Ok((got, Instant::now()))
    };
    let ((mut got, came), pushed) = tokio::try_join!(waiting, push(queue))?;
    got.first_mut().ok_or("nothing came")?.settle(QueueMessageStatus::Processed).await?;
    Ok(came.saturating_duration_since(pushed))
}

/// Pushes a message, and returns when it was sent.
async fn push(queue: &Queue) -> Result<Instant> {
    tokio::time::sleep(PAUSE).await;
    let sent = Instant::now();
    queue.push(PARTITION, MessageData::new("wake")).await?;
    Ok(sent)
}
