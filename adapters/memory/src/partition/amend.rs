//! Amending a message that waits.

use std::time::{Instant, SystemTime};

use anyqueue::{Amend, AmendOutcome, MessageId};

use super::{Message, Partition, Place, after};

impl Partition {
    /// Changes a message, unless it is leased.
    pub(crate) fn amend(&mut self, now: Instant, id: MessageId, change: &Amend) -> AmendOutcome {
        match self.messages.get(&id) {
            None => return AmendOutcome::NotFound,
            Some(message) if message.is_leased() => return AmendOutcome::Leased,
            Some(_) => {}
        }
        if let Some(mut message) = self.messages.remove(&id) {
            let next = self.change(now, &mut message, change);
            self.messages.insert(id, message);
            self.offer(next);
            self.advance(now);
        }
        AmendOutcome::Amended
    }

    /// Returns the group member that is to be offered in its place, if there is one.
    fn change(&mut self, now: Instant, message: &mut Message, change: &Amend) -> Option<MessageId> {
        let stood = message.place;
        self.queues.withdraw(message);
        let data = change.apply(message.data.clone());
        let regrouped = data.options().group != message.data.options().group;
        let is_disabled = change.disabled.unwrap_or(matches!(stood, Place::Disabled { .. }));
        if regrouped || is_disabled {
            self.let_group_go_on(message);
        }
        message.data = data;
        if regrouped {
            self.queues.join(message);
        }
        if let Some(priority) = change.priority {
            message.position.set_priority(priority);
        }

        let delay = change.delay(SystemTime::UNIX_EPOCH);
        let until = match delay {
            Some(delay) => (!delay.is_zero()).then(|| after(now, delay)),
            None => stood.until(),
        };
        match until {
            _ if is_disabled => {
                self.queues.set_aside(message, until);
                None
            }
            Some(until) => {
                self.queues.delay(message, until, delay.is_some());
                None
            }
            None if regrouped || stood.until().is_some() => self.queues.line_up(message),
            None => self.queues.stand(message),
        }
    }
}
