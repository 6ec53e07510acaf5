//! The state machine of one partition: plain data, synchronous commands, and time as an argument.
//!
//! ```text
//!   push, move ──────────────┬──────────────► Delayed ◄─────────────┐
//!                            │                   │ maturity         │ postpone
//!                            ▼                   ▼                  │
//!              (group taken) Behind ─(its turn)► Ready ──claim──► Leased ──► removed, moved
//!                                                ▲                  │
//!                                                └─ release, retry, lease end
//! ```
//! Every message that is not leased can be disabled; once enabled, it is back in its former place.
//!
//! A command costs O(log n) for each message that it touches. [`Partition::advance`] processes delays and
//! leases that have ended. It must run before any other command, so a lease that has expired is void, whether
//! or not the message has been claimed again since.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::hash_map::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Lease, RawDelivery, Token};
use anyqueue::{ExtendOutcome, MessageId, PartitionId};

use crate::record::{Message, Place, after};

mod amend;
mod claims;
mod look;
mod queues;

use queues::Queues;

/// One partition, live or dead letters.
#[derive(Debug)]
pub(crate) struct Partition {
    id: PartitionId,
    paused: bool,
    /// All messages, ordered by id, as for browsing.
    messages: BTreeMap<MessageId, Box<Message>>,
    /// Where each message stands.
    queues: Queues,
    /// The deduplication keys in use, with the messages that use them.
    keys: HashMap<Arc<str>, MessageId>,
}

/// Whether a delivery that ended stays in the delivery count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The delivery failed.
    Counted,
    /// The message was released.
    TakenOff,
}

impl Partition {
    pub(crate) fn new(id: PartitionId) -> Self {
        let queues = Queues::new(!id.is_dead_letters());
        Self { id, paused: false, messages: BTreeMap::new(), queues, keys: HashMap::new() }
    }

