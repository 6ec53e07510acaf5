//! The queues of one partition: where each message stands, and in what order.
//!
//! Each message is in exactly one of `ready`, `behind`, `delayed`, `disabled` and `leased`, under a key that
//! follows from the message itself: its position, place and group. So it can be found, and taken out, in
//! O(log n).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::MessageId;

use super::claims::Claims;
use crate::limits::PRIORITY_LEVELS;
use crate::record::{Lane, Message, Place, Position, after};

#[derive(Debug)]
pub(super) struct Queues {
    /// Whether there are groups. Dead letters have none.
    with_groups: bool,
    last_seq: u64,
    /// In the order of delivery.
    ready: BTreeMap<Position, MessageId>,
    /// Group members that wait for those in front of their group. Each group is in the order in which they
    /// joined.
    behind: BTreeMap<(Arc<str>, u64), MessageId>,
    /// For each group, how many members are in front: one that is on offer, or those that are held or
    /// postponed.
    fronts: HashMap<Arc<str>, usize>,
    /// Ordered by when their delays end. The second part of the key, the `seq`, keeps push order among equal
    /// moments.
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
            fronts: HashMap::new(),
            delayed: BTreeMap::new(),
            disabled: BTreeSet::new(),
            leased: Claims::default(),
            urgent: BTreeSet::new(),
        }
    }

    pub(super) fn pop_ready(&mut self) -> Option<MessageId> {
        self.ready.pop_first().map(|(_, id)| id)
    }

    /// Takes out a message whose delay is over, which is to line up now.
    pub(super) fn pop_matured(&mut self, now: Instant) -> Option<MessageId> {
        let first = self.delayed.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Lines the message up now, or delays it first. Returns the same as [`stand`](Self::stand).
    #[must_use]
    pub(super) fn schedule(
        &mut self,
        now: Instant,
        message: &mut Message,
        delay: Duration,
    ) -> Option<MessageId> {
        if delay.is_zero() {
            return self.line_up(message);
        }
        self.delay(message, after(now, delay), true);
        None
    }

    /// Delays the message: `anew`, as the last in its order, or as it was delayed before.
    pub(super) fn delay(&mut self, message: &mut Message, until: Instant, anew: bool) {
        if anew {
            message.position.seq = self.next_seq();
            if message.joined == 0 {
                // Needed if the message never matures: its delay can be removed while it is disabled.
                message.joined = message.position.seq;
            }
        }
        message.place = Place::Delayed { until };
        self.delayed.insert((until, message.position.seq), message.id());
    }

    /// Disables the message. Its group must have gone on without it.
    pub(super) fn set_aside(&mut self, message: &mut Message, until: Option<Instant>) {
        message.place = Place::Disabled { until };
        self.disabled.insert(message.id());
    }

    /// Puts the message at the end of its priority and, unless it was in front of its group, at the end of
    /// the group. Returns the same as [`stand`](Self::stand).
    #[must_use]
    pub(super) fn line_up(&mut self, message: &mut Message) -> Option<MessageId> {
        message.position.seq = self.next_seq();
        message.position.lane = Lane::Fresh;
        if !message.in_front {
            message.joined = message.position.seq;
        }
        self.stand(message)
    }

    /// Makes the message the last of its group, once it stands there.
    pub(super) fn join(&mut self, message: &mut Message) {
        message.joined = self.next_seq();
    }

    /// Puts the message at its position if it is the first of its group and no member is in front. Otherwise
    /// it waits at its place in the group. If another member is the first and none is in front, returns that
    /// member, which must be offered.
    #[must_use]
    pub(super) fn stand(&mut self, message: &mut Message) -> Option<MessageId> {
        let Some(group) = message.data.options().group.as_ref().filter(|_| self.with_groups) else {
            self.offer(message);
            return None;
        };
        let group = Arc::clone(group);
        self.step_back(&group, message);
        let is_free = !self.fronts.contains_key(&group);
        if is_free && self.first_behind(&group).is_none_or(|first| message.joined < first) {
            self.offer(message);
            return None;
        }
        self.behind.insert((Arc::clone(&group), message.joined), message.id());
        message.place = Place::Behind;
        if is_free { self.pop_behind(&group) } else { None }
    }

    /// Makes a message ready at its position, in front of its group.
    pub(super) fn offer(&mut self, message: &mut Message) {
        message.place = Place::Ready;
        self.ready.insert(message.position, message.id());
        self.step_in_front(message);
    }

    /// Puts a returned message ahead of those that were never delivered. Returns the same as
    /// [`stand`](Self::stand).
    #[must_use]
    pub(super) fn release(&mut self, message: &mut Message) -> Option<MessageId> {
        message.position.lane = Lane::Returned;
        self.stand(message)
    }

    /// Takes the message out of its queue. If it is in front of its group, it stays in front.
    pub(super) fn withdraw(&mut self, message: &Message) {
        let seq = message.position.seq;
        match message.place {
            Place::Ready => {
                self.ready.remove(&message.position);
            }
            Place::Behind => {
                if let Some(group) = &message.data.options().group {
                    self.behind.remove(&(Arc::clone(group), message.joined));
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

    /// Takes out a message that becomes urgent now.
    pub(super) fn pop_urgent(&mut self, now: Instant) -> Option<MessageId> {
        self.urgent.first().filter(|(moment, _)| *moment <= now)?;
        self.urgent.pop_first().map(|(_, id)| id)
    }

    /// Gives the message the highest priority. It keeps its place among equals.
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

    /// Ends the message's role in its group. If no member is left in front, returns the next one, which must
    /// be offered.
    #[must_use]
    pub(super) fn leave_group(&mut self, group: &Arc<str>, message: &mut Message) -> Option<MessageId> {
        let was_in_front = message.in_front;
        self.step_back(group, message);
        if was_in_front && !self.fronts.contains_key(group) { self.pop_behind(group) } else { None }
    }

    /// Puts a message in front of its group, if it has one and is not in front yet.
    pub(super) fn step_in_front(&mut self, message: &mut Message) {
        if let Some(group) = message.data.options().group.as_ref().filter(|_| self.with_groups)
            && !message.in_front
        {
            *self.fronts.entry(Arc::clone(group)).or_default() += 1;
            message.in_front = true;
        }
    }

    fn step_back(&mut self, group: &Arc<str>, message: &mut Message) {
        if std::mem::take(&mut message.in_front)
            && let Some(in_front) = self.fronts.get_mut(group)
        {
            *in_front -= 1;
            if *in_front == 0 {
                self.fronts.remove(group);
            }
        }
    }

    /// Returns the place of the first member that waits in the group.
    fn first_behind(&self, group: &Arc<str>) -> Option<u64> {
        let ((name, joined), _) = self.behind.range((Arc::clone(group), 0)..).next()?;
        (name == group).then_some(*joined)
    }

    /// Takes out the first member that waits in the group.
    pub(super) fn pop_behind(&mut self, group: &Arc<str>) -> Option<MessageId> {
        let first = self.first_behind(group)?;
        self.behind.remove(&(Arc::clone(group), first))
    }

    /// Returns any one message that is not leased. Members that wait behind others are taken first, so that
    /// no group moves up for a member that is removed next.
    pub(super) fn any_not_leased(&self) -> Option<MessageId> {
        let behind = self.behind.first_key_value().map(|(_, id)| id);
        let ready = || self.ready.first_key_value().map(|(_, id)| id);
        let delayed = || self.delayed.first_key_value().map(|(_, id)| id);
        behind.or_else(ready).or_else(delayed).or_else(|| self.disabled.first()).copied()
    }

    /// Returns when the next delay or the next lease ends.
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
