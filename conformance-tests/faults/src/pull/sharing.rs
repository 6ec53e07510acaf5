//! Faults of pulls that run at the same time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::PartitionId;
use anyqueue::adapter::{Extension, PullQueueStorage as _, PullRequest, RawDelivery, async_trait};
use anyqueue_conformance::{Clause, Fault};
use tokio::sync::oneshot;

use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Quirk, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::WaitersShare, &[Clause::Exclusive], || Arc::new(WaitersShare::default())),
    subtle(Fault::WaitBlocksExtend, &[Clause::Extend, Clause::Recovery], || {
        Arc::new(Connection { blocks: Blocks::Extensions, ..Connection::default() })
    }),
    subtle(Fault::WaitBlocksOtherPull, &[Clause::ReadyAtOnce, Clause::PartitionsApart], || {
        Arc::new(Connection::default())
    }),
];

/// A waiting pull of another client.
type Waiter = (PartitionId, usize, oneshot::Sender<Vec<RawDelivery>>);

/// Two waiting clients are woken by one message, and both take it.
#[derive(Debug, Default)]
struct WaitersShare {
    waiters: Kept<Vec<Waiter>>,
}

impl WaitersShare {
    /// Returns the other client that has waited longest.
    fn other(&self, client: &Client, partition: &PartitionId) -> Option<oneshot::Sender<Vec<RawDelivery>>> {
        let mut waiters = self.waiters.lock();
        waiters.retain(|(.., waiter)| !waiter.is_closed());
        let at =
            waiters.iter().position(|(place, number, _)| place == partition && *number != client.number)?;
        Some(waiters.remove(at).2)
    }
}

#[async_trait]
impl Quirk for WaitersShare {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        let at_once = for_wait(&request, Duration::ZERO);
        let deliveries = client.right.pull(partition, at_once).await?;
        if !deliveries.is_empty() || request.wait.is_zero() {
            return Ok(deliveries);
        }
        let (share, shared) = oneshot::channel();
        self.waiters.lock().push((partition.clone(), client.number, share));
        let wait = deadline.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            Ok(deliveries) = shared => Ok(deliveries),
            deliveries = client.right.pull(partition, for_wait(&request, wait)) => {
                if let Ok(deliveries) = &deliveries
                    && !deliveries.is_empty()
                    && let Some(other) = self.other(client, partition)
                {
                    let _gone = other.send(deliveries.clone());
                }
                deliveries
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Blocks {
    /// Extensions, for messages of any partition.
    Extensions,
    #[default]
    OtherPulls,
}

/// While a pull waits, its client's only connection is in use.
#[derive(Debug, Default)]
struct Connection {
    blocks: Blocks,
    waiting: Kept<Vec<(usize, PartitionId)>>,
}

/// A waiting pull, for as long as it waits.
struct Use<'a>(&'a Connection, (usize, PartitionId));

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        if let Some(at) = waiting.iter().position(|other| *other == self.1) {
            waiting.swap_remove(at);
        }
    }
}

impl Connection {
    async fn free(&self, client: &Client, but: Option<&PartitionId>) {
        let used = || {
            let waiting = self.waiting.lock();
            waiting.iter().any(|(number, partition)| *number == client.number && Some(partition) != but)
        };
        while used() && !client.closed.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[async_trait]
impl Quirk for Connection {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        if self.blocks == Blocks::OtherPulls {
            tokio::select! {
                () = self.free(client, Some(partition)) => {}
                () = request.stop.cancelled() => {}
            }
        }
        let at_once = for_wait(&request, Duration::ZERO);
        let deliveries = client.right.pull(partition, at_once).await?;
        let wait = deadline.saturating_duration_since(Instant::now());
        if !deliveries.is_empty() || wait.is_zero() {
            return Ok(deliveries);
        }
        let place = (client.number, partition.clone());
        self.waiting.lock().push(place.clone());
        let _in_use = Use(self, place);
        client.right.pull(partition, for_wait(&request, wait)).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        if self.blocks == Blocks::Extensions {
            self.free(client, None).await;
        }
        client.right.extend(extensions).await
    }
}