    /// Processes what has become due. Each delay or lease that ends costs O(log n), once.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some((claim, ids)) = self.queues.leased.pop_lapsed(now) {
            for id in ids {
                // Some were settled, and may be held under another claim by now.
                if let Some(message) = self.messages.get_mut(&id).filter(|message| message.is_in(claim)) {
                    let next = self.queues.release(message);
                    self.offer(next);
                }
            }
        }
        while let Some(id) = self.queues.pop_urgent(now) {
            if let Some(message) = self.messages.get_mut(&id) {
                self.queues.make_urgent(message);
            }
        }
        while let Some(id) = self.queues.pop_matured(now) {
            if let Some(message) = self.messages.get_mut(&id) {
                let next = self.queues.line_up(message);
                self.offer(next);
            }
        }
    }

    /// Returns the live message that uses this deduplication key.
    pub(crate) fn key_holder(&self, key: &str) -> Option<MessageId> {
        self.keys.get(key).copied()
    }

    pub(crate) fn is_held(&self, id: MessageId) -> bool {
        self.messages.get(&id).is_some_and(|message| message.is_leased())
    }

    /// Returns a message, if nobody holds it.
    pub(crate) fn waiting(&mut self, id: MessageId) -> Option<&mut Message> {
        self.messages.get_mut(&id).map(|message| &mut **message).filter(|message| !message.is_leased())
    }

    /// Makes a delayed message due after `delay`, counted from now.
    pub(crate) fn bring_forward(&mut self, now: Instant, id: MessageId, delay: Duration) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        self.queues.withdraw(message);
        if let Place::Disabled { .. } = message.place {
            self.queues.set_aside(message, (!delay.is_zero()).then(|| after(now, delay)));
        } else {
            let next = self.queues.schedule(now, message, delay);
            self.offer(next);
        }
    }

    /// Adds a pushed message, which takes its deduplication key. The caller has made sure that id and key are
    /// free.
    pub(crate) fn push(&mut self, now: Instant, mut message: Box<Message>, delay: Duration) {
        if let Some(key) = &message.data.options().dedup_key
            && !self.id.is_dead_letters()
        {
            self.keys.insert(Arc::clone(key), message.id());
        }
        let next = self.queues.schedule(now, &mut message, delay);
        self.add(message, next);
    }

    /// Adds a message that was moved here. It is ready at once, its deliveries are counted anew, and it takes
    /// no deduplication key.
    pub(crate) fn accept(&mut self, mut message: Box<Message>) {
        message.deliveries = 0;
        message.cancel_requested = false;
        message.in_front = false;
        let next = self.queues.line_up(&mut message);
        self.add(message, next);
    }

    fn add(&mut self, message: Box<Message>, next: Option<MessageId>) {
        self.queues.note_urgency(&message);
        self.messages.insert(message.id(), message);
        self.offer(next);
    }

    /// Offers the group member whose turn it is, if there is one.
    fn offer(&mut self, next: Option<MessageId>) {
        if let Some(next) = next.and_then(|next| self.messages.get_mut(&next)) {
            self.queues.offer(next);
        }
    }

    /// Leases up to `max` ready messages, highest priority first; of each group up to `group_members`, in the
    /// group's order.
    pub(crate) fn claim(
        &mut self,
        now: Instant,
        max: usize,
        group_members: usize,
        lease: Duration,
    ) -> Vec<RawDelivery> {
        let count = if group_members > 1 { max } else { max.min(self.on_offer()) };
        if count == 0 || self.on_offer() == 0 {
            return Vec::new();
        }
        let token = Token::random();
        let until = after(now, lease);
        let claim = self.queues.leased.next_id(until);
        let mut ids = Vec::with_capacity(count);
        let mut deliveries = Vec::with_capacity(count);
        let mut group: Option<(Arc<str>, usize)> = None; // whose members come next, and how many
        while deliveries.len() < count {
            let member = group.as_mut().filter(|(_, left)| *left > 0).and_then(|(group, left)| {
                *left -= 1;
                self.queues.pop_behind(group)
            });
            let Some(id) = member.or_else(|| self.queues.pop_ready()) else { break };
            let Some(message) = self.messages.get_mut(&id) else { continue };
            if group_members > 1 && member.is_none() {
                let name = message.data.options().group.as_ref();
                group = name.map(|name| (Arc::clone(name), group_members - 1));
            }
            self.queues.step_in_front(message);
            message.place = Place::Leased { claim };
            message.deliveries = message.deliveries.saturating_add(1);
            ids.push(id);

            let lease = Lease { partition: self.id.clone(), id, token: token.clone() };
            let mut delivery = RawDelivery::new(lease, message.data.clone());
            delivery.lease_until = Some(until);
            delivery.delivery_count = Some(message.deliveries);
            delivery.age = now.saturating_duration_since(message.pushed_at);
            deliveries.push(delivery);
        }
        self.queues.leased.begin(claim, token, ids);
        deliveries
    }

    /// Returns a held message, or `None` if the lease is lost.
    pub(crate) fn held(&mut self, id: MessageId, token: &Token) -> Option<&mut Message> {
        let message = self.messages.get_mut(&id)?;
        self.queues.leased.holds(message, token).then_some(message)
    }

    /// Takes a held message out, to be removed or moved. Returns `None` if the lease is lost.
    pub(crate) fn take(&mut self, id: MessageId, token: &Token) -> Option<Box<Message>> {
        let Entry::Occupied(entry) = self.messages.entry(id) else { return None };
        if !self.queues.leased.holds(entry.get(), token) {
            return None;
        }
        let mut message = entry.remove();
        self.detach(&mut message);
        Some(message)
    }

    /// Returns a held message to the queue, ahead of those that were never delivered. Returns `None` if the
    /// lease is lost.
    pub(crate) fn release(&mut self, id: MessageId, token: &Token, attempt: Attempt) -> Option<()> {
        let (message, queues) = self.end_lease(id, token)?;
        if attempt == Attempt::TakenOff {
            message.deliveries -= 1;
        }
        let next = queues.release(message);
        self.offer(next);
        Some(())
    }

    /// Puts a held message at the end of its priority after `delay`. It keeps its group and its place there,
    /// and the delivery does not count. Returns `None` if the lease is lost.
    pub(crate) fn postpone(
        &mut self,
        now: Instant,
        id: MessageId,
        token: &Token,
        delay: Duration,
    ) -> Option<()> {
        let (message, queues) = self.end_lease(id, token)?;
        message.deliveries -= 1;
        let next = queues.schedule(now, message, delay);
        self.offer(next);
        Some(())
    }

    /// Sets the end of a lease to `duration` from now.
    pub(crate) fn extend(
        &mut self,
        now: Instant,
        id: MessageId,
        token: &Token,
        duration: Duration,
    ) -> ExtendOutcome {
        let Some((message, queues)) = self.end_lease(id, token) else { return ExtendOutcome::Lost };
        let claim = queues.leased.next_id(after(now, duration));
        message.place = Place::Leased { claim };
        queues.leased.begin(claim, token.clone(), vec![id]);
        if message.cancel_requested { ExtendOutcome::CancelRequested } else { ExtendOutcome::Extended }
    }

    /// Ends the lease of a message. The message is in no queue then; the caller must put it into one.
    fn end_lease(&mut self, id: MessageId, token: &Token) -> Option<(&mut Message, &mut Queues)> {
        let message = self.messages.get_mut(&id)?;
        if !self.queues.leased.holds(message, token) {
            return None;
        }
        self.queues.withdraw(message);
        Some((message, &mut self.queues))
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Removes a message, wherever it stands.
    fn remove(&mut self, id: MessageId) -> Option<Box<Message>> {
        let mut message = self.messages.remove(&id)?;
        self.detach(&mut message);
        Some(message)
    }

    /// Cleans up after a message that was removed: its place, its key, its group.
    fn detach(&mut self, message: &mut Message) {
        self.queues.withdraw(message);
        self.queues.forget_urgency(message);
        if let Some(key) = &message.data.options().dedup_key
            && self.keys.get(key) == Some(&message.id())
        {
            self.keys.remove(key);
        }
        self.let_group_go_on(message);
    }

    /// Ends the role of a message in its group, and offers the next member.
    fn let_group_go_on(&mut self, message: &mut Message) {
        if let Some(group) = message.data.options().group.clone() {
            let next = self.queues.leave_group(&group, message);
            self.offer(next);
        }
    }
}
