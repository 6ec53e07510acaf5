//! Ends of deliveries on their way into the file, with what they bring.

use std::sync::Arc;

use anyqueue::adapter::{Action, Lease, Settlement, TaskEnd};
use anyqueue::{Error, PartitionId, Result};

use crate::config::Config;
use crate::ends::NewEnd;
use crate::new_message::NewMessage;

/// A settlement as the writer gets it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) lease: Lease,
    pub(crate) action: Action,
    /// What is stored with it, or why that cannot be.
    pub(crate) brings: Result<Brought>,
}

/// What is stored with the end of a delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    /// The end of its task, which is removed.
    pub(crate) end: Option<NewEnd>,
    /// What is counted of its end.
    pub(crate) counted: Option<Arc<TaskEnd>>,
    pub(crate) then: Vec<NewSuccessor>,
}

/// A successor, ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewSuccessor {
    pub(crate) partition: PartitionId,
    pub(crate) message: NewMessage,
}

impl Ending {
    /// Encodes what it brings, if that is within the limits.
    pub(crate) fn prepare(settlement: &Settlement, config: &Config) -> Self {
        let brings = Brought::prepare(settlement, config);
        Self { lease: settlement.lease.clone(), action: settlement.action.clone(), brings }
    }

    /// One that brings nothing.
    pub(crate) fn release(lease: Lease) -> Self {
        Self { lease, action: Action::Release, brings: Ok(Brought::default()) }
    }

    /// Whether it brings anything, or was to: that may be what makes it fail.
    pub(crate) fn brings_any(&self) -> bool {
        self.brings.as_ref().map_or(true, |brought| brought.counted.is_some() || !brought.then.is_empty())
    }

    /// Whether it brings messages or a result, or was to, which may take more room than the message leaves that is removed.
    pub(crate) fn needs_room(&self) -> bool {
        self.brings.as_ref().map_or(true, Brought::needs_room)
    }

    /// It cannot store what needs room, if it brings that.
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
