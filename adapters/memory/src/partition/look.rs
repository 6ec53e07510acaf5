//! Inspecting a partition, and removing messages that are not leased.

use std::ops::Bound;
use std::time::Instant;

use anyqueue::{Browsed, CancelOutcome, DeleteOutcome, MessageId, MessageState, Page};

use super::{Message, Partition, Place};

impl Partition {
    /// Whether the partition can be forgotten: it has no messages and is not paused.
    pub(crate) fn is_vacant(&self) -> bool {
        self.messages.is_empty() && !self.paused
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// The number of messages that a pull could claim now.
    pub(crate) fn on_offer(&self) -> usize {
        if self.paused { 0 } else { self.queues.ready() }
    }

    /// When more messages may come on offer by themselves.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        if self.paused { None } else { self.queues.next_alarm() }
    }

    /// The number of all messages, in whatever state.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The number of messages that can be claimed, or wait behind others of their group.
    pub(crate) fn ready(&self) -> usize {
        self.queues.ready() + self.queues.behind()
    }

    pub(crate) fn delayed(&self) -> usize {
        self.queues.delayed()
    }

    pub(crate) fn disabled(&self) -> usize {
        self.queues.disabled()
    }

    pub(crate) fn contains(&self, id: MessageId) -> bool {
        self.messages.contains_key(&id)
    }

    pub(crate) fn leased(&self) -> usize {
        self.queues.leased.len()
    }

    /// Returns a page of messages, ordered by id.
    pub(crate) fn browse(&self, now: Instant, page: Page<MessageId>) -> Vec<Browsed> {
        let start = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let messages = self.messages.range((start, Bound::Unbounded)).take(page.limit);
        messages.map(|(_, message)| browsed(message, now)).collect()
    }

    /// Removes a message, unless it is leased.
    pub(crate) fn delete(&mut self, id: MessageId) -> (DeleteOutcome, Option<Box<Message>>) {
        match self.messages.get(&id).map(|message| message.is_leased()) {
            None => (DeleteOutcome::NotFound, None),
            Some(true) => (DeleteOutcome::Leased, None),
            Some(false) => (DeleteOutcome::Deleted, self.remove(id)),
        }
    }

    /// Removes a message or, if it is leased, leaves a note for its holder.
    pub(crate) fn cancel(&mut self, id: MessageId) -> (CancelOutcome, Option<Box<Message>>) {
        match self.messages.get_mut(&id) {
            None => (CancelOutcome::NotFound, None),
            Some(message) if message.is_leased() => {
                message.cancel_requested = true;
                (CancelOutcome::Requested, None)
            }
            Some(_) => (CancelOutcome::Removed, self.remove(id)),
        }
    }

    /// Removes any one message that is not leased.
    pub(crate) fn remove_any(&mut self) -> Option<Box<Message>> {
        let id = self.queues.any_not_leased()?;
        self.remove(id)
    }
}

fn browsed(message: &Message, now: Instant) -> Browsed {
    let (state, due_in) = match message.place {
        Place::Ready | Place::Behind => (MessageState::Ready, None),
        Place::Delayed { until } => (MessageState::Delayed, Some(until.saturating_duration_since(now))),
        Place::Leased { .. } => (MessageState::Leased, None),
        Place::Disabled { until } => {
            (MessageState::Disabled, until.map(|until| until.saturating_duration_since(now)))
        }
    };
    Browsed::new(message.data.clone(), state)
        .with_delivery_count(message.deliveries)
        .with_age(now.saturating_duration_since(message.pushed_at))
        .with_due_in(due_in)
}
