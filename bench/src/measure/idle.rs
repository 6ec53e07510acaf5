//! What waiting costs.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load::payload;
use super::size::Size;
use crate::client::{Client, Result};

const CONSUMERS: usize = 4;
/// Connections, threads and first polls are not measured.
const SETTLE_IN: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(5);

/// Returns the CPU time of this process while four consumers wait and nothing else happens, in percent of one
/// core. Ends with a message that one of them must take, because a consumer that has given up costs nothing
/// either.
pub(crate) async fn idle<C: Client>(client: &C, size: Size) -> Result<f64> {
    let (taken, mut takings) = mpsc::channel(CONSUMERS);
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        consumers.spawn(consume(client.clone(), taken.clone()));
    }
    tokio::time::sleep(SETTLE_IN).await;
    let (start, used) = (Instant::now(), cpu_time()?);
    tokio::time::sleep(MEASURED).await;
    let share = cpu_time()?.saturating_sub(used).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;

    client.push(payload(0, size.payload_bytes)).await?;
    tokio::time::timeout(WAIT, takings.recv()).await?.ok_or("the consumers have ended")??;
    consumers.shutdown().await;
    Ok(share)
}

async fn consume<C: Client>(client: C, taken: mpsc::Sender<Result<()>>) {
    loop {
        let held = match client.pull(1, WAIT).await {
            Ok(held) if held.is_empty() => continue,
            Ok(held) => held,
            Err(error) => return drop(taken.send(Err(error)).await),
        };
        if taken.send(client.settle_batch(held).await).await.is_err() {
            return;
        }
    }
}

fn cpu_time() -> Result<Duration> {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(u64::try_from(used.tv_sec)?, u32::try_from(used.tv_nsec)?))
}
