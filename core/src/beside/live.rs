//! Tasks that have not ended, of which the ledger is told because the queue cannot be browsed.
//!
//! A fact is stored as an end is, in a partition of the ledger for facts alone: so every ledger that joins ends joins facts, whatever their order and
//! however often they come. The one of the greatest rank stays, by generation, attempt, deliveries, and what it says.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::Beside;
use super::facts::Fact;
use crate::error::{Error, Result};
use crate::inspect::Page;
use crate::ledger::{
    EndState, EndedCursor, EndedQuery, EndedTask, Forget, Forgotten, LivePage, LiveTasks, Task, TaskEnd,
    TaskState, attempts,
};
use crate::message::{MessageData, MessageId};
use crate::partition::PartitionId;
use crate::storage::{Action, PushOutcome, SettleOutcome, Settlement};

/// What the name of a partition of facts ends with.
const MARK: &str = ".-live";
/// How long is known that a task is gone, beside its end: longer than facts of it are on their way.
const GONE_KEPT: Duration = Duration::from_mins(10);

/// What a fact says, by the state of the end as which it is stored. Of two with equal counts the later one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It was pushed, or put back from the dead letters.
    Accepted,
    /// It went back to the queue after an attempt.
    Attempted,
    /// It is a dead letter.
    Dead,
    /// Its message is gone.
    Gone,
}

impl Said {
    pub(super) const fn stored(self) -> EndState {
        match self {
            Self::Accepted => EndState::Cancelled,
            Self::Attempted => EndState::Failed,
            Self::Dead => EndState::TimedOut,
            Self::Gone => EndState::Succeeded,
        }
    }

    const fn of(stored: EndState) -> Self {
        match stored {
            EndState::Cancelled => Self::Accepted,
            EndState::Failed => Self::Attempted,
            EndState::TimedOut => Self::Dead,
            EndState::Succeeded => Self::Gone,
        }
    }
}

/// Where the ledger keeps facts of this partition; nowhere if its name is too long.
fn place(partition: &PartitionId) -> Option<PartitionId> {
    PartitionId::new(&format!("{}{MARK}", partition.name())).ok()
}

fn accepted(message: &MessageData) -> TaskEnd {
    let mut fact = TaskEnd::new(Said::Accepted.stored()).about(message);
    fact.attempt = attempts(message.headers());
    let delay = message.delay(SystemTime::UNIX_EPOCH);
    fact.due_in = (!delay.is_zero()).then_some(delay);
    fact
}

/// That a task is gone outranks everything: its message was removed.
fn gone() -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_generation(u32::MAX).with_attempt(u32::MAX);
    gone.with_delivery_count(u32::MAX)
}

/// What a settlement that has arrived says of its own task.
fn said(settlement: &Settlement) -> Vec<(PartitionId, TaskEnd)> {
    let here = settlement.lease.partition.live();
    let told = |said: Said| {
        let told = settlement.end.as_ref().map(|told| TaskEnd::clone(told));
        told.map(|told| TaskEnd { state: said.stored(), ..told })
    };
    let at = |partition: &PartitionId, said| told(said).map(|fact| (partition.clone(), fact));
    match &settlement.action {
        Action::Remove => vec![(here, gone())],
        Action::Release => Vec::new(),
        Action::Retry | Action::Postpone { .. } => at(&here, Said::Attempted).into_iter().collect(),
        Action::Move { to, .. } if to.is_dead_letters() => at(&here, Said::Dead).into_iter().collect(),
        Action::Move { to, .. } => {
            // Put back elsewhere, it is no longer dead here.
            let left = at(&here, Said::Gone).filter(|_| *to != here);
            at(to, Said::Accepted).into_iter().chain(left).collect()
        }
    }
}

impl Beside {
    /// Why nothing can be pushed to this partition: the ledger would mix its ends with facts of another.
    pub(super) fn reserved(&self, partition: &PartitionId) -> Option<Error> {
        let is_reserved = self.facts.is_some() && partition.name().ends_with(MARK);
        let text =
            || format!("no partition's name ends with {MARK} where facts of tasks are kept beside the queue");
        is_reserved.then(|| Error::invalid(text()))
    }

