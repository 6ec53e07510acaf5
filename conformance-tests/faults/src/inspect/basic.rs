//! Faults of inspection.

use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest, Settlement};
use anyqueue::{
    Browsed, Counts, DeleteOutcome, MAX_PAGE, MessageId, MessageState, Page, PartitionId, Result,
    SettleOutcome,
};
use anyqueue_conformance::Fault;

use crate::basic::Basic;

impl Basic {
    pub(crate) async fn faulty_counts(&self, partition: &PartitionId) -> Result<Counts> {
        let place = self.place(partition);
        let mut counts = self.inspector()?.counts(&place).await?;
        match self.fault {
            Some(Fault::CountsLocal) => {
                let ready = self.local().pushed.get(&place).copied().unwrap_or_default();
                Ok(Counts::known(ready, 0, 0, 0))
            }
            Some(Fault::LeasedCountedReady) => {
                counts.ready = counts.ready.zip(counts.leased).map(|(ready, leased)| ready + leased);
                counts.leased = Some(0);
                Ok(counts)
            }
            _ => Ok(counts),
        }
    }

    pub(crate) async fn faulty_browse(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        let page = self.browse_in_its_way(partition, after, limit).await?;
        self.page_as_stored(page)
    }

    async fn browse_in_its_way(
        &self,
        partition: &PartitionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<Browsed>> {
        let place = self.place(partition);
        let inspector = self.inspector()?;
        match self.fault {
            Some(Fault::BrowseLeases) => {
                let page = inspector.browse(&place, Page::of(limit).after(after)).await?;
                self.inner
                    .pull(&place, PullRequest::new(limit, Duration::ZERO, Duration::from_secs(2)))
                    .await?;
                Ok(page)
            }
            Some(Fault::BrowseAllReady) => {
                let mut page = inspector.browse(&place, Page::of(limit).after(after)).await?;
                for browsed in &mut page {
                    browsed.state = MessageState::Ready;
                }
                Ok(page)
            }
            Some(Fault::BrowseRepeats) => {
                let mut all = inspector.browse(&place, Page::of(MAX_PAGE)).await?;
                all.retain(|browsed| after.is_none_or(|after| browsed.message.id() >= after));
                all.truncate(limit);
                Ok(all)
            }
            _ => inspector.browse(&place, Page::of(limit).after(after)).await,
        }
    }

    pub(crate) async fn faulty_delete(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        let place = self.place(partition);
        let inspector = match self.inspector() {
            Ok(inspector) => inspector,
            Err(error) => return vec![Err(error); ids.len()],
        };
        let mut outcomes = inspector.delete(&place, ids).await;
        if self.is(Fault::DeleteAnywhere) {
            for partition in inspector.partitions(Page::of(MAX_PAGE)).await.unwrap_or_default() {
                for (outcome, id) in outcomes.iter_mut().zip(ids) {
                    if matches!(outcome, Ok(DeleteOutcome::NotFound)) {
                        *outcome = inspector
                            .delete(&partition, &[*id])
                            .await
                            .pop()
                            .unwrap_or(Ok(DeleteOutcome::NotFound));
                    }
                }
            }
        }
        if self.is(Fault::DeleteTakesLeased) {
            for (outcome, id) in outcomes.iter_mut().zip(ids) {
                if matches!(outcome, Ok(DeleteOutcome::Leased)) && self.remove_leased(*id).await {
                    *outcome = Ok(DeleteOutcome::Deleted);
                }
            }
        }
        outcomes
    }

    async fn remove_leased(&self, id: MessageId) -> bool {
        let Some(lease) = self.shared.lock().owners.get(&id).cloned() else { return false };
        let outcomes = self.inner.settle(&[Settlement::new(lease, Action::Remove)]).await;
        outcomes.iter().all(|outcome| matches!(outcome, Ok(SettleOutcome::Settled)))
    }

    pub(crate) async fn faulty_purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        let place = self.place(partition);
        let inspector = self.inspector()?;
        let limit = if self.is(Fault::PurgeIgnoresLimit) { MAX_PAGE } else { limit };
        let mut purged = inspector.purge(&place, limit).await?;
        if self.is(Fault::PurgeTakesLeased) {
            for browsed in inspector.browse(&place, Page::of(MAX_PAGE)).await? {
                if browsed.state == MessageState::Leased && self.remove_leased(browsed.message.id()).await {
                    purged += 1;
                }
            }
        }
        Ok(purged)
    }
}
