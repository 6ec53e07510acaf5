//! Tasks that have not ended, reported to the ledger because the queue cannot be browsed.
//!
//! A fact is stored like an end, in a partition of the ledger for facts alone: so every ledger that merges
//! ends merges facts, in whatever order and however often they arrive. The fact with the greatest rank
//! remains: by generation, attempt, deliveries, and what it says.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::Beside;
use super::said::{Said, accepted, gone, gone_with, pushed, said};
use super::waiting::Fact;
use crate::capabilities::Dedup;
use crate::error::{Error, Result};
use crate::inspect::Page;
use crate::ledger::{
    EndState, EndedCursor, EndedQuery, EndedTask, FACTS_MARK, Forget, Forgotten, LivePage, LiveTasks, Task,
    TaskEnd, TaskState, is_of_facts,
};
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;
use crate::storage::{PushOutcome, SettleOutcome, Settlement};

/// How long it is known that a task is gone, apart from its end: longer than facts about it are in flight.
const GONE_KEPT: Duration = Duration::from_mins(10);

/// Returns where the ledger keeps facts of this partition; `None` if its name is too long.
fn place(partition: &PartitionId) -> Option<PartitionId> {
    PartitionId::new(&format!("{}{FACTS_MARK}", partition.name())).ok()
}

impl Beside {
    /// Why nothing can be pushed to this partition, if so: the ledger would mix its ends with facts of
    /// another.
    pub(super) fn reserved(&self, partition: &PartitionId) -> Option<Error> {
        let is_reserved = self.facts.is_some() && is_of_facts(partition);
        let text = || {
            format!(
                "no partition's name ends with {FACTS_MARK} where facts of tasks are kept beside the queue"
            )
        };
        is_reserved.then(|| Error::invalid(text()))
    }

    /// The fact as it is kept.
    fn kept_fact(&self, partition: &PartitionId, id: MessageId, fact: TaskEnd) -> Option<Fact> {
        let is_gone = Said::of(&fact) == Said::Gone;
        let keep = if is_gone { GONE_KEPT } else { self.live_kept };
        let keep = keep.saturating_add(fact.due_in.unwrap_or_default());
        Some((place(partition)?, id, Arc::new(fact.with_keep(Some(keep)))))
    }

    /// Reports pushed messages to the ledger. A message that the queue may have dropped silently, for its
    /// key, is known from its first attempt on.
    pub(super) fn note_pushed(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
        answers: &[Result<PushOutcome>],
    ) {
        let Some(facts) = &self.facts else { return };
        let drops_untold = matches!(self.capabilities.dedup, Dedup::Window(_));
        let is_stored = |(message, answer): &(&MessageData, &Result<PushOutcome>)| {
            let is_sure = !drops_untold || message.options().dedup_key.is_none();
            is_sure && matches!(answer, Ok(PushOutcome::Stored(_)))
        };
        let stored = messages.iter().zip(answers).filter(is_stored).map(|(message, _)| message);
        facts.note(stored.filter_map(|it| self.kept_fact(partition, it.id(), pushed(partition, it))));
    }

    /// Reports settlements to the ledger, and the successors that came with them.
    pub(super) fn note_settled(&self, settlements: &[Settlement], answers: &[Result<SettleOutcome>]) {
        let Some(facts) = &self.facts else { return };
        let settled = |answer: &Result<SettleOutcome>| matches!(answer, Ok(SettleOutcome::Settled));
        let mut noted = Vec::new();
        for (settlement, _) in settlements.iter().zip(answers).filter(|(_, answer)| settled(answer)) {
            let id = settlement.lease.id;
            let said = said(settlement).into_iter();
            noted.extend(said.filter_map(|(partition, fact)| self.kept_fact(&partition, id, fact)));
            // Successors are never dropped for their keys.
            let then = settlement.then.iter();
            noted.extend(then.filter_map(|next| {
                self.kept_fact(&next.partition, next.message.id(), accepted(&next.message))
            }));
        }
        facts.note(noted);
    }

    /// Reports to the ledger that these tasks are gone.
    pub(super) fn note_gone(&self, partition: &PartitionId, ids: impl IntoIterator<Item = MessageId>) {
        let Some(facts) = &self.facts else { return };
        facts.note(ids.into_iter().filter_map(|id| self.kept_fact(partition, id, gone())));
    }

