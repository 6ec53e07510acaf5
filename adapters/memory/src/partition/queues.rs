//! The queues of one partition: which message stands where, and in what order.
//!
//! Each message stands in exactly one of `ready`, `behind`, `delayed`, `disabled` and `leased`, under a key that follows from the message
//! itself: its position, place and group. So it can be found again, and taken out, in O(log n).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::MessageId;

use super::claims::Claims;
use crate::limits::PRIORITY_LEVELS;
use crate::message::{Lane, Message, Place, Position, after};

#[derive(Debug)]
pub(super) struct Queues {
    /// Dead letters know no groups.
    with_groups: bool,
    last_seq: u64,
    /// In the order of delivery.
    ready: BTreeMap<Position, MessageId>,
    /// Members of groups that wait for the head of their group to go, each group in the order they joined it.
    behind: BTreeMap<(Arc<str>, u64), MessageId>,
    /// Of each group, the one member that is on offer, held or postponed.
    heads: HashMap<Arc<str>, MessageId>,
    /// By the moment they mature. The second part of the key, the `seq`, keeps push order among equal moments.
    delayed: BTreeMap<(Instant, u64), MessageId>,
    disabled: BTreeSet<MessageId>,
    pub(super) leased: Claims,
    /// When messages get the highest priority, wherever they stand.
    urgent: BTreeSet<(Instant, MessageId)>,
}

impl Queues {
    pub(super) fn new(with_groups: bool) -> Self {
        Self {
            with_groups,
            last_seq: 0,
            ready: BTreeMap::new(),
            behind: BTreeMap::new(),
            heads: HashMap::new(),
            delayed: BTreeMap::new(),
            disabled: BTreeSet::new(),
            leased: Claims::default(),
            urgent: BTreeSet::new(),
        }
    }

    pub(super) fn pop_ready(&mut self) -> Option<MessageId> {
        self.ready.pop_first().map(|(_, id)| id)
    }

    /// A message that is due to line up now.
    pub(super) fn pop_matured(&mut self, now: Instant) -> Option<MessageId> {
        let first = self.delayed.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Lines the message up now, or lets it wait first.
    pub(super) fn schedule(&mut self, now: Instant, message: &mut Message, delay: Duration) {
        if delay.is_zero() {
            return self.line_up(message);
        }
        self.delay(message, after(now, delay), true);
    }

    /// Lets the message wait for a moment, anew or as it did before.
    pub(super) fn delay(&mut self, message: &mut Message, until: Instant, anew: bool) {
        if anew {
            message.position.seq = self.next_seq();
        }
        message.place = Place::Delayed { until };
        self.delayed.insert((until, message.position.seq), message.id());
    }

    /// Sets the message aside. Its group must have gone on.
    pub(super) fn set_aside(&mut self, message: &mut Message, until: Option<Instant>) {
        message.place = Place::Disabled { until };
        self.disabled.insert(message.id());
    }

    /// Puts the message at the end of its priority or, if its group has another head, at the end of its group.
    pub(super) fn line_up(&mut self, message: &mut Message) {
        message.position.seq = self.next_seq();
        message.position.lane = Lane::Fresh;
        self.stand(message);
    }

    /// Puts the message at its position or, if its group has another head, behind that.
    pub(super) fn stand(&mut self, message: &mut Message) {
        if let Some(group) = message.data.options().group.as_ref().filter(|_| self.with_groups)
            && *self.heads.entry(Arc::clone(group)).or_insert(message.id()) != message.id()
        {
            self.behind.insert((Arc::clone(group), message.position.seq), message.id());
            message.place = Place::Behind;
        } else {
            self.offer(message);
        }
    }

    /// Makes a message ready at its position.
    pub(super) fn offer(&mut self, message: &mut Message) {
        message.place = Place::Ready;
        self.ready.insert(message.position, message.id());
    }

    /// Offers a message that was delivered again, ahead of those that were not. It is still the head of its group.
    pub(super) fn give_back(&mut self, message: &mut Message) {
        message.position.lane = Lane::Returned;
        self.offer(message);
    }

    /// Takes the message out of the queue it stands in. In its group it keeps its role.
    pub(super) fn withdraw(&mut self, message: &Message) {
        let seq = message.position.seq;
        match message.place {
            Place::Ready => {
                self.ready.remove(&message.position);
            }
            Place::Behind => {
                if let Some(group) = &message.data.options().group {
                    self.behind.remove(&(Arc::clone(group), seq));
                }
            }
            Place::Delayed { until } => {
                self.delayed.remove(&(until, seq));
            }
            Place::Leased { claim } => self.leased.end_one(claim),
            Place::Disabled { .. } => {
                self.disabled.remove(&message.id());
            }
        }
    }

    /// Remembers when the message becomes urgent.
    pub(super) fn note_urgency(&mut self, message: &Message) {
        self.urgent.extend(message.urgent_at.map(|moment| (moment, message.id())));
    }

    pub(super) fn forget_urgency(&mut self, message: &Message) {
        if let Some(moment) = message.urgent_at {
            self.urgent.remove(&(moment, message.id()));
        }
    }

    /// A message that is to become urgent now.
    pub(super) fn pop_urgent(&mut self, now: Instant) -> Option<MessageId> {
        self.urgent.first().filter(|(moment, _)| *moment <= now)?;
        self.urgent.pop_first().map(|(_, id)| id)
    }

    /// Gives the message the highest priority. Among its equals it keeps its place.
    pub(super) fn make_urgent(&mut self, message: &mut Message) {
        message.urgent_at = None;
        let is_ready = message.place == Place::Ready;
        if is_ready {
            self.withdraw(message);
        }
        message.position.set_priority(PRIORITY_LEVELS - 1);
        if is_ready {
            self.offer(message);
        }
    }

    /// Ends the message's role in its group. If it was the head, returns the member that waited longest, which becomes it and is to
    /// be offered.
    pub(super) fn leave_group(&mut self, group: &Arc<str>, id: MessageId) -> Option<MessageId> {
        if self.heads.get(group) != Some(&id) {
            return None;
        }
        let first = self.behind.range((Arc::clone(group), 0)..).next();
        let Some(((_, seq), &next)) = first.filter(|((name, _), _)| name == group) else {
            self.heads.remove(group);
            return None;
        };
        let key = (Arc::clone(group), *seq);
        self.behind.remove(&key);
        self.heads.insert(key.0, next);
        Some(next)
    }

    /// Any one message that is not leased. Those behind others come first, so that no group has to move up for a member
    /// that goes next.
    pub(super) fn any_not_leased(&self) -> Option<MessageId> {
        let behind = self.behind.first_key_value().map(|(_, id)| id);
        let ready = || self.ready.first_key_value().map(|(_, id)| id);
        let delayed = || self.delayed.first_key_value().map(|(_, id)| id);
        behind.or_else(ready).or_else(delayed).or_else(|| self.disabled.first()).copied()
    }

    /// When the next message matures or the next lease ends.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        let matures = self.delayed.first_key_value().map(|(&(moment, _), _)| moment);
        [matures, self.leased.next_end()].into_iter().flatten().min()
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn behind(&self) -> usize {
        self.behind.len()
    }

    pub(super) fn disabled(&self) -> usize {
        self.disabled.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }
}
