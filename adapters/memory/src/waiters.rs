//! The line of pulls that wait for messages of one partition.
//!
//! Waking depends on the state, not on events. After every change of the partition, [`Line::muster`] restores
//! two rules:
//!
//! 1. As many waiters are on their way as messages are on offer (or all waiters, if they are fewer). A waiter
//!    that was called and finds nothing rejoins; one that was called and dropped leaves. In both cases the
//!    next muster calls another one if a message is still on offer. So no wake-up is lost, and none is in
//!    vain, except in a race with a pull that did not wait.
//! 2. One waiter, the *keeper*, sleeps only until the partition's next alarm (the next end of a lease or
//!    delay), or a waiter is on its way that will look at the alarm when it arrives. So an alarm wakes one
//!    waiter, not all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

/// The waiters of one partition.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The sleeping waiters, in the order of their arrival, in which they are called.
    idle: BTreeMap<u64, Arc<Notify>>,
    /// How many were called and have not come back yet.
    called: usize,
    keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    ticket: u64,
    until: Instant,
}

impl Line {
    /// Whether nobody waits and nobody is on the way.
    pub(crate) fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.called == 0
    }

    /// Puts a waiter to sleep. If a moment is returned, the waiter is the keeper, and must come back at that
    /// moment.
    pub(crate) fn join(&mut self, ticket: u64, bell: Arc<Notify>, alarm: Option<Instant>) -> Option<Instant> {
        self.idle.insert(ticket, bell);
        let until = alarm.filter(|alarm| !self.is_kept(*alarm))?;
        self.keeper = Some(Keeper { ticket, until });
        Some(until)
    }

    /// Removes a waiter that comes back, called or not, or that goes away for good. A muster must follow.
    pub(crate) fn leave(&mut self, ticket: u64) {
        if self.idle.remove(&ticket).is_none() {
            self.called = self.called.saturating_sub(1);
        }
        if self.keeper.as_ref().is_some_and(|keeper| keeper.ticket == ticket) {
            self.keeper = None;
        }
    }

    /// Restores the two rules, given how many messages are on offer and when the next one may become ready by
    /// itself. Bells of waiters that are called are put into `bells`, to be rung after the lock is released.
    pub(crate) fn muster(&mut self, on_offer: usize, alarm: Option<Instant>, bells: &mut Vec<Arc<Notify>>) {
        while self.called < on_offer
            && let Some((_, bell)) = self.idle.pop_first()
        {
            self.called += 1;
            bells.push(bell);
        }
        // The last in line becomes the keeper, since it is the last one that will be called for a message.
        if self.called == 0
            && alarm.is_some_and(|alarm| !self.is_kept(alarm))
            && let Some((_, bell)) = self.idle.pop_last()
        {
            self.called += 1;
            bells.push(bell);
        }
    }

    fn is_kept(&self, alarm: Instant) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.until <= alarm)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A line with `n` sleepers, whose tickets are 1 to n.
    fn line(n: u64, alarm: Option<Instant>) -> Line {
        let mut line = Line::default();
        for ticket in 1..=n {
            line.join(ticket, Arc::new(Notify::new()), alarm);
        }
        line
    }

    fn muster(line: &mut Line, on_offer: usize, alarm: Option<Instant>) {
        let before = line.called;
        let mut bells = Vec::new();
        line.muster(on_offer, alarm, &mut bells);
        assert_eq!(bells.len(), line.called - before);
    }

    #[test]
    fn as_many_are_called_as_messages_are_on_offer_first_come_first_served() {
        let mut line = line(5, None);
        muster(&mut line, 2, None);
        muster(&mut line, 2, None);
        assert_eq!((line.called, line.idle.keys().copied().collect::<Vec<_>>()), (2, vec![3, 4, 5]));
        muster(&mut line, 9, None);
        assert_eq!((line.called, line.idle.len()), (5, 0));
    }

    #[test]
    fn the_call_of_one_that_went_away_goes_to_another() {
        let mut line = line(2, None);
        muster(&mut line, 1, None);
        line.leave(1);
        muster(&mut line, 1, None);
        assert_eq!((line.called, line.idle.len()), (1, 0));
        line.leave(2);
        assert!(line.is_empty());
    }

    #[test]
    fn one_waiter_keeps_the_time_and_the_last_takes_over_from_it() {
        let alarm = Instant::now();
        let mut line = line(3, Some(alarm));
        assert_eq!(line.keeper.as_ref().map(|keeper| keeper.ticket), Some(1));
        muster(&mut line, 0, Some(alarm));
        assert_eq!(line.called, 0, "the alarm is kept");
        line.leave(1);
        muster(&mut line, 0, Some(alarm));
        assert_eq!((line.called, line.idle.keys().copied().collect::<Vec<_>>()), (1, vec![2]));
    }

    #[test]
    fn an_earlier_alarm_calls_one_waiter_and_a_later_one_nobody() {
        let alarm = Instant::now();
        let mut line = line(3, Some(alarm));
        muster(&mut line, 0, Some(alarm + Duration::from_secs(1)));
        assert_eq!(line.called, 0);
        muster(&mut line, 0, Some(alarm.checked_sub(Duration::from_secs(1)).unwrap()));
        assert_eq!(line.called, 1);
    }
}