    /// A fact, as it is kept.
    fn kept_fact(&self, partition: &PartitionId, id: MessageId, fact: TaskEnd) -> Option<Fact> {
        let is_gone = Said::of(fact.state) == Said::Gone;
        let keep = if is_gone { GONE_KEPT } else { self.live_kept };
        let keep = keep.saturating_add(fact.due_in.unwrap_or_default());
        Some((place(partition)?, id, Arc::new(fact.with_keep(Some(keep)))))
    }

    /// Tells the ledger of what was pushed.
    pub(super) fn note_pushed(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
        answers: &[Result<PushOutcome>],
    ) {
        let Some(facts) = &self.facts else { return };
        let stored = |answer: &Result<PushOutcome>| matches!(answer, Ok(PushOutcome::Stored(_)));
        let pushed = messages.iter().zip(answers).filter(|(_, answer)| stored(answer));
        facts.note(
            pushed.filter_map(|(message, _)| self.kept_fact(partition, message.id(), accepted(message))),
        );
    }

    /// Tells the ledger of what was settled, and of what came with it.
    pub(super) fn note_settled(&self, settlements: &[Settlement], answers: &[Result<SettleOutcome>]) {
        let Some(facts) = &self.facts else { return };
        let settled = |answer: &Result<SettleOutcome>| matches!(answer, Ok(SettleOutcome::Settled));
        let mut noted = Vec::new();
        for (settlement, _) in settlements.iter().zip(answers).filter(|(_, answer)| settled(answer)) {
            let id = settlement.lease.id;
            let said = said(settlement).into_iter();
            noted.extend(said.filter_map(|(partition, fact)| self.kept_fact(&partition, id, fact)));
            let then = settlement.then.iter();
            noted.extend(then.filter_map(|next| {
                self.kept_fact(&next.partition, next.message.id(), accepted(&next.message))
            }));
        }
        facts.note(noted);
    }

    /// Tells the ledger that these tasks are gone.
    pub(super) fn note_gone(&self, partition: &PartitionId, ids: impl IntoIterator<Item = MessageId>) {
        let Some(facts) = &self.facts else { return };
        facts.note(ids.into_iter().filter_map(|id| self.kept_fact(partition, id, gone())));
    }

    /// Those of these facts whose tasks have not ended: an end is stored before its fact is, and a late fact may come after both.
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
        let living = |(fact, end): (EndedTask, Result<Option<EndedTask>>)| -> Result<Option<Task>> {
            let has_ended = end?.is_some_and(|end| counts(&end.end) >= counts(&fact.end));
            Ok(if has_ended { None } else { task(partition, fact, now) })
        };
        Ok(facts.into_iter().zip(ends).map(living).collect())
    }
}

/// The rank without its last part, the state: of an end and a fact with equal counts the end is the later.
fn counts(end: &TaskEnd) -> u64 {
    end.rank() >> u8::BITS
}

/// The task of which this was said; nothing if it is gone.
fn task(partition: &PartitionId, fact: EndedTask, now: SystemTime) -> Option<Task> {
    let (said, said_at) = (Said::of(fact.end.state), fact.ended_at);
    let due_at = fact.end.due_in.and_then(|due_in| said_at.checked_add(due_in)).filter(|due| *due > now);
    let mut task = Task::ended(partition.clone(), fact);
    (task.expires_at, task.waited, task.ran, task.log) = (None, None, None, None);
    match said {
        Said::Gone => return None,
        Said::Dead => task.state = TaskState::Failed,
        Said::Accepted | Said::Attempted => {
            task.state = if due_at.is_some() { TaskState::Scheduled } else { TaskState::Queued };
            (task.due_at, task.ended_at) = (due_at, None);
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

/// The states as which facts of tasks are stored that wait.
pub(super) fn waiting() -> Vec<EndState> {
    [Said::Accepted, Said::Attempted].map(Said::stored).to_vec()
}

/// The states as which facts of tasks are stored that are not gone.
pub(super) fn living() -> Vec<EndState> {
    [Said::Accepted, Said::Attempted, Said::Dead].map(Said::stored).to_vec()
}

/// What was found of these ids, in their order.
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
