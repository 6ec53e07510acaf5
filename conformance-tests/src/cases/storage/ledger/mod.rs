//! The ledger: what is kept about tasks that have ended.

pub(super) mod counted;
pub(super) mod fenced;
pub(super) mod filtered;
pub(super) mod kept;
pub(super) mod killed;
pub(super) mod life;
pub(super) mod merged;
pub(super) mod removed;
pub(super) mod stored;
pub(super) mod told;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{
    Action, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, RawDelivery, Settlement, TaskEnd,
};
use anyqueue::{EndState, MAX_PAGE, MessageData, MessageId, Page, PartitionId, Result};

use crate::clause::Clause;
use crate::context::{Client, Context, settlement};
use crate::need::Need;
use crate::verdict::CaseResult;

const NEEDS: &[Need] = &[Need::Ledger];

/// More than any of these cases counts.
const MANY: u64 = 1_000_000;

/// The ledger of one partition, as one client sees it. An answer that no correct backend returns ends the
/// case.
#[derive(Clone, Copy)]
struct Ledger<'a> {
    c: &'a Context,
    storage: &'a dyn LedgerQueueStorage,
    p: &'a PartitionId,
}

impl<'a> Ledger<'a> {
    fn of(c: &'a Context, client: &'a Client, p: &'a PartitionId) -> CaseResult<Self> {
        let missing = || c.failed(Clause::EndStored, &[], "a ledger, as declared", "`ledger()` returns None");
        Ok(Self { c, storage: client.storage().ledger().ok_or_else(missing)?, p })
    }

    /// Returns the ledger of the first client.
    fn first(c: &'a Context, p: &'a PartitionId) -> CaseResult<Self> {
        Self::of(c, c.client(), p)
    }

    /// Returns what is found by these ids, in order.
    async fn find(&self, ids: &[MessageId]) -> CaseResult<Vec<Option<EndedTask>>> {
        let found = self.each("finding", ids.len(), self.storage.find_ended(self.p, ids).await)?;
        for (id, found) in ids.iter().zip(&found) {
            let right = found.as_ref().is_none_or(|found| found.id == *id);
            self.c.check(
                Clause::EndedTold,
                &[*id],
                right,
                "the end of the task that was asked for",
                format!("{found:?}"),
            )?;
        }
        Ok(found)
    }

    /// Returns the end that must be there.
    async fn found(&self, clause: Clause, id: MessageId) -> CaseResult<EndedTask> {
        let found = self.find(&[id]).await?.pop().flatten();
        found.ok_or_else(|| self.c.failed(clause, &[id], "the end of the task", "none is found"))
    }

    /// Judges that these tasks have ended in this way, and how often each is listed.
    async fn has(&self, clause: Clause, expected: &[(MessageId, TaskEnd)]) -> CaseResult {
        let ids: Vec<_> = expected.iter().map(|(id, _)| *id).collect();
        for ((id, end), found) in expected.iter().zip(self.find(&ids).await?) {
            let seen = found.as_ref().map(bare);
            self.c.equal(clause, &[*id], "the end", &Some(end.clone().with_keep(None)), &seen)?;
        }
        self.lists_once(clause, &ids).await
    }

    /// Judges that each of these is listed exactly once.
    async fn lists_once(&self, clause: Clause, ids: &[MessageId]) -> CaseResult {
        let mut times = HashMap::new();
        for ended in self.list(&EndedQuery::default()).await? {
            *times.entry(ended.id).or_insert(0) += 1;
        }
        for id in ids {
            let seen = times.get(id).copied().unwrap_or(0);
            self.c.equal(clause, &[*id], "how often it is listed:", &1, &seen)?;
        }
        Ok(())
    }

