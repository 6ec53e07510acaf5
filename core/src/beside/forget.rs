//! Forgetting tasks of which the ledger was told, and has not heard since.

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

/// How long the ledger keeps what takes the place of a fact that is forgotten: the shortest time that is kept at all. What has lapsed outranks nothing.
const FORGOTTEN_KEPT: Duration = Duration::from_millis(1);

impl Beside {
    /// Forgets what is meant of a page of the facts that are kept here, or counts it.
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

    /// Returns how many were forgotten.
    ///
    /// Something newer may be told of some meanwhile: of one that becomes a dead letter, say, nothing is ever told again. A deletion by id would take that with it,
    /// unseen. So what is forgotten is outranked, for a moment, by that it is gone: in one step of the ledger, and what is newer outranks that in turn,
    /// whichever comes first.
    ///
    /// What is told with equal counts does not: where the queue counts no deliveries, by whoever settles without counting attempts. It is lost if it comes between the
    /// two calls that look and store, or in the millisecond after. And what two forget just there at once may count for both.
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

    /// The rank of what is kept of each.
    async fn ranks(&self, place: &PartitionId, ids: &[MessageId]) -> Result<Vec<Option<u64>>> {
        let found = self.kept()?.find_ended(place, ids).await;
        found.into_iter().map(|found| Ok(found?.map(|found| found.end.rank()))).collect()
    }
}

/// What takes the place of this fact, and of none that is newer: that the task is gone as far as that one knew.
fn forgotten(fact: &TaskEnd) -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_keep(Some(FORGOTTEN_KEPT));
    gone.with_generation(fact.generation).with_attempt(fact.attempt).with_delivery_count(fact.delivery_count)
}

/// Whether the task was to be heard of again before this moment: one that waits for its time is not until it is due, and its fact is kept for as long
/// beyond that.
fn is_over(fact: &EndedTask, before: SystemTime) -> bool {
    let until = fact.ended_at.checked_add(fact.end.due_in.unwrap_or_default());
    until.is_some_and(|until| until < before)
}
