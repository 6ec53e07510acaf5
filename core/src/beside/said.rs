//! What is reported to the ledger about a task: facts, in the form of ends.

use std::time::SystemTime;

use crate::ledger::{EndState, TaskEnd, attempts, attempts_of_dead, ran_of_dead, text};
use crate::message::{MessageData, header};
use crate::partition::PartitionId;
use crate::storage::{Action, Settlement};

/// What a fact says. It is stored as the state of an end; of two facts with equal counts the later one
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The task was pushed, or put back from the dead letters.
    Accepted,
    /// The task went back to the queue after an attempt.
    Attempted,
    /// The task is a dead letter.
    Dead,
    /// The task's message is gone.
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

    pub(super) const fn of(fact: &TaskEnd) -> Self {
        match fact.state {
            EndState::Cancelled => Self::Accepted,
            EndState::Failed => Self::Attempted,
            EndState::TimedOut => Self::Dead,
            EndState::Succeeded => Self::Gone,
        }
    }
}

pub(super) fn accepted(message: &MessageData) -> TaskEnd {
    let mut fact = TaskEnd::new(Said::Accepted.stored()).about(message);
    fact.attempt = attempts(message.headers());
    let delay = message.delay(SystemTime::UNIX_EPOCH);
    fact.due_in = (!delay.is_zero()).then_some(delay);
    fact
}

/// The fact that a message was pushed to this partition. A message pushed to dead letters, as when a queue is
/// moved, is one of them.
pub(super) fn pushed(partition: &PartitionId, message: &MessageData) -> TaskEnd {
    let accepted = accepted(message);
    if !partition.is_dead_letters() {
        return accepted;
    }
    let headers = message.headers();
    TaskEnd {
        state: Said::Dead.stored(),
        due_in: None,
        reason: text(headers, header::DEAD_REASON),
        attempt: attempts_of_dead(headers),
        worker: text(headers, header::DEAD_WORKER),
        ran: ran_of_dead(headers).unwrap_or_default(),
        ..accepted
    }
}

/// The fact that a task is gone because its message was removed, which outranks everything.
pub(super) fn gone() -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_generation(u32::MAX).with_attempt(u32::MAX);
    gone.with_delivery_count(u32::MAX)
}

/// The fact that a task is gone since this end or other fact of it. Whatever comes of it later outranks this.
pub(super) fn gone_with(last: &TaskEnd) -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_generation(last.generation).with_attempt(last.attempt);
    gone.with_delivery_count(last.delivery_count)
}

/// What a settlement that has arrived says about its own task.
pub(super) fn said(settlement: &Settlement) -> Vec<(PartitionId, TaskEnd)> {
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
            // If it was put back elsewhere, it is no longer dead here.
            let left = settlement.end.as_ref().filter(|_| *to != here);
            let left = left.map(|last| (here.clone(), gone_with(last)));
            at(to, Said::Accepted).into_iter().chain(left).collect()
        }
    }
}
