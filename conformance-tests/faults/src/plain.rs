//! The calls of a client with a plain fault; each call goes through the one place where its fault may be.

use std::time::Duration;

use anyqueue::adapter::{Capabilities, Extension, PullRequest, Settlement, async_trait};
use anyqueue::{
    Browsed, CancelOutcome, Counts, DeleteOutcome, Error, Health, MessageData, MessageId, Page, PartitionId,
    Result,
};
use anyqueue_conformance::Fault;

use crate::basic::Basic;
use crate::quirk::{Client, Extended, Pulled, Pushed, Quirk, Settled};

#[async_trait]
impl Quirk for Basic {
    fn declare(&self, capabilities: &mut Capabilities) {
        // The correct backend may not use this field, but declares it correctly.
        capabilities.coalesce_settle.in_flight = 2;
        match self.fault {
            Some(Fault::UndeclaredAnswered) => capabilities.inspect.browse = false,
            Some(Fault::DeclaresLess) => capabilities.priority_levels = 3,
            _ => {}
        }
    }

    async fn init(&self, _: &Client) -> Result<()> {
        if self.is(Fault::InitEmpties) {
            self.empty_all().await?;
        }
        self.inner.init().await
    }

    async fn check(&self, _: &Client) -> Result<Health> {
        if self.is(Fault::HealthRemembered) {
            return Ok(Health::of_version("remembered"));
        }
        self.open()?;
        self.inner.check().await
    }

    async fn close(&self, _: &Client) -> Result<()> {
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

    async fn push(&self, _: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        if let Err(closed) = self.open() {
            return vec![Err(closed); messages.len()];
        }
        let answers = self.faulty_push(partition, messages).await;
        self.shared.pushed.notify_waiters();
        answers
    }

    async fn pull(&self, _: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        self.open()?;
        self.faulty_pull(partition, request).await
    }

    async fn settle(&self, _: &Client, settlements: &[Settlement]) -> Settled {
        if let Err(closed) = self.open() {
            return vec![Err(closed); settlements.len()];
        }
        self.faulty_settle(settlements).await
    }

    async fn extend(&self, _: &Client, extensions: &[Extension]) -> Extended {
        if let Err(closed) = self.open() {
            return vec![Err(closed); extensions.len()];
        }
        self.faulty_extend(extensions).await
    }

    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Settled, Pulled) {
        let is_slow =
            |settlement: &Settlement| settlement.lease.id.as_bytes().last().is_some_and(|byte| byte % 2 == 0);
        if self.is(Fault::ExchangeOvertakes) && settlements.first().is_some_and(is_slow) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let settled = self.settle(client, settlements).await;
        if self.is(Fault::ExchangeForgetsToPull) {
            return (settled, Ok(Vec::new()));
        }
        (settled, self.pull(client, partition, request).await)
    }

    async fn partitions(&self, _: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        let mut page = self.inspector()?.partitions(Page::of(limit).after(after.cloned())).await?;
        if self.is(Fault::ListUnordered) {
            page.reverse();
        }
        Ok(page)
    }

    async fn counts(&self, _: &Client, partition: &PartitionId) -> Result<Counts> {
        self.faulty_counts(partition).await
    }

    async fn browse(
        &self,
        _: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        self.faulty_browse(partition, after, limit).await
    }

    async fn delete(
        &self,
        _: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        self.faulty_delete(partition, ids).await
    }

    async fn purge(&self, _: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        self.faulty_purge(partition, limit).await
    }

    async fn cancel(
        &self,
        _: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        match self.inspector() {
            Ok(inspector) => inspector.request_cancel(&self.place(partition), ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn set_paused(&self, _: &Client, partition: &PartitionId, paused: bool) -> Result<()> {
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

    async fn is_paused(&self, _: &Client, partition: &PartitionId) -> Result<bool> {
        if self.is(Fault::PauseLocal) {
            return Ok(self.local().paused.contains(partition));
        }
        self.pauser()?.is_paused(&self.place(partition)).await
    }
}
