//! What the ledger is told of a task: facts, in the form of ends.

use std::time::SystemTime;

use crate::ledger::{EndState, TaskEnd, attempts, attempts_of_dead, text};
use crate::message::{MessageData, header};
use crate::partition::PartitionId;
use crate::storage::{Action, Settlement};

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

/// What is known of a message that was pushed to this partition. What is pushed to dead letters, as when a queue is moved, is one of them.
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
        ..accepted
    }
}

/// That a task is gone outranks everything: its message was removed.
pub(super) fn gone() -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_generation(u32::MAX).with_attempt(u32::MAX);
    gone.with_delivery_count(u32::MAX)
}

/// That a task is gone since this end, or other fact, of it. Whatever comes of it later outranks that.
pub(super) fn gone_with(last: &TaskEnd) -> TaskEnd {
    let gone = TaskEnd::new(Said::Gone.stored()).with_generation(last.generation).with_attempt(last.attempt);
    gone.with_delivery_count(last.delivery_count)
}

/// What a settlement that has arrived says of its own task.
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
            // Put back elsewhere, it is no longer dead here.
            let left = settlement.end.as_ref().filter(|_| *to != here);
            let left = left.map(|last| (here.clone(), gone_with(last)));
            at(to, Said::Accepted).into_iter().chain(left).collect()
        }
    }
}
