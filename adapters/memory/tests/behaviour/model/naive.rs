//! The model: one list of messages, searched from end to end.
//!
//! It knows no queues or timers. Where the backend keeps state, the model looks at all messages: the next of a group is the member that
//! joined it first; a lease holds if its end has not come.

use std::cmp::Reverse;
use std::time::Duration;

use anyqueue::adapter::Lease;
use anyqueue::{
    Amend, AmendOutcome, CancelOutcome, Counts, DeleteOutcome, ExtendOutcome, MessageData, MessageId,
    MessageState, PushOutcome, SettleOutcome,
};

use super::command::{Fate, Pull};
use crate::fixture::secs;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready { returned: bool },
    Delayed { until: u64 },
    Leased { until: u64, claim: usize },
    Disabled { returned: bool, until: Option<u64> },
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent yes or no of a message")]
pub(super) struct Known {
    data: MessageData,
    dead: bool,
    holds_key: bool,
    state: State,
    order: u64,
    /// Its place in its group.
    joined: u64,
    /// Whether others of its group wait for it.
    in_front: bool,
    level: u8,
    urgent_at: Option<u64>,
    deliveries: u32,
    cancel_requested: bool,
    pushed_at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    now: u64,
    tick: u64,
    pub(super) messages: Vec<Known>,
    pub(super) paused: [bool; 2],
}

