//! Ends of deliveries, and what they bring, prepared for the writer.

use std::sync::Arc;

use anyqueue::adapter::{Action, Lease, Settlement, TaskEnd};
use anyqueue::{Error, PartitionId, Result};

use crate::config::Config;
use crate::ends::NewEnd;
use crate::new_message::NewMessage;

/// A settlement, prepared for the writer.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) lease: Lease,
    pub(crate) action: Action,
    /// What is stored with it, or why it cannot be.
    pub(crate) brings: Result<Brought>,
}

/// What is stored with the end of a delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    /// The end of its task, if it is stored.
    pub(crate) end: Option<NewEnd>,
    /// The end of its task, if it is counted.
    pub(crate) counted: Option<Arc<TaskEnd>>,
    pub(crate) then: Vec<NewSuccessor>,
}

/// A successor, prepared to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewSuccessor {
    pub(crate) partition: PartitionId,
    pub(crate) message: NewMessage,
}

impl Ending {
    /// Encodes what the settlement brings, and checks it against the limits.
    pub(crate) fn prepare(settlement: &Settlement, config: &Config) -> Self {
        let brings = Brought::prepare(settlement, config);
        Self { lease: settlement.lease.clone(), action: settlement.action.clone(), brings }
    }

    /// A release, which brings nothing.
    pub(crate) fn release(lease: Lease) -> Self {
        Self { lease, action: Action::Release, brings: Ok(Brought::default()) }
    }

    /// Whether it brings anything, or was meant to. That may be what makes it fail.
    pub(crate) fn brings_any(&self) -> bool {
        self.brings.as_ref().map_or(true, |brought| brought.counted.is_some() || !brought.then.is_empty())
    }

    /// Whether it brings messages or a result, or was meant to. Those may need more space than the removed
    /// message frees.
    pub(crate) fn needs_room(&self) -> bool {
        self.brings.as_ref().map_or(true, Brought::needs_room)
    }

    /// Makes the settlement fail with this error, if it brings anything that needs space.
    pub(crate) fn refuse_room(&mut self, why: &Error) {
        if self.brings.as_ref().is_ok_and(Brought::needs_room) {
            self.brings = Err(why.clone());
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.brings.as_ref().map_or(0, Brought::bytes)
    }
}

impl Brought {
    fn prepare(settlement: &Settlement, config: &Config) -> Result<Self> {
        let successors = settlement.then.iter().map(|successor| {
            let message = NewMessage::prepare(&successor.message, config.message_bytes, &config.clock)?;
            Ok(NewSuccessor { partition: successor.partition.clone(), message })
        });
        let then = successors.collect::<Result<_>>()?;
        let end = settlement.stored_end().map(NewEnd::prepare).transpose()?;
        Ok(Self { end, counted: settlement.counted_end().cloned(), then })
    }

    fn needs_room(&self) -> bool {
        !self.then.is_empty() || self.end.as_ref().is_some_and(NewEnd::has_result)
    }

    fn bytes(&self) -> usize {
        let then = self.then.iter().map(|successor| successor.message.body_bytes());
        self.end.as_ref().map_or(0, NewEnd::bytes) + then.sum::<usize>()
    }
}
