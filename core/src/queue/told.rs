//! What a ledger beside the queue records of a task that goes on, if the queue cannot be browsed.

use std::sync::Arc;

use super::ending::{Ending, TaskReport};
use super::guard;
use super::handle::Queue;
use super::shared::Shared;
use crate::error::Result;
use crate::inspect::{MAX_PAGE, Page};
use crate::ledger::{EndState, Forget, TaskEnd, generation, text};
use crate::message::{Headers, MessageData, header};
use crate::partition::IntoPartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::Action;

impl Ending<'_> {
    /// Returns what to record about a task that goes on in this way; nothing of it is stored with the
    /// settlement itself.
    pub(super) fn told(&self, action: &Action, report: Option<&TaskReport>) -> Arc<TaskEnd> {
        let mut told = self.described(EndState::Failed, report);
        (told.result, told.log, told.progress) = (None, None, None);
        let (headers, delay) = match action {
            Action::Postpone { delay, headers } => (headers.as_ref(), Some(*delay)),
            Action::Move { headers, .. } => (headers.as_ref(), None),
            _ => (None, None),
        };
        let headers = headers.unwrap_or_else(|| self.message.headers());
        told.due_in = delay;
        if report.and_then(|report| report.errors.as_ref()).is_none() {
            told = told.with_errors(text(headers, header::TASK_ERRORS));
        }
        if let Some(reason) = text(headers, header::DEAD_REASON) {
            told.reason = Some(reason);
        }
        Arc::new(told)
    }
}

impl Shared {
    /// Whether the ledger also records tasks that have not ended.
    pub(super) fn tells_of_living(&self) -> bool {
        self.storage().ledger().is_some_and(|ledger| ledger.live_tasks().is_some())
    }

    /// Returns what to record about a task that goes back to the queue, after an attempt or until a moment. A
    /// task that is merely released is where it was.
    pub(super) fn goes_back(
        &self,
        ending: &Ending<'_>,
        status: &QueueMessageStatus,
        action: &Action,
        report: Option<&TaskReport>,
    ) -> Option<Arc<TaskEnd>> {
        let is_told = matches!(status, QueueMessageStatus::Failed | QueueMessageStatus::Postponed { .. });
        if !is_told || ending.partition.is_dead_letters() || !self.tells_of_living() {
            return None;
        }
        Some(ending.told(action, report))
    }

    /// Returns what to record about a task that comes back from the dead letters with these headers.
    pub(super) fn put_back(&self, message: &MessageData, headers: &Headers) -> Option<Arc<TaskEnd>> {
        if !self.tells_of_living() {
            return None;
        }
        let mut told = TaskEnd::new(EndState::Failed).about(message);
        told.generation = generation(headers);
        Some(Arc::new(told))
    }
}

impl Queue {
    /// Makes a [ledger beside the queue](crate::Beside) forget tasks that it knows as waiting, or also as
    /// dead if [asked for](Forget::dead), and of which it has not heard since the given moment. Works in
    /// steps of at most [`MAX_PAGE`] and returns how many were forgotten. Use it when the ledger is no longer
    /// right, because the queue was purged or the ledger was restored from a backup. The tasks themselves are
    /// left alone, and the ledger learns of each again with its next event.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if no ledger records such tasks, because the queue
    /// shows them itself or keeps no ends; otherwise the server's error, and what was forgotten before stays
    /// forgotten.
    pub async fn forget_waiting(&self, partition: impl IntoPartitionId, forget: &Forget) -> Result<u64> {
        let partition = partition.into_partition_id()?.live();
        let (mut forgotten, mut after) = (0, None);
        while forgotten < forget.limit {
            let (partition, page) = (partition.clone(), Page::of(MAX_PAGE).after(after));
            let left = forget.clone().with_limit(forget.limit - forgotten);
            let call = self.ledger(move |ledger| {
                Box::pin(async move {
                    let refusal = || guard::unsupported("ledger that is told of tasks that wait");
                    ledger.live_tasks().ok_or_else(refusal)?.forget_live(&partition, &left, page).await
                })
            });
            let done = call.await?;
            forgotten += done.tasks;
            after = done.next;
            if after.is_none() {
                break;
            }
        }
        Ok(forgotten)
    }
}