    /// Judges that no call returns these.
    async fn lacks(&self, clause: Clause, ids: &[MessageId], why: &str) -> CaseResult {
        let listed = self.list(&EndedQuery::default()).await?;
        for (id, found) in ids.iter().zip(self.find(ids).await?) {
            let told = format!("no end of {}: {why}", self.c.label(*id));
            self.c.check(clause, &[*id], found.is_none(), told.as_str(), format!("{found:?}"))?;
            let listed = listed.iter().find(|ended| ended.id == *id);
            self.c.check(clause, &[*id], listed.is_none(), told, format!("it is listed: {listed:?}"))?;
        }
        Ok(())
    }

    /// Judges that there is nothing at all.
    async fn is_empty(&self, clause: Clause, why: &str) -> CaseResult {
        let listed = self.list(&EndedQuery::default()).await?;
        self.c.check(clause, &[], listed.is_empty(), format!("no end: {why}"), format!("{listed:?}"))?;
        let count = self.count(&EndedQuery::default(), MANY).await?;
        self.c.equal(clause, &[], &format!("no end is counted: {why}:"), &0, &count)
    }

    /// Returns all matching ends, in pages of the largest size.
    async fn list(&self, query: &EndedQuery) -> CaseResult<Vec<EndedTask>> {
        self.pages(query, MAX_PAGE).await
    }

    /// Returns all matching ends, in pages of this size.
    async fn pages(&self, query: &EndedQuery, limit: usize) -> CaseResult<Vec<EndedTask>> {
        let (mut all, mut after): (Vec<EndedTask>, _) = (Vec::new(), None);
        loop {
            let page = self.page(query, limit, after).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.cursor());
            all.extend(page);
        }
    }

    /// Returns a page, which must be in order, begin after the cursor, and have no results.
    async fn page(
        &self,
        query: &EndedQuery,
        limit: usize,
        after: Option<EndedCursor>,
    ) -> CaseResult<Vec<EndedTask>> {
        let page = self.storage.ended(self.p, query, Page::of(limit).after(after)).await;
        let page = self.c.ok(Clause::EndedTold, "a page of what has ended", page)?;
        let ids: Vec<_> = page.iter().map(|ended| ended.id).collect();
        let told = format!("at most {limit} on a page");
        self.c.check(Clause::EndedTold, &[], page.len() <= limit, told, page.len().to_string())?;
        let cursors: Vec<_> = after.into_iter().chain(page.iter().map(EndedTask::cursor)).collect();
        let ordered = cursors.is_sorted_by(|a, b| a > b);
        self.c.check(
            Clause::EndedTold,
            &ids,
            ordered,
            "the newest first, by moment, then by id, from the cursor on",
            format!("{cursors:?}"),
        )?;
        let bare = page.iter().all(|ended| ended.end.result.is_none());
        self.c.check(Clause::EndedTold, &ids, bare, "a list without results", "results in it")?;
        let matching = page.iter().all(|ended| query.matches(ended.end.state, ended.ended_at));
        self.c.check(Clause::EndedTold, &ids, matching, format!("only {query:?}"), format!("{page:?}"))?;
        Ok(page)
    }

    async fn count(&self, query: &EndedQuery, cap: u64) -> CaseResult<u64> {
        let count = self.storage.count_ended(self.p, query, cap).await;
        self.c.ok(Clause::EndedTold, "counting what has ended", count)
    }

    async fn record(&self, ends: &[(MessageId, TaskEnd)]) -> CaseResult {
        let ends: Vec<_> = ends.iter().map(|(id, end)| (*id, Arc::new(end.clone()))).collect();
        let answers = self.storage.record_ended(self.p, &ends).await;
        self.each("recording", ends.len(), answers).map(drop)
    }

    async fn delete(&self, ids: &[MessageId]) -> CaseResult<Vec<bool>> {
        self.each("deleting", ids.len(), self.storage.delete_ended(self.p, ids).await)
    }

    async fn purge(&self, limit: usize) -> CaseResult<usize> {
        let purged = self.storage.purge_ended(limit).await;
        let purged = self.c.ok(Clause::EndsRemoved, "purging what has lapsed", purged)?;
        let told = format!("at most {limit} purged");
        self.c.check(Clause::EndsRemoved, &[], purged <= limit, told, purged.to_string())?;
        Ok(purged)
    }

    /// Returns one answer for each item, none of them an error.
    fn each<T>(&self, what: &str, expected: usize, answers: Vec<Result<T>>) -> CaseResult<Vec<T>> {
        self.c.equal(
            Clause::EndedTold,
            &[],
            &format!("the answers of {what}:"),
            &expected,
            &answers.len(),
        )?;
        let all = answers.into_iter().collect::<Result<Vec<_>>>();
        self.c.ok(Clause::EndedTold, what, all)
    }
}