impl Model {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        self.now += seconds;
        self.come_of_age();
    }

    /// What time has brought: urgency, lease ends, maturity.
    fn come_of_age(&mut self) {
        let mut matured = Vec::new();
        for (at, known) in self.messages.iter_mut().enumerate() {
            if known.urgent_at.take_if(|at| *at <= self.now).is_some() {
                known.level = 9;
            }
            match known.state {
                State::Leased { until, .. } if until <= self.now => {
                    known.state = State::Ready { returned: true };
                    known.in_front = false;
                }
                State::Delayed { until } if until <= self.now => matured.push((until, known.order, at)),
                _ => {}
            }
        }
        self.promote();
        matured.sort_unstable();
        for (_, _, at) in matured {
            self.line_up(at);
        }
    }

    fn line_up(&mut self, at: usize) {
        let tick = self.tick();
        let known = &mut self.messages[at];
        known.order = tick;
        if !known.in_front {
            known.joined = tick;
        }
        self.stand(at, false);
    }

    /// Lets the message be offered where it stands, in its turn.
    fn stand(&mut self, at: usize, returned: bool) {
        self.messages[at].in_front = false;
        self.messages[at].state = State::Ready { returned };
        self.promote();
    }

    /// Lets the first that waits in each group go in front, if nobody is there.
    fn promote(&mut self) {
        for at in 0..self.messages.len() {
            let members: Vec<_> = (0..self.messages.len()).filter(|it| self.are_mates(at, *it)).collect();
            if !members.iter().any(|it| self.messages[*it].in_front)
                && let Some(first) = self.first_waiting(&members)
            {
                self.messages[first].in_front = true;
            }
        }
    }

    fn are_mates(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.messages[one], &self.messages[other]);
        let group = &one.data.options().group;
        !one.dead && !other.dead && group.is_some() && *group == other.data.options().group
    }

    fn first_waiting(&self, members: &[usize]) -> Option<usize> {
        let waits = |it: &&usize| {
            matches!(self.messages[**it].state, State::Ready { .. }) && !self.messages[**it].in_front
        };
        members.iter().filter(waits).min_by_key(|it| self.messages[**it].joined).copied()
    }

    fn schedule(&mut self, at: usize, delay: u64) {
        if delay == 0 {
            return self.line_up(at);
        }
        let tick = self.tick();
        let known = &mut self.messages[at];
        known.order = tick;
        known.joined = if known.joined == 0 { tick } else { known.joined };
        known.state = State::Delayed { until: self.now + delay };
    }

    pub(super) fn push(
        &mut self,
        dead: bool,
        data: MessageData,
        delay: u64,
        urgent: Option<u64>,
    ) -> PushOutcome {
        if self.messages.iter().any(|known| known.data.id() == data.id()) {
            return PushOutcome::Duplicate(Some(data.id()));
        }
        let key = &data.options().dedup_key;
        let same =
            |known: &&Known| known.holds_key && key.is_some() && known.data.options().dedup_key == *key;
        if let Some(first) = self.messages.iter().filter(|_| !dead).find(same) {
            return PushOutcome::Duplicate(Some(first.data.id()));
        }
        let id = data.id();
        self.messages.push(Known {
            level: data.options().priority,
            urgent_at: urgent.map(|wait| self.now + wait),
            data,
            dead,
            holds_key: !dead,
            state: State::Ready { returned: false },
            order: 0,
            joined: 0,
            in_front: false,
            deliveries: 0,
            cancel_requested: false,
            pushed_at: self.now,
        });
        self.schedule(self.messages.len() - 1, delay);
        self.come_of_age();
        PushOutcome::Stored(id)
    }

    fn is_offered(&self, known: &Known) -> bool {
        let is_first = known.dead || known.data.options().group.is_none() || known.in_front;
        matches!(known.state, State::Ready { .. }) && !self.paused[usize::from(known.dead)] && is_first
    }

    pub(super) fn pull(&mut self, pull: Pull, claim: usize) -> Vec<(MessageId, u32, Duration)> {
        let Pull { dead, max, members, lease } = pull;
        let until = self.now + lease;
        let mut claimed = Vec::new();
        while claimed.len() < max {
            let offered = (0..self.messages.len()).filter(|at| self.messages[*at].dead == dead);
            let offered = offered.filter(|at| self.is_offered(&self.messages[*at]));
            let best = offered.min_by_key(|at| {
                let known = &self.messages[*at];
                let returned = known.state == State::Ready { returned: true };
                (Reverse(known.level), !returned, known.order)
            });
            let Some(best) = best else { break };
            let mut next = Some(best);
            for _ in 0..members {
                let Some(at) = next.filter(|_| claimed.len() < max) else { break };
                let known = &mut self.messages[at];
                known.state = State::Leased { until, claim };
                known.in_front = true;
                known.deliveries += 1;
                claimed.push((known.data.id(), known.deliveries, secs(self.now - known.pushed_at)));
                let mates: Vec<_> = (0..self.messages.len()).filter(|it| self.are_mates(best, *it)).collect();
                next = self.first_waiting(&mates);
            }
        }
        claimed
    }

    /// Where the message is that this lease holds.
    fn held(&self, lease: &Lease, claim: usize) -> Option<usize> {
        self.messages.iter().position(|known| {
            known.data.id() == lease.id
                && known.dead == lease.partition.is_dead_letters()
                && matches!(known.state, State::Leased { claim: holder, .. } if holder == claim)
        })
    }

    pub(super) fn settle(&mut self, lease: &Lease, claim: usize, fate: Fate) -> SettleOutcome {
        let Some(at) = self.held(lease, claim) else { return SettleOutcome::Lost };
        match fate {
            Fate::Remove => {
                self.messages.remove(at);
                self.promote();
            }
            Fate::Release | Fate::Retry => {
                self.messages[at].deliveries -= u32::from(matches!(fate, Fate::Release));
                self.stand(at, true);
            }
            Fate::Postpone(delay) => {
                self.messages[at].deliveries -= 1;
                self.schedule(at, delay);
            }
            Fate::Move { dead } => {
                let known = &mut self.messages[at];
                *known = Known {
                    dead,
                    holds_key: false,
                    in_front: false,
                    deliveries: 0,
                    cancel_requested: false,
                    ..known.clone()
                };
                self.promote();
                self.line_up(at);
            }
        }
        SettleOutcome::Settled
    }

    pub(super) fn extend(&mut self, lease: &Lease, claim: usize, seconds: u64) -> ExtendOutcome {
        let Some(at) = self.held(lease, claim) else { return ExtendOutcome::Lost };
        self.messages[at].state = State::Leased { until: self.now + seconds, claim };
        if self.messages[at].cancel_requested {
            ExtendOutcome::CancelRequested
        } else {
            ExtendOutcome::Extended
        }
    }

    fn find(&self, dead: bool, id: MessageId) -> Option<usize> {
        self.messages.iter().position(|known| known.dead == dead && known.data.id() == id)
    }

    pub(super) fn delete(&mut self, dead: bool, id: MessageId) -> DeleteOutcome {
        match self.find(dead, id) {
            None => DeleteOutcome::NotFound,
            Some(at) if matches!(self.messages[at].state, State::Leased { .. }) => DeleteOutcome::Leased,
            Some(at) => {
                self.messages.remove(at);
                self.promote();
                DeleteOutcome::Deleted
            }
        }
    }

    pub(super) fn cancel(&mut self, dead: bool, id: MessageId) -> CancelOutcome {
        match self.find(dead, id) {
            None => CancelOutcome::NotFound,
            Some(at) if matches!(self.messages[at].state, State::Leased { .. }) => {
                self.messages[at].cancel_requested = true;
                CancelOutcome::Requested
            }
            Some(at) => {
                self.messages.remove(at);
                self.promote();
                CancelOutcome::Removed
            }
        }
    }

    pub(super) fn purge(&mut self, dead: bool) -> usize {
        let before = self.messages.len();
        self.messages.retain(|known| known.dead != dead || matches!(known.state, State::Leased { .. }));
        self.promote();
        before - self.messages.len()
    }

    pub(super) fn amend(&mut self, id: MessageId, change: &Amend) -> AmendOutcome {
        let Some(at) = self.find(false, id) else {
            let is_dead = self.find(true, id).is_some();
            return if is_dead { AmendOutcome::Dead } else { AmendOutcome::NotFound };
        };
        let known = &mut self.messages[at];
        let (returned, was_until, was_disabled) = match known.state {
            State::Leased { .. } => return AmendOutcome::Leased,
            State::Ready { returned } => (returned, None, false),
            State::Delayed { until } => (false, Some(until), false),
            State::Disabled { returned, until } => (returned, until, true),
        };
        let data = change.apply(known.data.clone());
        let regrouped = data.options().group != known.data.options().group;
        known.data = data;
        known.level = change.priority.unwrap_or(known.level);
        let disabled = change.disabled.unwrap_or(was_disabled);
        let delay = change.delay(std::time::UNIX_EPOCH).map(|delay| delay.as_secs());
        let until = match delay {
            Some(delay) => (delay > 0).then_some(self.now + delay),
            None => was_until,
        };
        known.in_front &= !regrouped && !disabled;
        let tick = self.tick();
        let known = &mut self.messages[at];
        if regrouped {
            known.joined = tick;
        }
        match until {
            _ if disabled => known.state = State::Disabled { returned, until },
            Some(until) => {
                known.order = if delay.is_some() { tick } else { known.order };
                known.state = State::Delayed { until };
            }
            None if regrouped || was_until.is_some() => self.line_up(at),
            None => self.stand(at, returned),
        }
        self.promote();
        self.come_of_age();
        AmendOutcome::Amended
    }

    pub(super) fn browse(&self, dead: bool) -> Vec<(MessageId, MessageState, Option<u32>)> {
        let here = self.messages.iter().filter(|known| known.dead == dead);
        let mut page: Vec<_> = here
            .map(|known| {
                let state = match known.state {
                    State::Ready { .. } => MessageState::Ready,
                    State::Delayed { .. } => MessageState::Delayed,
                    State::Leased { .. } => MessageState::Leased,
                    State::Disabled { .. } => MessageState::Disabled,
                };
                (known.data.id(), state, Some(known.deliveries))
            })
            .collect();
        page.sort_unstable_by_key(|(id, ..)| *id);
        page
    }

    pub(super) fn counts(&self) -> Counts {
        let page = self.browse(false);
        let count = |state| page.iter().filter(|(_, there, _)| *there == state).count() as u64;
        let dead = self.browse(true).len() as u64;
        Counts::known(
            count(MessageState::Ready),
            count(MessageState::Delayed),
            count(MessageState::Leased),
            dead,
        )
        .with_disabled(count(MessageState::Disabled))
    }
}
