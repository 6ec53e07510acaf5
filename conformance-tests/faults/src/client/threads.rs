//! Faults that show on a single-threaded runtime.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::PartitionId;
use anyqueue::adapter::{PullQueueStorage as _, PullRequest, Settlement, async_trait};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Pulled, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::WaitBlocksThread, &[Clause::ReadyAtOnce, Clause::AllWaitersWake], || {
        Arc::new(Looks { pause: Some(Duration::from_millis(5)) })
    }),
    subtle(Fault::SpinsWhileWaiting, &[Clause::Resources], || Arc::new(Looks { pause: None })),
    subtle(Fault::NeedsSeveralThreads, &[Clause::Recovery], || Arc::new(NeedsSeveralThreads)),
];

/// A wait that polls: after a pause that blocks its thread, or after none.
#[derive(Debug)]
struct Looks {
    pause: Option<Duration>,
}

#[async_trait]
impl Quirk for Looks {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        loop {
            let got = client.right.pull(partition, for_wait(&request, Duration::ZERO)).await?;
            let over = Instant::now() >= deadline || request.stop.is_cancelled();
            if over || !got.is_empty() || client.closed.is_cancelled() {
                return Ok(got);
            }
            match self.pause {
                Some(pause) => std::thread::sleep(pause),
                None => tokio::task::yield_now().await,
            }
        }
    }
}

#[derive(Debug)]
struct NeedsSeveralThreads;

#[async_trait]
impl Quirk for NeedsSeveralThreads {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        if settlements.len() > 1 {
            tokio::task::block_in_place(|| {});
        }
        client.right.settle(settlements).await
    }
}
