//! Deletion of tasks by filter, whether they live, are dead or have ended.

use super::guard;
use super::handle::Queue;
use crate::error::{Operation, Result};
use crate::inspect::{DeleteOutcome, MAX_PAGE, Page};
use crate::ledger::{EndState, Task, TaskFilter, TaskState};
use crate::message::MessageId;
use crate::partition::{IntoPartitionId, PartitionId};

/// What [`Queue::delete_tasks`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedTasks {
    /// The number of tasks deleted that had not ended: their messages are gone, and they leave no end.
    pub live: u64,
    /// The number of dead letters deleted.
    pub dead: u64,
    /// The number of ends deleted.
    pub ended: u64,
    /// The number of tasks that matched but were held by a consumer, and so were left alone.
    pub held: u64,
    /// Whether it stopped at its limit, so that there may be more: call it again.
    pub more: bool,
}

impl DeletedTasks {
    /// Returns how many tasks were deleted in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.live + self.dead + self.ended
    }
}

impl Queue {
    /// Deletes the tasks of a partition that match a filter, at most `limit`: first those that live, then
    /// dead letters, then the ends of tasks. A task that a consumer holds is left alone and counted; cancel
    /// it instead, with [`request_cancel`](Self::request_cancel).
    ///
    /// Tasks are read and deleted page by page. If it fails or stops at its limit, call it again: what was
    /// deleted is no longer found. A filter that [scans](TaskFilter::scans) reads every task in its states
    /// and times each time. Several calls may run at once; each task is counted by the one that deleted it.
    /// A task that waits and changes its state just then may be deleted, or left, as if it had not changed;
    /// one that is pulled just then is left. One that is pushed meanwhile may be deleted or left.
    ///
    /// Where an end matches, all ends of that task are deleted: also an earlier or later one, if the same id
    /// was pushed again. Old dead letters match a filter that names only times.
    ///
    /// Messages can be deleted only where the backend can browse them and
    /// [delete](crate::adapter::InspectCapability::delete) them by id. Elsewhere, as on RabbitMQ and SQS,
    /// only ends are deleted.
    ///
    /// ```
    /// use anyqueue::{Keep, MessageData, Queue, QueueMessageStatus::Processed, TaskFilter, TaskState};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::builder(anyqueue_memory::MemoryQueue::new()).ledger(Keep::default()).build()?;
    /// queue.push_many("mail", ["first", "second"].map(MessageData::new).into()).await?;
    /// queue.pull("mail").await?[0].settle(Processed).await?;
    ///
    /// let deleted = queue.delete_tasks("mail", &TaskFilter::new(), 1000).await?;
    /// assert_eq!((deleted.live, deleted.ended, deleted.more), (1, 1, false));
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the filter names a state in which the backend can
    /// delete nothing; otherwise the server's error, and what was deleted before stays deleted.
    pub async fn delete_tasks(
        &self,
        partition: impl IntoPartitionId,
        filter: &TaskFilter,
        limit: u64,
    ) -> Result<DeletedTasks> {
        let partition = partition.into_partition_id()?.live();
        let deletes_messages = self.deletes_messages(filter)?;
        let mut done = DeletedTasks::default();
        if deletes_messages && filter.wants_live() {
            (done.live, done.held) = self.delete_matching(&partition, filter, limit).await?;
        }
        if deletes_messages && filter.wants_dead() {
            let (dead, left) = (partition.dead_letters(), limit.saturating_sub(done.total()));
            let (deleted, held) = self.delete_matching(&dead, filter, left).await?;
            done.dead = deleted;
            done.held += held;
        }
        if self.has_ledger() {
            let left = limit.saturating_sub(done.total());
            done.ended = self.delete_ended(&partition, filter, left).await?;
        }
        done.more = done.total() >= limit;
        Ok(done)
    }

