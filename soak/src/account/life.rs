//! The history of one message, as its pushers and consumers saw it.

use anyqueue::EndState;

/// A consumer's statement of how the task ends, given with one settlement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saying {
    /// A different number for each statement.
    pub(super) number: u64,
    pub(super) state: EndState,
    /// Which delivery this was, if they are counted.
    pub(super) delivery: Option<u32>,
    pub(super) is_confirmed: bool,
}

#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Life {
    pub(super) attempted: bool,
    pub(super) acknowledged: bool,
    /// A push got no reply.
    pub(super) unanswered: bool,
    /// Such a push was repeated, or a move that is not atomic got no reply, so that there may be a second
    /// copy.
    pub(super) doubtful: bool,
    /// The message is not due before the run is over.
    pub(super) is_parked: bool,
    /// How the task must end, if that is fixed from the beginning: as a dead letter if it is to fail.
    pub(super) bound: Option<EndState>,
    pub(super) deliveries: u32,
    pub(super) removals: u32,
    pub(super) deaths: u32,
    /// The result of a settlement that removes the message or makes it a dead letter is unknown.
    pub(super) end_unknown: bool,
    /// The message was delivered again after its removal was confirmed.
    pub(super) ghost: bool,
    pub(super) found_dead: bool,
    /// What consumers said about its end.
    pub(super) said: Vec<Saying>,
}

impl Life {
    /// Returns whether the message is known to be in the queue, and due to come.
    pub(super) fn is_unsettled(&self) -> bool {
        self.acknowledged && !self.is_parked && self.removals + self.deaths == 0 && !self.end_unknown
    }

    /// Returns whether the message must have ended, and there is no sign of that.
    pub(super) fn is_lost(&self) -> bool {
        let has_end = self.removals > 0 || self.found_dead || self.end_unknown;
        self.acknowledged && !self.is_parked && !has_end
    }

    /// Returns the statement with this number.
    pub(super) fn said(&self, number: u64) -> Option<&Saying> {
        self.said.iter().find(|saying| saying.number == number)
    }
}