/// Returns the end without how long it is to be kept, which `expires_at` shows.
fn bare(ended: &EndedTask) -> TaskEnd {
    TaskEnd::clone(&ended.end).with_keep(None)
}

/// Returns a settlement that removes, with this end.
fn ending(delivery: &RawDelivery, end: &TaskEnd) -> Settlement {
    settlement(delivery, Action::Remove).with_end(Some(Arc::new(end.clone())))
}

/// Returns an end that its number distinguishes from others.
fn numbered(number: usize) -> TaskEnd {
    let state = EndState::ALL.into_iter().cycle().nth(number % EndState::ALL.len());
    TaskEnd::new(state.unwrap_or(EndState::Succeeded))
        .with_attempt(u32::try_from(number).unwrap_or(u32::MAX))
        .with_result(number.to_string())
}

/// Pushes as many tasks as there are ends, and ends them with these, in batches as large as the backend
/// accepts.
async fn end_all(c: &Context, p: &PartitionId, ends: &[TaskEnd]) -> CaseResult<Vec<(MessageId, TaskEnd)>> {
    let messages = c.messages(ends.len(), |_, message| message);
    c.client().push(p, &messages).await?;
    let held = c.client().take(p, ends.len()).await?;
    let batch: Vec<_> = held.iter().zip(ends).map(|(held, end)| ending(held, end)).collect();
    c.client().settle(&batch).await?;
    Ok(held.iter().zip(ends).map(|(held, end)| (held.lease.id, end.clone())).collect())
}

/// Ends one more task.
async fn end_one(c: &Context, p: &PartitionId, end: &TaskEnd) -> CaseResult<MessageId> {
    let ended = end_all(c, p, std::slice::from_ref(end)).await?;
    ended.first().map(|(id, _)| *id).ok_or_else(|| c.failed(Clause::EndStored, &[], "an end", "none"))
}

/// Ends this many tasks, each with an end of its own.
async fn end_numbered(c: &Context, p: &PartitionId, n: usize) -> CaseResult<Vec<(MessageId, TaskEnd)>> {
    end_all(c, p, &(0..n).map(numbered).collect::<Vec<_>>()).await
}

/// Pushes one message and holds it.
async fn hold(c: &Context, p: &PartitionId, message: MessageData) -> CaseResult<RawDelivery> {
    c.client().push(p, &[message]).await?;
    let [held] = c.client().take_exact(p).await?;
    Ok(held)
}

fn ids_of(ended: &[(MessageId, TaskEnd)]) -> Vec<MessageId> {
    ended.iter().map(|(id, _)| *id).collect()
}

fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort_unstable();
    ids
}

/// Selects ends in one of these states.
fn in_states(states: &[EndState]) -> EndedQuery {
    let mut query = EndedQuery::default();
    query.states = states.to_vec();
    query
}

/// Selects ends in this period.
fn between(since: Option<SystemTime>, before: Option<SystemTime>) -> EndedQuery {
    let mut query = EndedQuery::default();
    (query.since, query.before) = (since, before);
    query
}

/// Longer than any case lasts.
const LONG: Option<Duration> = Some(Duration::from_hours(1));
