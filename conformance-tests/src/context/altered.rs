//! A storage that declares something other than the backend does, so that core's own part can be proven over
//! any backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyqueue::adapter::{Capabilities, Forward, PullRequest, RawDelivery, Settlement, Storage, async_trait};
use anyqueue::{Error, ErrorKind, MessageData, PartitionId, PushOutcome, Result, SettleOutcome};

/// Passes every call on, under altered capabilities (which always offer less than the backend does), and
/// counts the calls.
#[derive(Debug)]
pub(crate) struct Altered {
    inner: Arc<dyn Storage>,
    capabilities: Capabilities,
    pushes: AtomicUsize,
    largest_push: AtomicUsize,
    largest_pull: AtomicUsize,
    most_successors: AtomicUsize,
    failing_pulls: AtomicUsize,
}

impl Altered {
    pub(crate) fn new(inner: &Arc<dyn Storage>, alter: impl FnOnce(&mut Capabilities)) -> Arc<Self> {
        let mut capabilities = inner.capabilities().clone();
        alter(&mut capabilities);
        Arc::new(Self {
            inner: inner.clone(),
            capabilities,
            pushes: AtomicUsize::new(0),
            largest_push: AtomicUsize::new(0),
            largest_pull: AtomicUsize::new(0),
            most_successors: AtomicUsize::new(0),
            failing_pulls: AtomicUsize::new(0),
        })
    }

    /// Returns the number of push calls so far.
    pub(crate) fn pushes(&self) -> usize {
        self.pushes.load(Ordering::SeqCst)
    }

    /// Returns the most messages that one push call had.
    pub(crate) fn largest_push(&self) -> usize {
        self.largest_push.load(Ordering::SeqCst)
    }

    /// Returns the most messages that one pull call asked for.
    pub(crate) fn largest_pull(&self) -> usize {
        self.largest_pull.load(Ordering::SeqCst)
    }

    /// Returns the most successors that one call brought.
    pub(crate) fn most_successors(&self) -> usize {
        self.most_successors.load(Ordering::SeqCst)
    }

    fn settling(&self, settlements: &[Settlement]) {
        let successors = settlements.iter().map(|settlement| settlement.then.len()).sum();
        self.most_successors.fetch_max(successors, Ordering::SeqCst);
    }

    /// Makes the next `n` pulls fail, each as if the server were out of reach, without claiming anything.
    pub(crate) fn fail_pulls(&self, n: usize) {
        self.failing_pulls.store(n, Ordering::SeqCst);
    }

    fn asked(&self, request: &PullRequest) -> Result<()> {
        self.largest_pull.fetch_max(request.max, Ordering::SeqCst);
        let fewer = |left: usize| left.checked_sub(1);
        match self.failing_pulls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => Err(Error::new(ErrorKind::Unavailable, "out of reach, as the case wants it")),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Forward for Altered {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.pushes.fetch_add(1, Ordering::SeqCst);
        self.largest_push.fetch_max(messages.len(), Ordering::SeqCst);
        self.inner.push(partition, messages).await
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.asked(&request)?;
        self.inner.pull(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settling(settlements);
        self.inner.settle(settlements).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.settling(settlements);
        match self.asked(&request) {
            Ok(()) => self.inner.exchange(settlements, partition, request).await,
            Err(error) => (self.inner.settle(settlements).await, Err(error)),
        }
    }
}
