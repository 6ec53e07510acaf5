//! Faults of pausing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{
    Extension, InspectQueueStorage as _, PauseQueueStorage as _, PullQueueStorage as _, PullRequest,
    Settlement, async_trait,
};
use anyqueue::{Counts, ExtendOutcome, MAX_PAGE, Page, PartitionId, Result};
use anyqueue_conformance::{Clause, Fault};
use tokio::sync::watch;

use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::PauseMissesWaiting, &[Clause::Pause], || Arc::new(PauseMissesWaiting::new())),
    subtle(Fault::PauseTakesDead, &[Clause::PartitionsApart, Clause::Pause], || Arc::new(PauseTakesDead)),
    subtle(Fault::PauseEndsLeases, &[Clause::Extend, Clause::Pause], || Arc::new(PauseEndsLeases)),
    subtle(Fault::PauseForgottenWhenEmpty, &[Clause::Pause], || Arc::new(PauseForgottenWhenEmpty)),
    subtle(Fault::PauseDiesWithClient, &[Clause::Pause], || Arc::new(PauseDiesWithClient::default())),
    subtle(Fault::PausedUnlisted, &[Clause::Inspection, Clause::Pause], || Arc::new(PausedUnlisted)),
    subtle(Fault::InitResumes, &[Clause::Pause, Clause::Init], || Arc::new(InitResumes)),
];

/// Checks whether the partition is paused only at the beginning of a pull.
#[derive(Debug)]
struct PauseMissesWaiting {
    paused: watch::Sender<HashSet<PartitionId>>,
}

impl PauseMissesWaiting {
    fn new() -> Self {
        Self { paused: watch::Sender::new(HashSet::new()) }
    }
}

#[async_trait]
impl Quirk for PauseMissesWaiting {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        let mut paused = self.paused.subscribe();
        tokio::select! {
            biased;
            _ = paused.wait_for(|paused| !paused.contains(partition)) => {}
            () = tokio::time::sleep_until(deadline.into()) => return Ok(Vec::new()),
            () = request.stop.cancelled() => return Ok(Vec::new()),
            () = client.closed.cancelled() => return Ok(Vec::new()),
        }
        let wait = deadline.saturating_duration_since(Instant::now());
        client.right.pull(partition, for_wait(&request, wait)).await
    }

    async fn set_paused(&self, _client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        self.paused.send_modify(|all| {
            if paused {
                all.insert(partition.clone());
            } else {
                all.remove(partition);
            }
        });
        Ok(())
    }

    async fn is_paused(&self, _client: &Client, partition: &PartitionId) -> Result<bool> {
        Ok(self.paused.borrow().contains(partition))
    }
}

#[derive(Debug)]
struct PauseTakesDead;

#[async_trait]
impl Quirk for PauseTakesDead {
    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        client.right.set_paused(&partition.dead_letters(), paused).await?;
        client.right.set_paused(partition, paused).await
    }
}

/// In a paused partition, nothing can be extended.
#[derive(Debug)]
struct PauseEndsLeases;

#[async_trait]
impl Quirk for PauseEndsLeases {
    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let mut answers = Vec::with_capacity(extensions.len());
        for extension in extensions {
            if client.right.is_paused(&extension.lease.partition).await.unwrap_or_default() {
                answers.push(Ok(ExtendOutcome::Lost));
            } else {
                answers.extend(client.right.extend(std::slice::from_ref(extension)).await);
            }
        }
        answers
    }
}

/// The settlement that empties a partition deletes it, and its pause with it.
#[derive(Debug)]
struct PauseForgottenWhenEmpty;

#[async_trait]
impl Quirk for PauseForgottenWhenEmpty {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for Settlement { lease, .. } in settlements {
            let counts = client.right.counts(&lease.partition).await.unwrap_or_default();
            if matches!(counts, Counts { ready: Some(0), delayed: Some(0), leased: Some(0), .. }) {
                let _closed = client.right.set_paused(&lease.partition, false).await;
            }
        }
        answers
    }
}

#[derive(Debug, Default)]
struct PauseDiesWithClient {
    paused_by: Kept<HashMap<PartitionId, usize>>,
}

#[async_trait]
impl Quirk for PauseDiesWithClient {
    async fn set_paused(&self, client: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
        self.paused_by.lock().insert(partition.clone(), client.number);
        client.right.set_paused(partition, paused).await
    }

    async fn before_close(&self, client: &Client) {
        let paused_by = self.paused_by.lock().clone();
        for (partition, _) in paused_by.iter().filter(|(_, number)| **number == client.number) {
            let _closed = client.right.set_paused(partition, false).await;
        }
    }
}

#[derive(Debug)]
struct InitResumes;

#[async_trait]
impl Quirk for InitResumes {
    async fn before_init(&self, client: &Client) {
        for partition in client.right.partitions(Page::of(MAX_PAGE)).await.unwrap_or_default() {
            let _closed = client.right.set_paused(&partition, false).await;
        }
    }
}

#[derive(Debug)]
struct PausedUnlisted;

#[async_trait]
impl Quirk for PausedUnlisted {
    async fn partitions(&self, client: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let mut shown = Vec::new();
        for partition in client.right.partitions(Page::of(limit).after(after.cloned())).await? {
            if client.right.counts(&partition).await? != Counts::known(0, 0, 0, 0) {
                shown.push(partition);
            }
        }
        Ok(shown)
    }
}