    /// Returns the facts whose tasks have not ended: an end is stored before its fact is, and a late fact may
    /// come after both. For tasks that have ended, reports once more that they are gone: if that report was
    /// lost, they would be shown again once their ends have lapsed.
    async fn not_ended(
        &self,
        partition: &PartitionId,
        facts: Vec<EndedTask>,
    ) -> Result<Vec<Result<Option<Task>>>> {
        if facts.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = facts.iter().map(|fact| fact.id).collect();
        let ends = self.kept()?.find_ended(partition, &ids).await;
        let now = SystemTime::now();
        let (mut tasks, mut ended) = (Vec::with_capacity(facts.len()), Vec::new());
        for (fact, end) in facts.into_iter().zip(ends) {
            let end = end.map(|end| end.filter(|end| counts(&end.end) >= counts(&fact.end)));
            if let Ok(Some(end)) = &end
                && Said::of(&fact.end) != Said::Gone
            {
                ended.push((fact.id, gone_with(&end.end)));
            }
            tasks.push(end.map(|end| if end.is_some() { None } else { task(partition, fact, now) }));
        }
        self.note(ended.into_iter().filter_map(|(id, gone)| self.kept_fact(partition, id, gone)));
        Ok(tasks)
    }

    /// Queues facts for sending, if there are any.
    fn note(&self, facts: impl Iterator<Item = Fact>) {
        let mut facts = facts.peekable();
        if let Some(sender) = self.facts.as_ref().filter(|_| facts.peek().is_some()) {
            sender.note(facts);
        }
    }
}

/// The rank without its last part, the state: of an end and a fact with equal counts, the end is the later
/// one.
fn counts(end: &TaskEnd) -> u64 {
    end.rank() >> u8::BITS
}

/// Returns the task that a fact is about; `None` if it is gone.
fn task(partition: &PartitionId, fact: EndedTask, now: SystemTime) -> Option<Task> {
    let (said, said_at) = (Said::of(&fact.end), fact.ended_at);
    let due_at = fact.end.due_in.and_then(|due_in| said_at.checked_add(due_in)).filter(|due| *due > now);
    let mut task = Task::ended(partition.clone(), fact);
    (task.expires_at, task.waited, task.log) = (None, None, None);
    match said {
        Said::Gone => return None,
        Said::Dead => {
            task.state = TaskState::Failed;
            // Of one that no handler had, nothing is known.
            task.ran = task.ran.filter(|ran| !ran.is_zero());
        }
        Said::Accepted | Said::Attempted => {
            task.state = if due_at.is_some() { TaskState::Scheduled } else { TaskState::Queued };
            (task.due_at, task.ended_at, task.ran) = (due_at, None, None);
        }
    }
    Some(task)
}

#[async_trait]
impl LiveTasks for Beside {
    async fn live_page(&self, partition: &PartitionId, page: Page<EndedCursor>) -> Result<LivePage> {
        let Some(place) = place(partition) else { return Ok(LivePage::default()) };
        let query = EndedQuery { states: living(), ..EndedQuery::default() };
        let facts = self.kept()?.ended(&place, &query, page).await?;
        let next = facts.last().map(EndedTask::cursor);
        let tasks = self.not_ended(partition, facts).await?;
        let tasks = tasks.into_iter().filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        Ok(LivePage { tasks, next })
    }

    async fn find_live(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<Task>>> {
        let (Some(place), Ok(ledger)) = (place(partition), self.kept()) else {
            return ids.iter().map(|_| Ok(None)).collect();
        };
        let found: Result<Vec<_>> = ledger.find_ended(&place, ids).await.into_iter().collect();
        let told = match found {
            Ok(found) => self.not_ended(partition, found.into_iter().flatten().collect()).await,
            Err(error) => Err(error),
        };
        match told {
            Ok(told) => in_order(ids, told),
            Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn forget_live(
        &self,
        partition: &PartitionId,
        forget: &Forget,
        page: Page<EndedCursor>,
    ) -> Result<Forgotten> {
        let Some(place) = place(partition) else { return Ok(Forgotten::default()) };
        self.forget_page(&place, forget, page).await
    }
}

/// The states that facts about waiting tasks are stored as.
pub(super) fn waiting() -> Vec<EndState> {
    [Said::Accepted, Said::Attempted].map(Said::stored).to_vec()
}

/// The states that facts about tasks that are not gone are stored as.
pub(super) fn living() -> Vec<EndState> {
    [Said::Accepted, Said::Attempted, Said::Dead].map(Said::stored).to_vec()
}

/// Returns what was found for these ids, in their order.
fn in_order(ids: &[MessageId], told: Vec<Result<Option<Task>>>) -> Vec<Result<Option<Task>>> {
    let mut tasks = Vec::new();
    for told in told {
        match told {
            Ok(task) => tasks.extend(task),
            Err(error) => return ids.iter().map(|_| Err(error.clone())).collect(),
        }
    }
    ids.iter().map(|id| Ok(tasks.iter().find(|task| task.id == *id).cloned())).collect()
}
