//! Messages of a FIFO queue that were received together with the first of their message group. Nobody else
//! can receive them while that one is in flight. So this handle holds them too, and delivers each when its
//! turn comes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::in_flight::Claim;
use crate::names::LevelQueue;
use crate::received::Received;

/// With this many groups, those whose leases have all ended are removed.
const FIRST_PRUNE: usize = 1024;

type Group = (LevelQueue, Arc<str>);

/// The messages behind the first ones that this handle holds. Their number is bounded, since a request brings
/// at most nine of them, each with a lease.
#[derive(Debug, Default)]
pub(crate) struct GroupBacklog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    groups: HashMap<Group, VecDeque<Received>>,
    prune_at: usize,
}

/// What follows when the first message of a group is gone.
#[derive(Debug, Default)]
pub(crate) struct NextInGroup {
    /// The new first message.
    pub(crate) next: Option<Received>,
    /// Messages whose leases have expired meanwhile. The server delivers them again by itself.
    pub(crate) expired: Vec<Received>,
}

impl GroupBacklog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds messages behind the first of their groups, in order. Returns the messages that were held for the
    /// same groups before. Their leases have expired, since otherwise the server would not have delivered
    /// these.
    pub(crate) fn hold(&self, backlog: Vec<Received>) -> Vec<Received> {
        let mut state = self.lock();
        if state.groups.len() >= state.prune_at.max(FIRST_PRUNE) {
            let now = Instant::now();
            state.groups.retain(|_, group| group.iter().any(|received| received.claim.until > now));
            state.prune_at = 2 * state.groups.len();
        }
        let mut expired = Vec::new();
        let received_at = backlog.first().map(|received| received.claim.received_at);
        for received in backlog {
            let Some(group) = group_of(&received.claim) else { continue };
            let group = state.groups.entry(group).or_default();
            if group.front().is_some_and(|first| Some(first.claim.received_at) != received_at) {
                expired.extend(group.drain(..));
            }
            group.push_back(received);
        }
        expired
    }

    /// Returns what follows after the first message of a group is gone for good.
    pub(crate) fn next_after(&self, head: &Claim) -> NextInGroup {
        let Some(key) = group_of(head) else { return NextInGroup::default() };
        let mut state = self.lock();
        let Some(group) = state.groups.get_mut(&key).filter(|group| are_behind(group, head)) else {
            return NextInGroup::default();
        };
        let next = group.pop_front();
        if next.as_ref().is_some_and(|next| next.claim.until > Instant::now()) {
            if group.is_empty() {
                state.groups.remove(&key);
            }
            return NextInGroup { next, expired: Vec::new() };
        }
        let rest = state.groups.remove(&key).unwrap_or_default();
        NextInGroup { next: None, expired: next.into_iter().chain(rest).collect() }
    }

    /// Returns the messages behind the first one of a group, which will be delivered again. They must be
    /// released.
    pub(crate) fn take_group(&self, head: &Claim) -> Vec<Received> {
        let Some(key) = group_of(head) else { return Vec::new() };
        let mut state = self.lock();
        if !state.groups.get(&key).is_some_and(|group| are_behind(group, head)) {
            return Vec::new();
        }
        state.groups.remove(&key).map_or_else(Vec::new, Vec::from)
    }

    /// Removes and returns everything that is held.
    pub(crate) fn take_all(&self) -> Vec<Received> {
        self.lock().groups.drain().flat_map(|(_, group)| group).collect()
    }
}

/// Whether these messages came with `head`. Once a head is deleted, the server delivers the rest of its
/// group, which may arrive before its answer to the deletion. That rest has another head to wait for.
fn are_behind(group: &VecDeque<Received>, head: &Claim) -> bool {
    group.front().is_some_and(|first| first.claim.received_at == head.received_at)
}

fn group_of(claim: &Claim) -> Option<Group> {
    claim.group.as_ref().map(|group| (claim.level_queue.clone(), group.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyqueue::{MessageData, PartitionId};

    use super::*;

    fn received(group: &str, received_at: Instant, lease: Duration) -> Received {
        let level_queue = LevelQueue::new(&PartitionId::new("p").unwrap(), 0);
        let mut claim = Claim::new(
            level_queue,
            "receipt".into(),
            MessageData::new("x"),
            received_at,
            received_at + lease,
        );
        claim.group = Some(group.into());
        Received { claim, lease, age: Duration::ZERO, arrived: received_at, unreadable: None }
    }

    fn id(received: &Received) -> anyqueue::MessageId {
        received.claim.message.id()
    }

    #[test]
    fn they_follow_one_by_one_each_group_by_itself() {
        let (backlog, now) = (GroupBacklog::default(), Instant::now());
        let of = |group| received(group, now, Duration::from_mins(1));
        let (first, second, other) = (of("a"), of("a"), of("b"));
        let (ids, head) = ([id(&first), id(&second)], of("a").claim);
        assert!(backlog.hold(vec![first, other, second]).is_empty());
        for expected in ids {
            assert_eq!(backlog.next_after(&head).next.as_ref().map(id), Some(expected));
        }
        assert!(backlog.next_after(&head).next.is_none());
        assert_eq!(backlog.take_group(&of("b").claim).len(), 1);
        assert!(backlog.take_all().is_empty());
    }

    #[test]
    fn nothing_follows_a_head_that_it_did_not_come_with() {
        let (backlog, now) = (GroupBacklog::default(), Instant::now());
        let deleted = received("a", now, Duration::from_mins(1)).claim;
        let later = || received("a", now + Duration::from_nanos(1), Duration::from_mins(1));
        let head = later().claim;
        assert!(backlog.hold(vec![later()]).is_empty());
        assert!(backlog.next_after(&deleted).next.is_none(), "its head is out");
        assert!(backlog.take_group(&deleted).is_empty(), "its head is out");
        assert!(backlog.next_after(&head).next.is_some());
    }

    #[test]
    fn what_has_ended_follows_nobody_and_is_replaced_by_what_came_again() {
        let (backlog, now) = (GroupBacklog::default(), Instant::now());
        let head = received("a", now, Duration::ZERO).claim;
        backlog.hold(vec![received("a", now, Duration::ZERO), received("a", now, Duration::from_mins(1))]);
        let after = backlog.next_after(&head);
        assert!(after.next.is_none());
        assert_eq!(after.expired.len(), 2, "whoever is behind it cannot go before it");
        backlog.hold(vec![received("a", now, Duration::ZERO)]);
        let later = received("a", now + Duration::from_nanos(1), Duration::from_mins(1));
        let new_head = later.claim.clone();
        assert_eq!(backlog.hold(vec![later]).len(), 1);
        assert!(backlog.next_after(&new_head).next.is_some());
    }
}