    /// Deletes the ends of tasks that match a filter, at most `limit`, and returns how many were deleted.
    /// Tasks that live or are dead are left alone: [`delete_tasks`](Self::delete_tasks) deletes those too.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if no ends are kept; otherwise the server's error, and
    /// what was deleted before stays deleted.
    pub async fn delete_ended(
        &self,
        partition: impl IntoPartitionId,
        filter: &TaskFilter,
        limit: u64,
    ) -> Result<u64> {
        let partition = partition.into_partition_id()?.live();
        let Some(query) = filter.ended_query() else { return Ok(0) };
        let (mut deleted, mut after) = (0, None);
        while deleted < limit {
            let page = self.ended_page(&partition, query.clone(), after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.cursor());
            let tasks = page.into_iter().map(|ended| Task::ended(partition.clone(), ended));
            let ids: Vec<_> = tasks.filter(|task| filter.matches(task)).map(|task| task.id).collect();
            let mut rest = ids.as_slice();
            while deleted < limit && !rest.is_empty() {
                let (part, later) = split_at_most(rest, limit - deleted);
                deleted += self.delete_ends(&partition, part).await?;
                rest = later;
            }
        }
        Ok(deleted)
    }

    /// Returns how many of these ends there were.
    async fn delete_ends(&self, partition: &PartitionId, ids: &[MessageId]) -> Result<u64> {
        let (partition, ids) = (partition.clone(), ids.to_vec());
        let call = self
            .ledger(move |ledger| Box::pin(async move { Ok(ledger.delete_ended(&partition, &ids).await) }));
        let mut deleted = 0;
        for answer in call.await? {
            deleted += u64::from(answer?);
        }
        Ok(deleted)
    }

    /// Deletes matching messages of a partition. Returns how many were deleted, and how many are held.
    async fn delete_matching(
        &self,
        side: &PartitionId,
        filter: &TaskFilter,
        limit: u64,
    ) -> Result<(u64, u64)> {
        let (mut deleted, mut held, mut after) = (0, 0, None);
        let mut is_last = false;
        while deleted < limit && !is_last {
            let page = self.browse(side, Page::of(MAX_PAGE).after(after)).await?;
            // Or it would go on for as long as somebody pushes.
            is_last = page.len() < MAX_PAGE;
            after = page.last().map(|last| last.message.id());
            let now = self.clock().wall();
            let mut ids = Vec::new();
            for task in page.into_iter().map(|browsed| Task::of_message(side, browsed, now)) {
                match task.state {
                    _ if !filter.matches(&task) => {}
                    // Whoever held it may release it before the deletion arrives: then it would match no more.
                    TaskState::Running => held += 1,
                    _ => ids.push(task.id),
                }
            }
            let mut rest = ids.as_slice();
            while deleted < limit && !rest.is_empty() {
                let (part, later) = split_at_most(rest, limit - deleted);
                for outcome in self.delete(side, part).await? {
                    match outcome? {
                        DeleteOutcome::Deleted => deleted += 1,
                        DeleteOutcome::Leased => held += 1,
                        DeleteOutcome::NotFound => {}
                    }
                }
                rest = later;
            }
        }
        Ok((deleted, held))
    }

    /// Whether messages are deleted too. Refuses a filter that names a state in which nothing can be deleted.
    fn deletes_messages(&self, filter: &TaskFilter) -> Result<bool> {
        let (declared, has_ledger) = (self.capabilities().inspect, self.has_ledger());
        let can_delete = declared.browse && declared.delete;
        let keeps_nothing = |state: &TaskState| match state.ended() {
            None => false,
            Some(EndState::Failed) => !has_ledger && !can_delete,
            Some(_) => !has_ledger,
        };
        let is_live = |state: &TaskState| state.ended().is_none();
        if !can_delete && filter.states.iter().any(is_live) {
            return Err(self.0.stamp(guard::unsupported("deletion by id"), Operation::Inspect));
        }
        if filter.states.iter().any(keeps_nothing) || (!can_delete && !has_ledger) {
            return Err(self.no_ledger());
        }
        Ok(can_delete)
    }
}

/// Splits off as many ids as may still be deleted. Some of them may be gone or held by then, so that others
/// can be deleted in their place.
fn split_at_most(ids: &[MessageId], most: u64) -> (&[MessageId], &[MessageId]) {
    ids.split_at(usize::try_from(most).unwrap_or(usize::MAX).min(ids.len()))
}
