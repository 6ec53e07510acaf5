//! The conformance suite over a memory queue that keeps no ends, with another store beside it that keeps them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::adapter::{
    Capabilities, Forward, LedgerQueueStorage, PullRequest, RawDelivery, Settlement, Storage,
};
use anyqueue::{Beside, Clock, PartitionId, Result, SettleOutcome};
use anyqueue_conformance::{Harness, Need, Opening, async_trait};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

/// A memory queue as RabbitMQ or SQS are in this: it keeps nothing of what is removed.
#[derive(Debug)]
struct Forgetful {
    inner: MemoryQueue,
    capabilities: Capabilities,
}

impl Forgetful {
    fn new(inner: MemoryQueue) -> Self {
        let mut capabilities = anyqueue::adapter::QueueStorage::capabilities(&inner).clone();
        capabilities.ledger = None;
        Self { inner, capabilities }
    }
}

#[async_trait]
impl Forward for Forgetful {
    fn inner(&self) -> &dyn Storage {
        &self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        assert!(settlements.iter().all(|settlement| settlement.end.is_none()), "an end for what keeps none");
        self.inner().settle(settlements).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.inner().exchange(settlements, partition, request).await
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }
}

/// Two stores per namespace: that of the messages, and that of the ends.
#[derive(Default)]
struct TwoStores(Mutex<HashMap<String, [MemoryQueue; 2]>>);

impl TwoStores {
    fn client(&self, namespace: &str, config: MemoryConfig) -> Result<Arc<dyn Storage>> {
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || [config.clone(), config].map(MemoryQueue::with_config);
        let [queue, ledger] = stores.entry(namespace.to_owned()).or_insert_with(made);
        Ok(Arc::new(Beside::new(Forgetful::new(queue.client()), ledger.client())?))
    }
}

#[async_trait]
impl Harness for TwoStores {
    fn name(&self) -> &'static str {
        "memory, with a ledger beside it"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        self.client(namespace, MemoryConfig::default())
    }

    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let client = self.client(namespace, MemoryConfig::default().with_clock(clock));
        Some(Box::pin(async move { client }))
    }

    /// All time is the stores'.
    fn open_skewed(&self, namespace: &str, _clock: Clock) -> Option<Opening<'_>> {
        let client = self.client(namespace, MemoryConfig::default());
        Some(Box::pin(async move { client }))
    }

    fn least(&self) -> &'static [Need] {
        &[
            Need::Ledger,
            Need::AtomicSuccessors,
            Need::AtomicMoves,
            Need::Groups,
            Need::WholeGroups,
            Need::Amend,
        ]
    }

    fn rule(&self, need: Need) -> Option<&'static str> {
        Some(match need {
            Need::AtomicLedger => "an end is stored in one store before its message is removed from another",
            Need::OverlappingExchanges => {
                "settlements wait for the ledger, so those that overlap could not keep their order"
            }
            _ => "messages live in the memory of one process: there is no server and no other process",
        })
    }

    async fn remove(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }
}

anyqueue_conformance::suite!(TwoStores::default());
