//! Ends of deliveries on their way into the file, with the messages that they bring.

use anyqueue::adapter::{Action, Lease, Settlement};
use anyqueue::{Error, PartitionId, Result};

use crate::config::Config;
use crate::new_message::NewMessage;

/// A settlement as the writer gets it.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) lease: Lease,
    pub(crate) action: Action,
    /// What is stored with it, or why that cannot be.
    pub(crate) then: Result<Vec<NewSuccessor>>,
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
        let successors = settlement.then.iter().map(|successor| {
            let message = NewMessage::prepare(&successor.message, config.message_bytes, &config.clock)?;
            Ok(NewSuccessor { partition: successor.partition.clone(), message })
        });
        let then = successors.collect();
        Self { lease: settlement.lease.clone(), action: settlement.action.clone(), then }
    }

    /// One that brings nothing.
    pub(crate) fn release(lease: Lease) -> Self {
        Self { lease, action: Action::Release, then: Ok(Vec::new()) }
    }

    /// Whether it brings messages, or was to.
    pub(crate) fn has_successors(&self) -> bool {
        self.then.as_ref().map_or(true, |then| !then.is_empty())
    }

    /// It cannot store what it brings, if it brings anything.
    pub(crate) fn refuse_successors(&mut self, why: &Error) {
        if self.then.as_ref().is_ok_and(|then| !then.is_empty()) {
            self.then = Err(why.clone());
        }
    }

    pub(crate) fn body_bytes(&self) -> usize {
        let then = self.then.iter().flatten();
        then.map(|successor| successor.message.body_bytes()).sum()
    }
}
