//! Forgetting tasks of which the ledger was told, and has not heard since.

use std::time::SystemTime;

use super::Beside;
use super::live::{living, waiting};
use crate::error::Result;
use crate::inspect::Page;
use crate::ledger::{EndedCursor, EndedQuery, EndedTask, Forget, Forgotten};
use crate::partition::PartitionId;

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
    async fn forget(&self, place: &PartitionId, facts: &[EndedTask]) -> Result<usize> {
        if facts.is_empty() {
            return Ok(0);
        }
        let ids: Vec<_> = facts.iter().map(|fact| fact.id).collect();
        let deleted: Result<Vec<_>> = self.kept()?.delete_ended(place, &ids).await.into_iter().collect();
        Ok(deleted?.len())
    }
}

/// Whether the task was to be heard of again before this moment: one that waits for its time is not until it is due, and its fact is kept for as long
/// beyond that.
fn is_over(fact: &EndedTask, before: SystemTime) -> bool {
    let until = fact.ended_at.checked_add(fact.end.due_in.unwrap_or_default());
    until.is_some_and(|until| until < before)
}
