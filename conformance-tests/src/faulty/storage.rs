//! The wrapper: every call goes through the one hook where its fault may sit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{
    Browsed, CancelOutcome, Capabilities, Counts, DeleteOutcome, Delivery, Error, ExtendOutcome, Extension,
    Health, InspectQueueStorage, Lease, MessageData, MessageId, PartitionId, PauseQueueStorage,
    PullQueueStorage, PullRequest, PushOutcome, PushQueueStorage, QueueStorage, Result, SettleOutcome,
    Settlement, Storage, async_trait,
};

use super::Fault;
use super::state::{Local, Shared};

/// One client of a backend with one fault.
#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) inner: Arc<dyn Storage>,
    /// `None`: a right backend after all.
    pub(super) fault: Option<Fault>,
    pub(super) shared: Arc<Shared>,
    pub(super) local: Arc<Mutex<Local>>,
    capabilities: Capabilities,
}

impl Faulty {
    pub(super) fn new(inner: Arc<dyn Storage>, fault: Option<Fault>, shared: Arc<Shared>) -> Self {
        let mut capabilities = inner.capabilities().clone();
        // Memory has no use for it, but is right about it.
        capabilities.coalesce_settle.in_flight = 2;
        match fault {
            Some(Fault::UndeclaredAnswered) => capabilities.inspect.browse = false,
            Some(Fault::DeclaresLess) => capabilities.priority_levels = 3,
            _ => {}
        }
        Self { inner, fault, shared, local: Arc::default(), capabilities }
    }

    pub(super) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(super) fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the fault puts what belongs into `partition`.
    pub(super) fn place(&self, partition: &PartitionId) -> PartitionId {
        let name = match self.fault {
            Some(Fault::PartitionIgnored) => "all".to_owned(),
            Some(Fault::NamesSanitised) => partition.name().to_lowercase().replace(['.', '-'], "_"),
            _ => return partition.clone(),
        };
        match PartitionId::new(&name) {
            Ok(place) if partition.is_dead_letters() => place.dead_letters(),
            Ok(place) => place,
            Err(_) => partition.clone(),
        }
    }

    pub(super) fn place_lease(&self, lease: &Lease) -> Lease {
        Lease { partition: self.place(&lease.partition), ..lease.clone() }
    }

    fn open(&self) -> Result<()> {
        let closed = self.local().closed || self.shared.lock().closed;
        if closed { Err(Error::closed()) } else { Ok(()) }
    }

    pub(super) fn inspector(&self) -> Result<&dyn InspectQueueStorage> {
        self.open()?;
        self.inner.inspect().ok_or_else(|| Error::unsupported("no inspection"))
    }

    pub(super) fn pauser(&self) -> Result<&dyn PauseQueueStorage> {
        self.open()?;
        self.inner.pause().ok_or_else(|| Error::unsupported("no pause"))
    }

    async fn empty_all(&self) -> Result<()> {
        let inspect = self.inspector()?;
        for partition in inspect.partitions(None, anyqueue::MAX_PAGE).await? {
            while inspect.purge(&partition, anyqueue::MAX_PAGE).await? > 0 {}
        }
        Ok(())
    }
}

#[async_trait]
impl QueueStorage for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        if self.is(Fault::InitEmpties) {
            self.empty_all().await?;
        }
        self.inner.init().await
    }

    async fn check(&self) -> Result<Health> {
        if self.is(Fault::HealthRemembered) {
            return Ok(Health::of_version("remembered"));
        }
        self.open()?;
        self.inner.check().await
    }

    async fn close(&self) -> Result<()> {
        match self.fault {
            Some(Fault::CloseDoesNothing) => return Ok(()),
            Some(Fault::CloseDoesNotWake) => {
                self.local().closed = true;
                return Ok(());
            }
            Some(Fault::SecondCloseFails) if self.local().closed => return Err(Error::closed()),
            Some(Fault::SecondCloseFails) => self.local().closed = true,
            Some(Fault::CloseIsShared) => self.shared.lock().closed = true,
            Some(Fault::BufferLostAtClose) => self.local().buffer.clear(),
            _ => {}
        }
        self.inner.close().await
    }
}

#[async_trait]
impl PushQueueStorage for Faulty {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.inner.encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if let Err(closed) = self.open() {
            return vec![Err(closed); messages.len()];
        }
        let answers = self.faulty_push(partition, messages).await;
        self.shared.pushed.notify_waiters();
        answers
    }
}

#[async_trait]
impl PullQueueStorage for Faulty {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<Delivery>> {
        self.open()?;
        self.faulty_pull(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if let Err(closed) = self.open() {
            return vec![Err(closed); settlements.len()];
        }
        self.faulty_settle(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if let Err(closed) = self.open() {
            return vec![Err(closed); extensions.len()];
        }
        self.faulty_extend(extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<Delivery>>) {
        let is_slow =
            |settlement: &Settlement| settlement.lease.id.as_bytes().last().is_some_and(|byte| byte % 2 == 0);
        if self.is(Fault::ExchangeOvertakes) && settlements.first().is_some_and(is_slow) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let settled = self.settle(settlements).await;
        if self.is(Fault::ExchangeForgetsToPull) {
            return (settled, Ok(Vec::new()));
        }
        (settled, self.pull(partition, request).await)
    }
}

impl Storage for Faulty {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl InspectQueueStorage for Faulty {
    async fn partitions(&self, after: Option<&PartitionId>, limit: usize) -> Result<Vec<PartitionId>> {
        let mut page = self.inspector()?.partitions(after, limit).await?;
        if self.is(Fault::ListUnordered) {
            page.reverse();
        }
        Ok(page)
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        self.faulty_counts(partition).await
    }

    async fn browse(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        self.faulty_browse(partition, after, limit).await
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        self.faulty_delete(partition, ids).await
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.faulty_purge(partition, limit).await
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        match self.inspector() {
            Ok(inspector) => inspector.request_cancel(&self.place(partition), ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }
}

#[async_trait]
impl PauseQueueStorage for Faulty {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        if self.is(Fault::PauseLocal) {
            let mut local = self.local();
            if paused {
                local.paused.insert(partition.clone());
            } else {
                local.paused.remove(partition);
            }
            return Ok(());
        }
        self.pauser()?.set_paused(&self.place(partition), paused).await
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        if self.is(Fault::PauseLocal) {
            return Ok(self.local().paused.contains(partition));
        }
        self.pauser()?.is_paused(&self.place(partition)).await
    }
}

/// As long as a fault keeps something back that a right backend would not.
pub(super) const MOMENT: Duration = Duration::from_millis(250);
