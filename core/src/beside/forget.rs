//! Forgetting tasks that were reported to the ledger and of which it has not heard since.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Beside;
use super::live::{living, waiting};
use super::said::Said;
use crate::error::Result;
use crate::inspect::Page;
use crate::ledger::{EndedCursor, EndedQuery, EndedTask, Forget, Forgotten, TaskEnd};
use crate::message::MessageId;
use crate::partition::PartitionId;

/// How long the ledger keeps what replaces a forgotten fact: the shortest time for which anything is kept.
/// What has lapsed outranks nothing.
const FORGOTTEN_KEPT: Duration = Duration::from_millis(1);

impl Beside {
    /// Forgets the selected facts of a page of those kept here, or counts them.
    pub(super) async fn forget_page(
        &self,
        place: &PartitionId,
        forget: &Forget,
        page: Page<EndedCursor>,
    ) -> Result<Forgotten> {
        let states = if forget.dead { living() } else { waiting() };
        let query = EndedQuery { states, before: Some(forget.before), ..EndedQuery::default() };
        let mut facts = self.kept()?.ended(place, &query, page).await?;
        let next = facts.last().map(EndedTask::cursor);
        facts.retain(|fact| is_over(fact, forget.before));
        facts.truncate(usize::try_from(forget.limit).unwrap_or(usize::MAX));
        let tasks = if forget.dry_run { facts.len() } else { self.forget(place, &facts).await? };
        Ok(Forgotten { tasks: tasks as u64, next })
    }

    /// Forgets facts, and returns how many.
    ///
    /// Meanwhile something newer may be reported about some of these tasks; and about a task that becomes a
    /// dead letter, for example, nothing follows. A deletion by id would delete that report too, unseen. So a
    /// forgotten fact is outranked, for a moment, by the fact that the task is gone: in one step of the
    /// ledger, and anything newer outranks that in turn, whichever comes first.
    ///
    /// A report with equal counts does not outrank it: one by a consumer that settles without counting
    /// attempts, if the queue counts no deliveries. It is lost if it comes between the two calls that look
    /// and store, or in the millisecond after. And if two callers forget the same fact at once, both may
    /// count it.
    async fn forget(&self, place: &PartitionId, facts: &[EndedTask]) -> Result<usize> {
        if facts.is_empty() {
            return Ok(0);
        }
        let ids: Vec<_> = facts.iter().map(|fact| fact.id).collect();
        let now = self.ranks(place, &ids).await?;
        let unchanged = facts.iter().zip(now).filter(|(fact, rank)| *rank == Some(fact.end.rank()));
        let over: Vec<_> = unchanged.map(|(fact, _)| (fact.id, Arc::new(forgotten(&fact.end)))).collect();
        if over.is_empty() {
            return Ok(0);
        }
        let stored: Result<Vec<()>> = self.kept()?.record_ended(place, &over).await.into_iter().collect();
        stored?;
        let ids: Vec<_> = over.iter().map(|(id, _)| *id).collect();
        let left = self.ranks(place, &ids).await?;
        let is_done = |over: &TaskEnd, left: Option<u64>| left.is_none_or(|left| left == over.rank());
        Ok(over.iter().zip(left).filter(|((_, over), left)| is_done(over, *left)).count())
    }

    /// Returns the rank of what is kept of each task.
    async fn ranks(&self, place: &PartitionId, ids: &[MessageId]) -> Result<Vec<Option<u64>>> {
        let found = self.kept()?.find_ended(place, ids).await;
        found.into_iter().map(|found| Ok(found?.map(|found| found.end.rank()))).collect()
    }
}

/// What replaces this fact, and none that is newer: that the task is gone as far as that fact knew.
fn forgotten(fact: &TaskEnd) -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_keep(Some(FORGOTTEN_KEPT));
    gone.with_generation(fact.generation).with_attempt(fact.attempt).with_delivery_count(fact.delivery_count)
}

/// Whether something should have been heard of the task before this moment: nothing is heard of a task that
/// waits for its time until it is due, and its fact is kept for that much longer.
fn is_over(fact: &EndedTask, before: SystemTime) -> bool {
    let until = fact.ended_at.checked_add(fact.end.due_in.unwrap_or_default());
    until.is_some_and(|until| until < before)
}
